//! Roles and ClusterRoles.
use crate::kind::{Kind, NameRule, list, text};
use serde_json::Value;
use setpoint_object::field;

/// Role.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Segment,
    create_on_update: true,
    validate,
    ..Kind::plain("rbac.authorization.k8s.io", "Role")
};

/// ClusterRole.
pub(in crate::kind) static CLUSTER: Kind = Kind {
    names: NameRule::Segment,
    create_on_update: true,
    validate,
    ..Kind::plain("rbac.authorization.k8s.io", "ClusterRole")
};

fn validate(object: &Value, _old: Option<&Value>, errors: &mut field::Errors) {
    let is_namespaced = text(object, "kind") == KIND.kind;
    for (i, rule) in list(object, "rules").iter().enumerate() {
        validate_rule(rule, is_namespaced, &field::Path::new("rules").index(i), errors);
    }
}

fn validate_rule(
    rule: &Value,
    is_namespaced: bool,
    path: &field::Path,
    errors: &mut field::Errors,
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
