//! Labels of nodes that have newer names: what selects by them causes a warning.
use crate::kind::{list, text};
use serde_json::Value;
use setpoint_object::{field, name};

/// Keys of labels, with the API's words.
const DEPRECATED: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#),
    ("beta.kubernetes.io/os", r#"deprecated since v1.14; use "kubernetes.io/os" instead"#),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", r#"use "node-role.kubernetes.io/control-plane" instead"#),
];

/// What is wrong with the key of a label; `None`: it is not deprecated.
pub(super) fn deprecation(key: &str) -> Option<&'static str> {
    DEPRECATED.iter().find(|(known, _)| *known == key).map(|(_, message)| *message)
}

/// Warnings for the term of a selector of nodes. `with_values`: also for values that are no values
/// of labels.
pub(super) fn of_term(term: &Value, with_values: bool, path: &field::Path) -> Vec<String> {
    let mut all = Vec::new();
    for (i, requirement) in list(term, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(i);
        all.extend(of_key(text(requirement, "key"), &path));
        if !with_values {
            continue;
        }
        for (j, value) in list(requirement, "values").iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            let path = path.child("values").index(j);
            let faults = name::label_value(value).into_iter();
            all.extend(faults.map(|fault| format!("{path}: {value} is invalid, {fault}")));
        }
    }
    all
}

/// Warnings for a label selector that selects nodes.
pub(super) fn of_selector(selector: &Value, path: &field::Path) -> Vec<String> {
    let mut all = Vec::new();
    for (i, requirement) in list(selector, "matchExpressions").iter().enumerate() {
        all.extend(of_key(text(requirement, "key"), &path.child("matchExpressions").index(i)));
    }
    for key in selector["matchLabels"].as_object().into_iter().flatten().map(|(key, _)| key) {
        let warning = |message| format!("{}: {message}", path.child("matchLabels").child(key));
        all.extend(deprecation(key).map(warning));
    }
    all
}

fn of_key(key: &str, path: &field::Path) -> Option<String> {
    deprecation(key).map(|message| format!("{}: {key} is {message}", path.child("key")))
}
