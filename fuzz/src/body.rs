//! Bodies in JSON and YAML, held to schemas.
use crate::types;
use serde_json::Value;
use setpoint_object::encode::to_bytes;
use setpoint_schema::decode::{Format, conform, conform_metadata, parse};
use setpoint_schema::{builtin, default, prune, validate};

/// Any bytes are refused or become a tree, which has the same text after another round: a whole
/// float is written as an integer, and is one then, as in Go. A tree that is a Pod or a
/// definition is canonical: decoding it again changes nothing. As a custom resource it is pruned
/// and filled in at once, and validated.
pub fn check(input: &[u8]) {
    for format in [Format::Json, Format::Yaml] {
        let Ok(decoded) = parse(input, format) else { continue };
        let text = to_bytes(&decoded.value);
        let again = parse(&text, Format::Json).unwrap();
        assert_eq!(to_bytes(&again.value), text);
        for (group, kind) in [("", "Pod"), ("apiextensions.k8s.io", "CustomResourceDefinition")] {
            built_in(group, kind, decoded.value.clone());
        }
        custom(decoded.value);
    }
}

fn built_in(group: &str, kind: &str, mut object: Value) {
    let schema = builtin::type_schema(group, "v1", kind).unwrap();
    let mut problems = Vec::new();
    if conform(&schema, kind, &mut object, &mut problems).is_err() {
        return;
    }
    let mut again = object.clone();
    problems.clear();
    conform(&schema, kind, &mut again, &mut problems).unwrap();
    assert_eq!((&again, problems), (&object, Vec::new()));
    default::declared(&schema, &mut object);
}

fn custom(mut object: Value) {
    let schema = types::custom();
    if conform_metadata(&mut object, &mut Vec::new()).is_err() {
        return;
    }
    prune::prune(&schema, &mut object);
    if default::apply(&schema, &mut object).is_ok() {
        assert_eq!(prune::prune(&schema, &mut object), Vec::<String>::new());
    }
    let _ = validate::validate(&schema, &object, Some(&object));
}
