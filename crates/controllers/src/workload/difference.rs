//! Merge patches of statuses.

use serde::Serialize;
use serde_json::{Map, Value, json};

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

/// A merge patch that replaces the members that this program writes: members that are zero or
/// empty are removed, as Go's `omitempty` does, except those of `kept`.
pub(crate) fn replacement(new: &impl Serialize, kept: &[&str]) -> Value {
    let mut body = json!(new);
    for (name, value) in body.as_object_mut().into_iter().flatten() {
        let is_empty = *value == 0 || *value == "" || value.as_array().is_some_and(Vec::is_empty);
        if is_empty && !kept.contains(&&**name) {
            *value = Value::Null;
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_replacement_removes_what_is_empty_unless_it_is_kept() {
        let new = json!({"a": 0, "b": 0, "c": "", "d": [], "e": null, "f": 1, "g": false});
        let patch = json!({"a": 0, "b": null, "c": null, "d": null, "e": null, "f": 1, "g": false});
        assert_eq!(replacement(&new, &["a"]), patch);
    }
}
