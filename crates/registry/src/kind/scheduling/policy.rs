//! What Workloads and PodGroups share: how the pods of a group are scheduled.
use crate::kind::at::At;
use serde_json::Value;

/// The ways of scheduling, of which a policy has one.
const POLICIES: [&str; 2] = ["basic", "gang"];

/// Exactly one of some members is set.
pub(super) fn union(at: &At<'_, '_>, members: &[&str]) {
    let set: Vec<&str> = members.iter().copied().filter(|member| at.has(member)).collect();
    if set.len() == 1 {
        return;
    }
    let all: Vec<String> = members.iter().map(|member| format!("`{member}`")).collect();
    let all = all.join(", ");
    match set.is_empty() {
        true => at.invalid_union(format!("must specify one of: {all}")),
        false => {
            let shown = format!("{{{}}}", set.join(", "));
            at.invalid_as(&shown.into(), format!("must specify exactly one of: {all}"));
        }
    }
}

/// A scheduling policy.
pub(super) fn policy(at: &At<'_, '_>) {
    union(at, &POLICIES);
    let Some(gang) = at.given("gang") else { return };
    let count = gang.get("minCount");
    match count.int().unwrap_or(0) {
        0 => count.required(""),
        number if number < 1 => count.invalid("must be greater than or equal to 1"),
        _ => {}
    }
}

/// Reports a change. The API does not show the new value.
pub(super) fn immutable(at: &At<'_, '_>, old: &Value) {
    if !is_same(at.value, old) {
        at.invalid_as(&Value::Null, "field is immutable");
    }
}

/// Whether two values are the same. A missing list or text is as good as an empty one; a missing
/// object is not.
pub(super) fn is_same(a: &Value, b: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names = a.keys().chain(b.keys());
            names.all(|name| {
                let [a, b] = [a, b].map(|members| members.get(name).unwrap_or(&Value::Null));
                is_same(a, b)
            })
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        _ => a == b || is_empty(a) && is_empty(b),
    }
}
