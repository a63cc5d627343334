//! RoleBindings and ClusterRoleBindings.
use crate::kind::{Fill, Kind, Members, NameRule, list, text};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// RoleBinding.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Segment,
    create_on_update: true,
    default,
    validate,
    cells: Some(cells),
    ..Kind::plain("rbac.authorization.k8s.io", "RoleBinding")
};

/// ClusterRoleBinding.
pub(in crate::kind) static CLUSTER: Kind = Kind {
    names: NameRule::Segment,
    create_on_update: true,
    default,
    validate,
    cells: Some(cells),
    ..Kind::plain("rbac.authorization.k8s.io", "ClusterRoleBinding")
};

/// The group of roles, users and groups.
const RBAC: &str = "rbac.authorization.k8s.io";

/// RoleBinding, ClusterRoleBinding.
fn default(object: &mut Members, _version: &str) {
    if let Some(role) = object.object("roleRef")
        && role.text("apiGroup").is_empty()
    {
        role.insert("apiGroup".to_owned(), Value::from(RBAC));
    }
    for subject in object.each("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.absent("apiGroup", RBAC);
        }
    }
}

fn validate(object: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    let is_namespaced = text(object, "kind") == KIND.kind;
    let path = field::Path::new("roleRef");
    let role = &object["roleRef"];
    if text(role, "apiGroup") != "rbac.authorization.k8s.io" {
        errors.push(field::Error::not_supported(
            path.child("apiGroup"),
            &text(role, "apiGroup").into(),
            &["rbac.authorization.k8s.io"],
        ));
    }
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        errors.push(field::Error::not_supported(
            path.child("kind"),
            &text(role, "kind").into(),
            kinds,
        ));
    }
    if text(role, "name").is_empty() {
        errors.push(field::Error::required(path.child("name"), ""));
    }
    for (i, subject) in list(object, "subjects").iter().enumerate() {
        let path = field::Path::new("subjects").index(i);
        if text(subject, "name").is_empty() {
            errors.push(field::Error::required(path.child("name"), ""));
        }
        match text(subject, "kind") {
            "ServiceAccount" if text(subject, "namespace").is_empty() && !is_namespaced => {
                errors.push(field::Error::required(path.child("namespace"), ""));
            }
            "ServiceAccount" | "User" | "Group" => {}
            other => errors.push(field::Error::not_supported(
                path.child("kind"),
                &other.into(),
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
    if old.is_some_and(|old| old["roleRef"] != object["roleRef"]) {
        errors.push(field::Error::invalid(path, role, "cannot change roleRef"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let names: Vec<String> = cell::list(object, "subjects")
            .iter()
            .filter(|subject| cell::text(subject, "kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", cell::text(subject, "namespace"), cell::text(subject, "name"))
                }
                _ => cell::text(subject, "name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    vec![
        cell::name(object),
        format!("{}/{}", cell::text(object, "roleRef.kind"), cell::text(object, "roleRef.name"))
            .into(),
        cell::age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
