//! Patches against the bytes of the request.
//!
//! A mutator sees an object through a type. The type may not know every field, and may write fields
//! that were absent (`status: null`). A plain difference between the request and the type's output
//! would remove the unknown fields and report the added ones. So three trees are compared: `raw`,
//! the object in the request; `before`, the object as written by the type; `after`, the object as
//! written after the mutator. The difference between `before` and `after` is the mutator's change,
//! and only that is applied to `raw` ([`overlay`]). The patch is the difference between `raw` and
//! the result ([`between`]).
//!
//! Elements of lists are matched so that unknown fields stay with their element when others are
//! inserted or removed: first equal elements, then elements with the same `name`, and the remaining
//! ones by position.

use json_patch::Patch;
use serde_json::{Map, Value};

/// Limit for the work of matching two lists, in pairs of elements. Beyond it, elements outside the
/// common prefix and suffix are taken as the mutator left them. 65,536 allows 256 changed elements
/// against 256.
const PAIRS_MAX: usize = 65_536;

/// The operations that turn `left` into `right`.
pub(crate) fn between(left: &Value, right: &Value) -> Patch {
    json_patch::diff(left, right)
}

/// Applies the changes from `before` to `after` to `raw`.
pub(crate) fn overlay(raw: &Value, before: &Value, after: Value) -> Value {
    if *before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            Value::Object(overlay_members(raw, before, after))
        }
        // A type that omits elements does not preserve their positions in the request's list.
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() =>
        {
            Value::Array(overlay_elements(raw, before, after))
        }
        (_, _, after) => after,
    }
}

fn overlay_members(
    raw: &Map<String, Value>,
    before: &Map<String, Value>,
    mut after: Map<String, Value>,
) -> Map<String, Value> {
    let mut target = Map::new();
    for (key, raw) in raw {
        match (before.get(key), after.remove(key)) {
            (Some(before), Some(after)) => {
                drop(target.insert(key.clone(), overlay(raw, before, after)))
            }
            // The mutator removed it.
            (Some(_), None) => {}
            // Unknown to the type, or omitted by it when empty, until now.
            (None, Some(after)) => drop(target.insert(key.clone(), after)),
            (None, None) => drop(target.insert(key.clone(), raw.clone())),
        }
    }
    // The remaining members are not in the request: the mutator added them, unless the type always
    // writes them.
    target.extend(after.into_iter().filter(|(key, after)| before.get(key) != Some(after)));
    target
}

fn overlay_elements(raw: &[Value], before: &[Value], after: Vec<Value>) -> Vec<Value> {
    let origins = origins(before, &after);
    after
        .into_iter()
        .zip(origins)
        .map(|(after, origin)| match origin {
            Some(at) => overlay(&raw[at], &before[at], after),
            None => after,
        })
        .collect()
}

/// For each element of `after`, its position in `before`.
fn origins(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let n_first = before.iter().zip(after).take_while(|(before, after)| before == after).count();
    let rest = before[n_first..].iter().rev().zip(after[n_first..].iter().rev());
    let n_last = rest.take_while(|(before, after)| before == after).count();
    let mut origins: Vec<Option<usize>> = (0..n_first).map(Some).collect();
    origins.resize(after.len() - n_last, None);
    origins.extend((before.len() - n_last..before.len()).map(Some));

    let (old, new) = (n_first..before.len() - n_last, n_first..after.len() - n_last);
    if old.len().saturating_mul(new.len()) > PAIRS_MAX {
        return origins;
    }
    let mut is_taken = vec![false; before.len()];
    for rule in [is_equal, has_same_name] {
        for at in new.clone() {
            let is_origin = |b: &usize| !is_taken[*b] && rule(&before[*b], &after[at]);
            if let Some(origin) =
                origins[at].is_none().then(|| old.clone().find(is_origin)).flatten()
            {
                is_taken[origin] = true;
                origins[at] = Some(origin);
            }
        }
    }
    // Changed elements without a name are matched by position.
    for at in new.filter(|at| old.contains(at)) {
        let is_nameless = name_of(&before[at]).is_none() && name_of(&after[at]).is_none();
        if origins[at].is_none() && !is_taken[at] && is_nameless {
            origins[at] = Some(at);
        }
    }
    origins
}

fn is_equal(a: &Value, b: &Value) -> bool {
    a == b
}

fn has_same_name(a: &Value, b: &Value) -> bool {
    name_of(a).is_some_and(|name| name_of(b) == Some(name))
}

