//! Old values on update: which one belongs to a new value, and whether it is the same (ratcheting).
use crate::node::{ListType, Str, View};
use serde_json::Value;
use std::collections::HashMap;

/// Whether a value is as it was. A list of type `map` may have another order.
///
/// An object with a member that the definition does not declare counts as changed, as in the
/// reference. So does every whole resource, because its `metadata` has such members.
pub(crate) fn is_unchanged(schema: View<'_>, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let is_same = |(name, new): (&String, &Value)| {
                let values = || schema.node().additional.map(|id| schema.at(id));
                match (schema.declared_property(name).or_else(values), old.get(name)) {
                    (Some(schema), Some(old)) => is_unchanged(schema, new, old),
                    _ => false,
                }
            };
            new.len() == old.len() && new.iter().all(is_same)
        }
        (Value::Array(new), Value::Array(old)) => {
            match (&schema.node().list_type, schema.items()) {
                (list_type @ ListType::Map(keys), Some(schema)) => {
                    let mut old_items = None;
                    let mut is_same = |(new, beside): (&Value, &Value)| {
                        let keys_of_new = identity(keys, new);
                        // Most lists keep their order.
                        let old =
                            match keys_of_new.is_some() && keys_of_new == identity(keys, beside) {
                                true => Some(beside),
                                false => old_items
                                    .get_or_insert_with(|| OldItems::new(list_type, old))
                                    .of(new),
                            };
                        old.is_some_and(|old| is_unchanged(schema, new, old))
                    };
                    new.len() == old.len() && new.iter().zip(old).all(&mut is_same)
                }
                _ => new == old,
            }
        }
        _ => new == old,
    }
}

/// The old elements of a list of type `map`, found by their keys. Those of other lists belong to no
/// new one.
pub(crate) struct OldItems<'v> {
    keys: &'v [Str],
    items: HashMap<Vec<&'v Value>, &'v Value>,
}

impl<'v> OldItems<'v> {
    pub(crate) fn new(list_type: &'v ListType, items: &'v [Value]) -> Self {
        let mut found = Self { keys: &[], items: HashMap::new() };
        if let ListType::Map(keys) = list_type {
            found.keys = keys;
            for item in items {
                if let Some(identity) = identity(keys, item) {
                    found.items.entry(identity).or_insert(item);
                }
            }
        }
        found
    }

    /// The old element with the keys of a new one.
    pub(crate) fn of(&self, item: &Value) -> Option<&'v Value> {
        if self.items.is_empty() {
            return None;
        }
        let keys: Vec<&Value> = identity(self.keys, item)?;
        self.items.get(&keys).copied()
    }
}

/// The keys of an element; none unless all are there and scalars.
fn identity<'v>(keys: &[Str], item: &'v Value) -> Option<Vec<&'v Value>> {
    let is_scalar =
        |value: &&Value| matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
    if keys.is_empty() {
        return None;
    }
    keys.iter().map(|key| item.get(&**key).filter(is_scalar)).collect()
}

#[cfg(test)]
mod tests {
    use super::is_unchanged;
    use crate::crd::type_schema;
    use serde_json::{Value, json};

    fn unchanged(spec: &Value, new: Value, old: Value) -> bool {
        let schema = type_schema(&json!({"type": "object", "properties": {"spec": spec}}));
        let spec = schema.view().property("spec").unwrap();
        assert!(!is_unchanged(schema.view(), &json!({"metadata": {}}), &json!({"metadata": {}})));
        is_unchanged(spec, &new, &old)
    }

    #[test]
    fn only_lists_of_type_map_may_be_in_another_order() {
        let object = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
        let atomic = json!({"type": "array", "items": object});
        let mut map = atomic.clone();
        map["x-kubernetes-list-type"] = json!("map");
        map["x-kubernetes-list-map-keys"] = json!(["k"]);
        let items = |first: i64| json!([{"k": "a", "v": first}, {"k": "b", "v": 2}]);
        let turned = || json!([{"k": "b", "v": 2}, {"k": "a", "v": 1}]);
        assert!(unchanged(&map, items(1), turned()) && unchanged(&map, items(1), items(1)));
        assert!(!unchanged(&map, items(3), turned()) && !unchanged(&map, items(1), json!([])));
        assert!(!unchanged(&map, items(1), json!([{"k": "a", "v": 1}, {"k": "c", "v": 2}])));
        assert!(!unchanged(&atomic, items(1), turned()) && unchanged(&atomic, items(1), items(1)));
    }

    #[test]
    fn what_is_not_declared_counts_as_changed() {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"a": {"type": "integer"}, "m": {"type": "object", "additionalProperties": {"type": "integer"}}}});
        let same = |value: Value| unchanged(&open, value.clone(), value);
        assert!(same(json!({"a": 1, "m": {"x": 1}})) && same(json!({})));
        assert!(!same(json!({"a": 1, "b": 1})));
        assert!(!unchanged(&open, json!({"a": 1}), json!({"a": null})));
    }
}
