//! What Workloads and PodGroups share: how the pods of a group are scheduled.
use crate::kind::at::{At, alike};
use serde_json::Value;
use setpoint_object::name;
use std::collections::HashSet;

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

/// The domains of topology to which a group may be limited, claims of a group, and bounds of its
/// priority.
const TOPOLOGIES_MAX: usize = 1;
const CLAIMS_MAX: usize = 4;
const PRIORITY_MAX: i64 = 1_000_000_000;

/// The members of a new group, or of a template of one, that belong to features. Those of features
/// that are off have been dropped.
pub(super) fn featured(group: &At<'_, '_>) {
    let topologies = group.get("schedulingConstraints.topology");
    if topologies.at_most(TOPOLOGIES_MAX) {
        for topology in topologies.items() {
            topology.get("key").named(name::qualified_name);
        }
    }
    let claims = group.get("resourceClaims");
    if claims.at_most(CLAIMS_MAX) {
        unique(&claims, |claim| claim.duplicate());
        for claim in claims.items() {
            union(&claim, &["resourceClaimName", "resourceClaimTemplateName"]);
            claim.get("name").named(name::short_name);
            claim.get("resourceClaimName").formed(name::long_name);
            claim.get("resourceClaimTemplateName").formed(name::long_name);
        }
    }
    group.get("disruptionMode").one_of_if_set(&["Pod", "PodGroup"]);
    group.get("priorityClassName").named_if_set(name::long_name);
    let priority = group.get("priority");
    if priority.int().is_some_and(|number| number > PRIORITY_MAX) {
        priority.invalid(format!("must be less than or equal to {PRIORITY_MAX}"));
    }
}

/// The items of a list have names of their own.
pub(super) fn unique(items: &At<'_, '_>, report: impl Fn(&At<'_, '_>)) {
    let mut seen = HashSet::new();
    for item in items.items() {
        if !seen.insert(item.text_of("name")) {
            report(&item);
        }
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
    alike(a, b, &|a, b| a == b || is_empty(a) && is_empty(b))
}
