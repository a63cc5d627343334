//! Names in the documents: paths, schemas, operations, tags.

use super::row::Kind;
use super::{Dialect, schema};

/// The path of a group: `api`, `apis/apps`.
pub(super) fn root(group: &str) -> String {
    if group.is_empty() { "api".to_owned() } else { format!("apis/{group}") }
}

/// The schema name of a custom kind: group reversed, version, kind (`io.example.v1.Widget`). That
/// of a built-in type gets an end in v2, where both are in one document, as from the reference. A
/// v3 document has the types of `meta/v1` beside the custom kind.
pub(super) fn reversed(kind: &Kind<'_>, dialect: Dialect) -> String {
    let mut parts: Vec<&str> = kind.group.rsplit('.').collect();
    parts.extend([kind.version, kind.kind]);
    let name = parts.join(".");
    let is_beside = dialect == Dialect::V2 || name.starts_with(schema::META);
    match is_beside && setpoint_facts::definition(&name).is_some() {
        true => format!("{name}_v2"),
        false => name,
    }
}

/// `rbac.authorization.k8s.io` → `["rbac", "authorization"]`, the core group → `["core"]`.
fn words(group: &str) -> Vec<&str> {
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    if group.is_empty() { vec!["core"] } else { group.split(['.', '-']).collect() }
}

fn upper_first(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The group and version inside operation ids: `CoreV1`, `RbacAuthorizationV1`.
pub(super) fn in_operation(kind: &Kind<'_>) -> String {
    let group: String = words(kind.group).into_iter().map(upper_first).collect();
    format!("{group}{}", upper_first(kind.version))
}

/// The tag of a group: `core`, `rbacAuthorization`.
pub(super) fn group_tag(group: &str) -> String {
    let mut words = words(group).into_iter();
    let first = words.next().unwrap_or_default().to_owned();
    let rest: String = words.map(upper_first).collect();
    format!("{first}{rest}")
}

/// The tag of a group version: `core_v1`, `rbacAuthorization_v1`.
pub(super) fn tag(kind: &Kind<'_>) -> String {
    format!("{}_{}", group_tag(kind.group), kind.version)
}

/// `binding` → `Binding`, `ephemeralcontainers` → `Ephemeralcontainers`: a subresource inside an
/// operation id.
pub(super) fn subresource(name: &str) -> String {
    upper_first(name)
}
