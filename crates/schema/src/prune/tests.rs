use crate::crd::type_schema;
use serde_json::{Value, json};

/// Prunes `value` by `schema` and shows what is left and what went.
fn check(schema: Value, mut value: Value, left: Value, removed: &[&str]) {
    let paths = super::prune(&type_schema(&schema), &mut value);
    assert_eq!(value, left);
    assert_eq!(paths, removed);
}

#[test]
fn undeclared_fields_go_and_are_reported_in_path_order() {
    check(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "l": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}}),
        json!({"apiVersion": "v1", "kind": "K", "metadata": {"zz": 1}, "a": 1, "spec": {"b": 1, "l": [{"a": "x", "u": 1}]}}),
        json!({"apiVersion": "v1", "kind": "K", "metadata": {"zz": 1}, "spec": {"l": [{"a": "x"}]}}),
        &["a", "spec.b", "spec.l[0].u"],
    );
}

#[test]
fn preserve_unknown_fields_keeps_all_but_prunes_declared_ones() {
    check(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}),
        json!({"x": {"y": [{"z": 1}]}, "spec": {"a": "1", "b": 2}}),
        json!({"x": {"y": [{"z": 1}]}, "spec": {"a": "1"}}),
        &["spec.b"],
    );
}

#[test]
fn a_list_that_preserves_unknown_fields_keeps_those_of_its_items() {
    let item = json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "string"}}}}});
    let list = |items| json!({"type": "array", "items": items});
    let mut preserved = list(list(item));
    preserved["x-kubernetes-preserve-unknown-fields"] = json!(true);
    check(
        json!({"type": "object", "properties": {"l": preserved}}),
        json!({"l": [[{"a": {"b": "x", "c": 1}, "u": {"v": 1}}]]}),
        json!({"l": [[{"a": {"b": "x"}, "u": {"v": 1}}]]}),
        &["l[0][0].a.c"],
    );
}

#[test]
fn additional_properties_true_keeps_direct_keys_only() {
    check(
        json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": true}}}),
        json!({"m": {"a": 1, "b": {"c": 1}, "d": [{"e": 1}]}}),
        json!({"m": {"a": 1, "b": {}, "d": [{}]}}),
        &["m.b.c", "m.d[0].e"],
    );
    check(
        json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": true,
            "x-kubernetes-preserve-unknown-fields": true}}}),
        json!({"m": {"a": 1, "b": {"c": 1}}}),
        json!({"m": {"a": 1, "b": {}}}),
        &["m.b.c"],
    );
    check(
        json!({"type": "object", "properties": {"m": {"type": "object",
            "additionalProperties": {"type": "object", "properties": {"c": {"type": "integer"}}}}}}),
        json!({"m": {"k": {"c": 1, "x": 2}}}),
        json!({"m": {"k": {"c": 1}}}),
        &["m.k.x"],
    );
}

/// They are refused, not dropped.
#[test]
fn additional_properties_false_keeps_direct_keys_only() {
    check(
        json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": false}}}),
        json!({"m": {"a": 1, "b": {"c": 1}}}),
        json!({"m": {"a": 1, "b": {}}}),
        &["m.b.c"],
    );
}

#[test]
fn embedded_resources_keep_type_and_metadata() {
    check(
        json!({"type": "object", "properties": {"emb": {"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object"}}}}}),
        json!({"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}, "spec": {"a": 1}, "status": {}}}),
        json!({"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}, "spec": {}}}),
        &["emb.spec.a", "emb.status"],
    );
}
