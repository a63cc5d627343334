//! What holds of any value: every step is idempotent, and none panics.
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use setpoint_schema::node::TypeSchema;
use setpoint_schema::{builtin, crd, decode, default, prune, validate};

fn custom() -> TypeSchema {
    crd::type_schema(&json!({
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "string", "default": "x", "maxLength": 3, "pattern": "^[a-z]*$"},
            "b": {"type": "object", "default": {}, "properties": {
                "c": {"type": "integer", "default": 1, "minimum": 0},
                "d": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
                    "items": {"type": "object", "properties": {"a": {"type": "string", "default": "k"}, "b": {"type": "number"}}}},
            }},
            "c": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
            "d": {"x-kubernetes-preserve-unknown-fields": true, "type": "object", "properties": {"a": {"type": "boolean"}}},
            "e": {"x-kubernetes-int-or-string": true},
            "f": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
            "g": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        },
    }))
}

/// Any JSON whose members are named as the schema's often enough.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<i16>().prop_map(|n| json!(f64::from(n) / 8.0)),
        "[a-e]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map("[a-g]", inner, 0..6)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_settle_at_once(mut value in value()) {
        let schema = custom();
        prune::prune(&schema, &mut value);
        prop_assert_eq!(prune::prune(&schema, &mut value), Vec::<String>::new());
        default::apply(&schema, &mut value).unwrap();
        let mut again = value.clone();
        default::apply(&schema, &mut again).unwrap();
        prop_assert_eq!(&again, &value);
        prop_assert_eq!(prune::prune(&schema, &mut again), Vec::<String>::new());
    }

    /// A value that did not change has nothing new to report, whatever is wrong with it. It is
    /// pruned, and the elements of its map have their keys: what is not declared, and what has no
    /// keys, counts as changed.
    #[test]
    fn an_unchanged_property_is_never_reported_on_update(mut value in value()) {
        let schema = custom();
        prune::prune(&schema, &mut value);
        if let Some(elements) = value.pointer_mut("/b/d").and_then(Value::as_array_mut) {
            let is_key = |key: &Value| key.is_boolean() || key.is_number() || key.is_string();
            elements.retain(|element| element.get("a").is_some_and(is_key));
        }
        let all = validate::validate(&schema, &value, None);
        let again = validate::validate(&schema, &value, Some(&value));
        // The root itself is looked at: what it requires, not what its properties hold.
        prop_assert!(again.len() <= all.len());
        prop_assert!(again.iter().all(|error| !error.path.text().contains(['.', '['])), "{again:?}");
    }

    #[test]
    fn a_pod_that_decodes_decodes_to_itself(spec in value()) {
        let schema = builtin::type_schema("", "v1", "Pod").unwrap();
        let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
        let mut problems = Vec::new();
        if decode::conform(&schema, "Pod", &mut pod, &mut problems).is_ok() {
            default::declared(&schema, &mut pod);
            let mut again = pod.clone();
            problems.clear();
            prop_assert_eq!(decode::conform(&schema, "Pod", &mut again, &mut problems), Ok(()));
            default::declared(&schema, &mut again);
            prop_assert_eq!(problems, Vec::<String>::new());
            prop_assert_eq!(again, pod);
        }
    }

    #[test]
    fn yaml_and_json_of_one_tree_agree(value in value()) {
        let text = value.to_string();
        let json = decode::parse(text.as_bytes(), decode::Format::Json).unwrap();
        // The space keeps the YAML parser from handing the text to the JSON one.
        let yaml = decode::parse(format!("- {text}").as_bytes(), decode::Format::Yaml).unwrap();
        prop_assert_eq!(&yaml.value[0], &json.value);
    }

    /// Whatever is written as a definition's schema, validation answers.
    #[test]
    fn any_schema_is_judged(value in value()) {
        let schema = json!({"type": "object", "properties": {"a": value}, "anyOf": [value], "default": value});
        let definition = json!({"spec": {"group": "ex.io", "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}});
        let _ = crd::validate_definition(&definition, Some(&definition));
        let _ = validate::validate(&crd::type_schema(&schema), &definition, None);
    }
}
