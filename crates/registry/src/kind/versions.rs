//! Conversions between versions of a kind.
use super::{Convert, Members};
use serde_json::Value;

/// Between versions of one group that have the same members.
pub(super) const SAME_MEMBERS: Convert = |_, from, to| group_of(from) == group_of(to);

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Between `v1beta1` of a group, whose members differ, and its other versions, which all have the
/// members of `v1`. `false`: the versions are of two groups.
pub(super) fn with_v1beta1(
    object: &mut Value,
    (from, to): (&str, &str),
    to_v1: fn(&mut Members),
    to_v1beta1: fn(&mut Members),
) -> bool {
    let is_v1beta1 = |api_version: &str| api_version.ends_with("/v1beta1");
    if let Some(members) = object.as_object_mut() {
        match (is_v1beta1(from), is_v1beta1(to)) {
            (true, false) => to_v1(members),
            (false, true) => to_v1beta1(members),
            _ => {}
        }
    }
    group_of(from) == group_of(to)
}

/// Moves members of an object into a new object in its member `into`, if it has any of them.
pub(super) fn nest(object: &mut Members, names: &[&str], into: &str) {
    let taken: Members = names.iter().filter_map(|name| object.remove_entry(*name)).collect();
    if !taken.is_empty() {
        object.insert(into.to_owned(), Value::Object(taken));
    }
}

/// Moves the members of an object's member `from` into the object.
pub(super) fn flatten(object: &mut Members, from: &str) {
    if let Some(Value::Object(members)) = object.remove(from) {
        object.extend(members);
    }
}
