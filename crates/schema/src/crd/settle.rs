//! Defaults as they are filled in. A definition may have defaults in the metadata of embedded
//! resources that are no fields of `ObjectMeta`: objects do not get these.
use super::build::DEPTH_MAX;
use crate::decode::type_and_metadata;
use crate::node::TYPE_AND_METADATA;
use serde_json::{Map, Value};

/// A schema with such defaults as objects get; `None` if these are the ones it has, because it has
/// no embedded resources.
pub(super) fn settled(schema: &Value) -> Option<Value> {
    if !has_embedded(schema, 0) {
        return None;
    }
    let mut schema = schema.clone();
    settle(&mut schema, true, &mut None, 0);
    Some(schema)
}

fn has_embedded(schema: &Value, depth: usize) -> bool {
    let Some(members) = schema.as_object().filter(|_| depth < DEPTH_MAX) else { return false };
    let properties = schema["properties"].as_object().into_iter().flat_map(Map::values);
    let others = ["items", "additionalProperties"].into_iter().map(|name| &schema[name]);
    is_true(members) || properties.chain(others).any(|inner| has_embedded(inner, depth + 1))
}

/// A step into a value: to a member, or to an item.
enum Step {
    Member(String),
    Item,
}

/// Settles the defaults below a node. `inside`: the way to the node from the resource in whose type
/// or metadata it is.
fn settle(schema: &mut Value, is_root: bool, inside: &mut Option<Vec<Step>>, depth: usize) {
    let Value::Object(members) = schema else { return };
    if depth >= DEPTH_MAX {
        return;
    }
    if let Some(default) = members.remove("default") {
        let kept = match inside {
            Some(steps) => kept_inside(steps, default),
            None => {
                let mut default = default;
                conform(members, &mut default);
                Some(default)
            }
        };
        members.extend(kept.map(|default| ("default".to_owned(), default)));
    }
    let is_resource = is_root || is_true(members);
    let mut inner = |name: Option<&str>, schema: &mut Value| {
        let step = name.map_or(Step::Item, |name| Step::Member(name.to_owned()));
        match inside {
            Some(steps) => {
                steps.push(step);
                settle(schema, false, inside, depth + 1);
                inside.as_mut().map(Vec::pop);
            }
            None => {
                let begins = is_resource && name.is_some_and(|n| TYPE_AND_METADATA.contains(&n));
                settle(schema, false, &mut begins.then(|| vec![step]), depth + 1);
            }
        }
    };
    for (name, value) in members.iter_mut() {
        match (name.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.iter_mut().for_each(|(name, schema)| inner(Some(name), schema));
            }
            // Any name will do: no map of `ObjectMeta` has fields of its own.
            ("additionalProperties", schema) => inner(Some("*"), schema),
            ("items", schema) => inner(None, schema),
            _ => {}
        }
    }
}

fn is_true(schema: &Map<String, Value>) -> bool {
    schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true))
}

/// Conforms the resources in a default.
fn conform(schema: &Map<String, Value>, value: &mut Value) {
    match value {
        Value::Object(members) => {
            let is_resource = is_true(schema);
            if is_resource {
                type_and_metadata(members);
            }
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, member) in
                members.iter_mut().filter(|(n, _)| !is_resource || *n != "metadata")
            {
                let property = properties.and_then(|properties| properties.get(name));
                let inner = property.or_else(|| schema.get("additionalProperties"));
                if let Some(Value::Object(inner)) = inner {
                    conform(inner, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(Value::Object(inner)) = schema.get("items") {
                items.iter_mut().for_each(|item| conform(inner, item));
            }
        }
        _ => {}
    }
}

/// What is left of a default in the type or metadata of a resource.
fn kept_inside(steps: &[Step], default: Value) -> Option<Value> {
    let mut object = default;
    for step in steps.iter().rev() {
        object = match step {
            Step::Member(name) => Value::Object(Map::from_iter([(name.clone(), object)])),
            Step::Item => Value::Array(vec![object]),
        };
    }
    if let Value::Object(members) = &mut object {
        type_and_metadata(members);
    }
    let mut found = Some(object);
    for step in steps {
        found = match (step, found?) {
            (Step::Member(name), Value::Object(mut members)) => members.remove(name),
            (Step::Item, Value::Array(mut items)) => items.pop(),
            _ => None,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::crd::type_schema;
    use crate::default;
    use serde_json::{Value, json};

    /// A schema of a resource that has this property.
    fn with(property: &Value) -> Value {
        json!({"type": "object", "properties": {"x": property}})
    }
    /// An object that has got its defaults.
    fn filled(property: &Value, mut object: Value) -> Value {
        default::apply(&type_schema(&with(property)), &mut object).unwrap();
        object
    }

    #[test]
    fn defaults_that_are_no_fields_of_metadata_are_not_filled() {
        let text = |default: &str| json!({"type": "string", "default": default});
        let metadata = json!({"name": "a", "strange": "b"});
        let resource = |extra: Value| {
            let mut schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true});
            schema.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            schema
        };
        let whole = json!({"kind": "K", "metadata": metadata, "strange": "c"});
        let kept = json!({"kind": "K", "metadata": {"name": "a"}, "strange": "c"});
        // Of the fields, of the metadata, of the resource, and of what it is in.
        let fields = resource(json!({"properties": {"metadata": {"type": "object",
            "properties": {"name": text("a"), "strange": text("b")}}}}));
        let found = filled(&fields, json!({"x": {"metadata": {}}}));
        assert_eq!(found, json!({"x": {"metadata": {"name": "a"}}}));
        let of_metadata =
            resource(json!({"properties": {"metadata": {"type": "object", "default": metadata}}}));
        assert_eq!(
            filled(&of_metadata, json!({"x": {}})),
            json!({"x": {"metadata": {"name": "a"}}})
        );
        let of_resource = resource(json!({"default": whole}));
        assert_eq!(filled(&of_resource, json!({})), json!({"x": kept}));
        let around = json!({"type": "object", "default": {"y": whole, "l": [whole], "m": {"k": whole}},
            "properties": {
                "y": resource(json!({})),
                "l": {"type": "array", "items": resource(json!({}))},
                "m": {"type": "object", "additionalProperties": resource(json!({}))}}});
        let expected = json!({"x": {"y": kept, "l": [kept], "m": {"k": kept}}});
        assert_eq!(filled(&around, json!({})), expected);
        // Items of a list that is no field.
        let references = |field: &str| {
            json!({"type": "object", "properties": {"ownerReferences": {"type": "array",
                "items": {"type": "object", "properties": {field: text("v1")}}}}})
        };
        let object = || json!({"x": {"metadata": {"ownerReferences": [{}]}}});
        for (field, expected) in
            [("apiVersion", json!({"apiVersion": "v1"})), ("strange", json!({}))]
        {
            let schema = resource(json!({"properties": {"metadata": references(field)}}));
            let found = filled(&schema, object());
            assert_eq!(found["x"]["metadata"]["ownerReferences"][0], expected, "{field}");
        }
    }

    #[test]
    fn metadata_of_what_is_no_resource_has_any_defaults() {
        let plain = json!({"type": "object", "default": {}, "properties": {"metadata": {
            "type": "object", "default": {"strange": "b"}}}});
        assert_eq!(filled(&plain, json!({})), json!({"x": {"metadata": {"strange": "b"}}}));
    }
}