/// The member that identifies list elements in most of the API: containers, ports, volumes.
fn name_of(element: &Value) -> Option<&str> {
    element.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    /// A type that knows few fields, and writes one of its own.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Thing {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parts: Vec<Part>,
        #[serde(default)]
        status: Option<u8>,
    }
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Part {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(default)]
        size: u8,
    }

    fn target(raw: &Value, change: impl FnOnce(&mut Thing)) -> Value {
        let mut thing: Thing = serde_json::from_value(raw.clone()).unwrap();
        let before = serde_json::to_value(&thing).unwrap();
        change(&mut thing);
        let target = overlay(raw, &before, serde_json::to_value(&thing).unwrap());
        // The patch always leads to the target.
        let mut patched = raw.clone();
        json_patch::patch(&mut patched, &between(raw, &target)).unwrap();
        assert_eq!(patched, target);
        assert_eq!(serde_json::from_value::<Thing>(target.clone()).unwrap(), thing);
        target
    }

    #[test]
    fn unchanged_object_has_no_patch_whk_6() {
        let raw = json!({"parts": [{"size": 1, "hue": "red"}], "later": {"a": [1.0, null]}});
        assert_eq!(target(&raw, |_| {}), raw);
        assert_eq!(between(&raw, &target(&raw, |_| {})).0, []);
    }

    #[test]
    fn unknown_fields_stay_with_their_elements_whk_6() {
        let raw = json!({"parts": [
            {"name": "a", "size": 1, "hue": "red"}, {"name": "b", "hue": "blue"}, {"name": "c", "size": 3, "hue": "sea"},
        ], "later": 7});
        let part = |name: &str, size| Part { name: Some(name.into()), size };
        let changed = target(&raw, |thing| {
            thing.parts.remove(0);
            thing.parts[0].size = 9;
            thing.parts.insert(0, part("new", 4));
            thing.parts.push(part("last", 5));
        });
        assert_eq!(
            changed,
            json!({"parts": [
                {"name": "new", "size": 4}, {"name": "b", "size": 9, "hue": "blue"},
                {"name": "c", "size": 3, "hue": "sea"}, {"name": "last", "size": 5},
            ], "later": 7})
        );
        let swapped = target(&raw, |thing| thing.parts.swap(0, 2));
        assert_eq!(swapped["parts"][0], json!({"name": "c", "size": 3, "hue": "sea"}));
        let nameless = json!({"parts": [{"size": 1, "hue": "red"}, {"size": 2, "hue": "blue"}]});
        let changed = target(&nameless, |thing| thing.parts[1].size = 9);
        assert_eq!(changed["parts"][1], json!({"size": 9, "hue": "blue"}));
        assert_eq!(target(&raw, |thing| thing.parts.clear()), json!({"later": 7}));
    }

    #[test]
    fn long_lists_are_replaced_as_a_whole() {
        let parts: Vec<Value> = (0..600).map(|n| json!({"size": n % 256, "hue": "red"})).collect();
        let raw = json!({ "parts": parts });
        let changed = target(&raw, |thing| thing.parts.reverse());
        assert_eq!(changed["parts"][0], json!({"size": 599 % 256}));
    }

    fn arb_raw() -> impl Strategy<Value = Value> {
        let part = (prop::option::of("[a-c]"), 0..3_u8, prop::option::of(0..3_u8)).prop_map(
            |(name, size, hue)| {
                let mut part = json!({ "size": size });
                name.into_iter().for_each(|name| part["name"] = name.into());
                hue.into_iter().for_each(|hue| part["hue"] = hue.into());
                part
            },
        );
        (prop::collection::vec(part, 0..5), any::<bool>(), any::<bool>()).prop_map(
            |(parts, has_later, has_status)| {
                let mut raw = json!({ "parts": parts });
                has_later.then(|| raw["later"] = json!({"a": 1}));
                has_status.then(|| raw["status"] = Value::Null);
                raw
            },
        )
    }

    proptest! {
        /// The result, read through the type, is what the mutator made; unknown fields of the
        /// object stay.
        #[test]
        fn result_equals_the_mutators_object(raw in arb_raw(), wanted in arb_raw()) {
            let wanted: Thing = serde_json::from_value(wanted).unwrap();
            let changed = target(&raw, |thing| *thing = wanted);
            prop_assert_eq!(changed.get("later"), raw.get("later"));
        }
    }
}
