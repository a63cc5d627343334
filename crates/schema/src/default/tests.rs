use crate::crd::type_schema;
use serde_json::{Value, json};

fn check(schema: Value, mut value: Value, filled: Value) {
    super::apply(&type_schema(&schema), &mut value).unwrap();
    assert_eq!(value, filled);
}

#[test]
fn defaults_of_items_multiply_within_bounds() {
    let schema = type_schema(&json!({"type": "object", "properties": {"l": {"type": "array",
        "items": {"type": "object", "properties": {"a": {"type": "string", "default": "x".repeat(100_000)}}}}}}));
    let items = |n| json!({"l": vec![json!({}); n]});
    assert_eq!(super::apply(&schema, &mut items(100)), Ok(()));
    assert_eq!(super::apply(&schema, &mut items(1_000)), Err(super::DefaultsTooLarge));
}

#[test]
fn absent_and_null_properties_get_their_default() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "default": "x"},
        "b": {"type": "string", "nullable": true, "default": "y"},
        "c": {"type": "string"},
        "d": {"type": "string", "nullable": true}}}}});
    check(
        schema.clone(),
        json!({"spec": {"a": null, "b": null, "c": null, "d": null}}),
        json!({"spec": {"a": "x", "b": null, "d": null}}),
    );
    check(schema.clone(), json!({"spec": {}}), json!({"spec": {"a": "x", "b": "y"}}));
    check(schema, json!({}), json!({}));
}

#[test]
fn a_default_object_is_filled_in_turn() {
    check(
        json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
            "n": {"type": "integer", "default": 3}}}}}),
        json!({}),
        json!({"spec": {"n": 3}}),
    );
}

#[test]
fn nulls_stay_in_lists_and_leave_maps_unless_a_default_replaces_them() {
    check(
        json!({"type": "object", "properties": {
            "l": {"type": "array", "items": {"type": "string"}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "d"}},
            "n": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
            "t": {"type": "object", "additionalProperties": {"type": "string"}},
            "o": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}},
            "p": {"x-kubernetes-preserve-unknown-fields": true}}}),
        json!({"l": [null], "m": {"k": null}, "n": {"k": null}, "t": {"k": null, "l": "a"}, "o": [{}], "p": null}),
        json!({"l": [null], "m": {"k": "d"}, "n": {"k": null}, "t": {"l": "a"}, "o": [{"a": 1}]}),
    );
}

#[test]
fn embedded_resources_get_the_defaults_of_their_type_and_metadata() {
    let metadata = json!({"type": "object", "default": {"name": "n"}, "properties": {
        "labels": {"type": "object", "default": {"a": "b"}, "additionalProperties": {"type": "string"}}}});
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
        "kind": {"type": "string", "default": "Pod"}, "metadata": metadata}});
    check(
        json!({"type": "object", "properties": {"e": embedded}}),
        json!({"e": {}, "metadata": {}}),
        json!({"e": {"kind": "Pod", "metadata": {"name": "n", "labels": {"a": "b"}}}, "metadata": {}}),
    );
}
