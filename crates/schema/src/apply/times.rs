//! Times of entries, where nothing else would change.

use super::managed;
use super::owners::Owners;
use serde_json::Value;
use setpoint_object::members::{self, Member};
use std::collections::HashSet;
use std::hash::Hash;

/// Settles timestamps: when nothing but managedFields' times would change, the old entries (and so
/// the old bytes) stay.
///
/// `metadata.resourceVersion` is not looked at: a write that changes nothing else is none.
pub fn settle_times(old: Option<&Value>, new: &mut Value) {
    let Some(old) = old else { return };
    let (Some(before), Some(now)) = (managed::of(old), managed::of(new)) else { return };
    // Most writes change the content, which shows sooner than whether the entries are the same.
    if !same_content(old, new) || before == now || !are_trees_same(before, now) {
        return;
    }
    let before = before.clone();
    managed::put(new, Some(before));
}

/// [`settle_times`] of objects whose managedFields are beside them: those of `new`.
pub fn settle_times_apart<'a>(
    (old, before): (&Value, Option<Owners<'a>>),
    (new, now): (&Value, Option<Owners<'a>>),
) -> Option<Owners<'a>> {
    let is_same = before.as_ref().zip(now.as_ref()).is_some_and(|(before, now)| {
        same_content(old, new) && are_texts_same(before.as_str(), now.as_str())
    });
    if is_same { before } else { now }
}

/// Whether two lists of entries differ in nothing but their times, and their order, which depends
/// on the times.
fn are_trees_same(a: &Value, b: &Value) -> bool {
    fn untimed(entry: &Value) -> Option<impl Iterator<Item = (&String, &Value)>> {
        Some(entry.as_object()?.iter().filter(|(name, _)| *name != "time"))
    }
    let (Some(a), Some(b)) = (a.as_array(), b.as_array()) else { return false };
    are_same(a, b, untimed)
}

/// [`are_trees_same`] of texts.
fn are_texts_same(a: &str, b: &str) -> bool {
    fn untimed<'e>(entry: &&'e str) -> Option<impl Iterator<Item = (&'e str, &'e str)> + use<'e>> {
        let entry = *entry;
        let members = members::of(entry.as_bytes());
        let members = members.map(move |Member { name, value }| (&entry[name], &entry[value]));
        Some(members.filter(|(name, _)| *name != "time"))
    }
    fn entries(list: &str) -> Vec<&str> {
        members::elements(list.as_bytes()).map(|entry| &list[entry]).collect()
    }
    if a == b {
        return true;
    }
    if are_same(&entries(a), &entries(b), untimed) {
        return true;
    }
    // One of them may have been written by another program.
    let tree = |list| serde_json::from_str(list).unwrap_or_default();
    are_trees_same(&tree(a), &tree(b))
}

/// Whether two lists have entries with the same members, in any order.
fn are_same<'e, E, M: Eq + Hash, I: Iterator<Item = M>>(
    a: &'e [E],
    b: &'e [E],
    untimed: impl Fn(&'e E) -> Option<I>,
) -> bool {
    if a.len() != b.len() {
        return false;
    }
    // Most often the order is the same too.
    let is_same = |(a, b)| untimed(a).zip(untimed(b)).is_some_and(|(a, b)| a.eq(b));
    if a.iter().zip(b).all(is_same) {
        return true;
    }
    let members = |entry| Some(untimed(entry)?.collect::<Vec<_>>());
    let Some(others) = b.iter().map(members).collect::<Option<HashSet<_>>>() else { return false };
    a.iter().all(|entry| members(entry).is_some_and(|entry| others.contains(&entry)))
}

/// Whether two objects differ in nothing but managedFields and resourceVersion.
fn same_content(a: &Value, b: &Value) -> bool {
    const ASIDE: [&str; 2] = ["managedFields", "resourceVersion"];
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let same_metadata = |a: &Value, b: &Value| match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => {
            let members = |map: &serde_json::Map<String, Value>| {
                map.keys().filter(|name| !ASIDE.contains(&name.as_str())).count()
            };
            members(a) == members(b)
                && a.iter().all(|(name, value)| {
                    ASIDE.contains(&name.as_str()) || b.get(name) == Some(value)
                })
        }
        _ => a == b,
    };
    a.len() == b.len()
        // `status` and `spec` change most often.
        && a.iter().rev().all(|(name, value)| {
            b.get(name).is_some_and(|other| {
                if name == "metadata" { same_metadata(value, other) } else { value == other }
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = String> {
        let managers = prop::sample::select(vec!["a", "b"]);
        let times = prop::sample::select(vec!["", r#","time":"1""#, r#","time":"2""#]);
        let fields = prop::sample::select(vec!["f:time", "f:a"]);
        (managers, times, fields).prop_map(|(manager, time, fields)| {
            format!(r#"{{"manager":"{manager}"{time},"fieldsV1":{{"{fields}":{{}}}}}}"#)
        })
    }

    proptest! {
        #[test]
        fn texts_are_compared_as_trees_are(
            a in prop::collection::vec(entry(), 0..4),
            b in prop::collection::vec(entry(), 0..4),
        ) {
            let [a, b] = [a, b].map(|entries| format!("[{}]", entries.join(",")));
            let [of_a, of_b] = [&a, &b].map(|list| serde_json::from_str(list).unwrap());
            prop_assert_eq!(are_texts_same(&a, &b), are_trees_same(&of_a, &of_b), "{} {}", a, b);
        }
    }

    #[test]
    fn the_form_of_a_text_does_not_count() {
        let (a, b) =
            (r#"[{"manager":"a","time":"1"}]"#, r#"[{ "time": "2", "manager": "\u0061" }]"#);
        assert!(are_texts_same(a, b));
    }
}
