//! Roles and bindings.
use super::pod::{list, text};
use serde_json::Value;
use setpoint_object::field;

/// Roles and bindings.
pub(super) fn validate_rbac(object: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
    let kind = text(object, "kind");
    if kind.ends_with("Role") {
        for (i, rule) in list(object, "rules").iter().enumerate() {
            validate_rule(rule, kind == "Role", &field::Path::new("rules").index(i), errors);
        }
        return;
    }
    let path = field::Path::new("roleRef");
    let role = &object["roleRef"];
    if text(role, "apiGroup") != "rbac.authorization.k8s.io" {
        errors.push(field::Error::not_supported(
            path.child("apiGroup"),
            &text(role, "apiGroup").into(),
            &["rbac.authorization.k8s.io"],
        ));
    }
    let kinds: &[&str] =
        if kind == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
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
            "ServiceAccount" if text(subject, "namespace").is_empty() && kind != "RoleBinding" => {
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
fn validate_rule(
    rule: &Value,
    is_namespaced: bool,
    path: &field::Path,
    errors: &mut Vec<field::Error>,
) {
    if list(rule, "verbs").is_empty() {
        errors.push(field::Error::required(
            path.child("verbs"),
            "verbs must contain at least one value",
        ));
    }
    if !list(rule, "nonResourceURLs").is_empty() {
        if is_namespaced {
            errors.push(field::Error::invalid(
                path.child("nonResourceURLs"),
                &rule["nonResourceURLs"],
                "namespaced rules cannot apply to non-resource URLs",
            ));
        }
        if !list(rule, "apiGroups").is_empty() || !list(rule, "resources").is_empty() {
            errors.push(field::Error::invalid(
                path.child("nonResourceURLs"),
                &rule["nonResourceURLs"],
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
        return;
    }
    for (member, message) in [
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ] {
        if list(rule, member).is_empty() {
            errors.push(field::Error::required(path.child(member), message));
        }
    }
}
