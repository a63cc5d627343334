//! Merge patches of statuses.

use serde_json::{Map, Value};

/// The merge patch from one object to another; empty if they are equal.
pub(crate) fn difference(old: &Value, new: &Value) -> Map<String, Value> {
    let (old, new) = (old.as_object(), new.as_object());
    let mut patch = Map::new();
    for (name, value) in new.into_iter().flatten() {
        match old.and_then(|old| old.get(name)) {
            Some(held) if held == value => {}
            Some(held) if held.is_object() && value.is_object() => {
                patch.insert(name.clone(), Value::Object(difference(held, value)));
            }
            _ => _ = patch.insert(name.clone(), value.clone()),
        }
    }
    for name in old.into_iter().flat_map(Map::keys) {
        if new.is_none_or(|new| !new.contains_key(name)) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patch_has_what_differs() {
        for (old, new, patch) in [
            (json!({"a": 1}), json!({"a": 1}), json!({})),
            (json!(null), json!({"a": {}}), json!({"a": {}})),
            (json!({"a": 1, "b": 2}), json!({"b": 3}), json!({"a": null, "b": 3})),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"c": 2}}), json!({"a": {"b": null}})),
            (json!({"a": [1]}), json!({"a": [2]}), json!({"a": [2]})),
        ] {
            assert_eq!(Value::Object(difference(&old, &new)), patch);
        }
    }
}
