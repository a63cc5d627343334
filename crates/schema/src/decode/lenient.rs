//! Types and metadata of resources in values that nobody can correct any more: stored objects that
//! another program wrote, and defaults of a definition. What is wrong in them is dropped.
use super::conform::object_meta;
use crate::node::{TypeSchema, View};
use serde_json::{Map, Value};

/// Holds `metadata` of a stored custom object to `ObjectMeta`, and type and metadata of the
/// embedded resources in it, as the API server reads them: unknown fields of `metadata` are
/// dropped, and so is each field of it in which anything has a wrong type. An object without a
/// generation has the first one.
pub fn conform_stored(schema: &TypeSchema, object: &mut Value) {
    let Value::Object(members) = object else { return };
    metadata(members);
    if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
        let is_unset = metadata.get("generation").is_none_or(|n| n.as_i64() == Some(0));
        if is_unset {
            metadata.insert("generation".to_owned(), 1.into());
        }
    }
    if schema.has_embedded_resources() {
        embedded(schema.view(), members, true);
    }
}

fn embedded(schema: View<'_>, members: &mut Map<String, Value>, is_root: bool) {
    if schema.embedded_resource {
        type_and_metadata(members);
    }
    for (name, member) in members.iter_mut() {
        let is_metadata = name == "metadata" && (is_root || schema.embedded_resource);
        if let Some(schema) = schema.member(name).filter(|_| !is_metadata) {
            below(schema, member);
        }
    }
}

fn below(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(members) => embedded(schema, members, false),
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| below(schema, item));
            }
        }
        _ => {}
    }
}

/// Drops what is wrong in the type and the metadata of a resource.
pub(crate) fn type_and_metadata(resource: &mut Map<String, Value>) {
    for name in ["apiVersion", "kind"] {
        if resource.get(name).is_some_and(|value| !value.is_string()) {
            resource.remove(name);
        }
    }
    metadata(resource);
}

/// Drops the fields of `metadata` that are unknown, or in which anything has a wrong type.
fn metadata(resource: &mut Map<String, Value>) {
    let fields = match resource.get_mut("metadata") {
        Some(metadata @ Value::Null) => {
            *metadata = Value::Object(Map::new());
            return;
        }
        Some(Value::Object(fields)) => fields,
        // The reference does not serve such an object, and keeps such an embedded one.
        _ => return,
    };
    for (name, value) in std::mem::take(fields) {
        let mut one = Value::Object(Map::from_iter([(name, value)]));
        if object_meta(&mut one, "", &mut Vec::new()).is_ok()
            && let Value::Object(one) = one
        {
            fields.extend(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::conform_stored;
    use crate::crd::type_schema;
    use serde_json::json;

    #[test]
    fn wrong_metadata_of_a_stored_object_is_dropped_by_field() {
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        let schema = type_schema(&json!({"type": "object", "properties": {
            "one": embedded,
            "list": {"type": "array", "items": embedded},
            "map": {"type": "object", "additionalProperties": embedded},
            "plain": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}));
        let wrong = json!({
            "name": "a", "strange": 1, "generation": null,
            "labels": {"is": "not valid"}, "annotations": {"a": 1, "b": "c"},
        });
        let resource = json!({"apiVersion": 1, "kind": "K", "metadata": wrong, "more": 1});
        let mut object = json!({
            "apiVersion": "e.x/v1", "kind": "Foo", "metadata": wrong, "one": resource,
            "list": [resource, 1], "map": {"k": resource}, "plain": resource,
        });
        conform_stored(&schema, &mut object);
        let kept = json!({"kind": "K", "metadata": {"name": "a", "labels": {"is": "not valid"}},
            "more": 1});
        assert_eq!(
            object,
            json!({
                "apiVersion": "e.x/v1", "kind": "Foo",
                "metadata": {"name": "a", "labels": {"is": "not valid"}, "generation": 1},
                "one": kept, "list": [kept, 1], "map": {"k": kept}, "plain": resource,
            })
        );
        let before = object.clone();
        conform_stored(&schema, &mut object);
        assert_eq!(object, before);
    }
}
