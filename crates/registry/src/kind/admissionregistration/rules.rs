//! Which requests a webhook or a policy wants: rules and match conditions.
use super::expression::{Environment, Wanted};
use crate::kind::{list, text, validate_label_selector};
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::name;
use std::collections::BTreeSet;

/// Maximum number of match conditions of a webhook or a policy.
const CONDITIONS_MAX: usize = 64;

/// A field that has one of some values; absent ones have a default.
pub(super) fn enumeration(
    value: &Value,
    field: &str,
    known: &[&str],
    path: &Path,
    errors: &mut Errors,
) {
    if let Some(given) = value.get(field).and_then(Value::as_str)
        && !known.contains(&given)
    {
        errors.push(Error::not_supported(path.child(field), &given.into(), known));
    }
}

pub(super) fn validate_rule(rule: &Value, path: &Path, errors: &mut Errors) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    wildcard(rule, "operations", "operations", path, errors);
    for (i, operation) in list(rule, "operations").iter().enumerate() {
        if !OPERATIONS.iter().any(|known| operation == known) {
            let path = path.child("operations").index(i);
            errors.push(Error::not_supported(path, operation, &OPERATIONS));
        }
    }
    wildcard(rule, "apiGroups", "API groups", path, errors);
    wildcard(rule, "apiVersions", "API versions", path, errors);
    for (i, version) in list(rule, "apiVersions").iter().enumerate() {
        if version == "" {
            errors.push(Error::required(path.child("apiVersions").index(i), ""));
        }
    }
    resources(list(rule, "resources"), &path.child("resources"), errors);
    enumeration(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

/// A list that is not empty, and has `*` alone or not at all.
fn wildcard(rule: &Value, field: &str, shown: &str, path: &Path, errors: &mut Errors) {
    let given = list(rule, field);
    if given.is_empty() {
        errors.push(Error::required(path.child(field), ""));
    } else if given.len() > 1 && given.iter().any(|value| value == "*") {
        let detail = format!("if '*' is present, must not specify other {shown}");
        errors.push(Error::invalid(path.child(field), &given.into(), detail));
    }
}

fn resources(given: &[Value], path: &Path, errors: &mut Errors) {
    if given.is_empty() {
        errors.push(Error::required(path.clone(), ""));
    }
    let (mut all_of, mut on_all) = (BTreeSet::new(), BTreeSet::new());
    for (i, value) in given.iter().enumerate() {
        let shown = value.as_str().unwrap_or_default();
        let path = path.index(i);
        if shown.is_empty() {
            errors.push(Error::required(path, ""));
            continue;
        }
        let Some((resource, subresource)) = shown.split_once('/') else { continue };
        let mut refuse = |covered_by: String| {
            let detail = format!("if '{covered_by}' is present, must not specify {shown}");
            errors.push(Error::invalid(path.clone(), value, detail));
        };
        if all_of.contains(resource) {
            refuse(format!("{resource}/*"));
        }
        if on_all.contains(subresource) {
            refuse(format!("*/{subresource}"));
        }
        if subresource == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            on_all.insert(subresource);
        }
    }
    let has = |wanted: &str| given.iter().any(|value| value == wanted);
    if given.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(Error::invalid(path.clone(), &given.into(), detail));
    }
    // The API looks at the last one without a subresource only.
    let mut texts = given.iter().filter_map(Value::as_str);
    let last = texts.rfind(|text| !text.is_empty() && !text.contains('/'));
    if has("*") && last != Some("*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(Error::invalid(path.clone(), &given.into(), detail));
    }
}

/// Match conditions. `environment`: what they may refer to.
pub(super) fn conditions(
    given: &[Value],
    environment: &Environment,
    path: &Path,
    errors: &mut Errors,
) {
    if given.len() > CONDITIONS_MAX {
        errors.push(Error::too_many(path.clone(), given.len(), CONDITIONS_MAX));
    }
    let mut names = BTreeSet::new();
    // The others are not compiled: the write is refused anyway.
    for (i, condition) in given.iter().take(CONDITIONS_MAX).enumerate() {
        let path = path.index(i);
        // The API compiles and shows it without the space around it.
        let (name, expression) = (text(condition, "name"), text(condition, "expression").trim());
        if expression.is_empty() {
            errors.push(Error::required(path.child("expression"), ""));
        } else if let Err(fault) = environment.compile(expression, Wanted::Bool) {
            errors.push(fault.of_field(path.child("expression"), &expression.into()));
        }
        if name.is_empty() {
            errors.push(Error::required(path.child("name"), ""));
            continue;
        }
        for fault in name::qualified_name(name) {
            errors.push(Error::invalid(path.child("name"), &name.into(), fault));
        }
        if !names.insert(name) {
            errors.push(Error::duplicate(path.child("name"), &name.into()));
        }
    }
}

/// The operations of what a mutating policy or its binding matches: nothing to delete can be
/// changed. The API's path has no indices.
pub(super) fn mutable_operations(resources: &Value, path: &Path, errors: &mut Errors) {
    const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    for rule in list(resources, "resourceRules") {
        let given = list(rule, "operations").iter();
        for operation in given.filter(|given| !OPERATIONS.iter().any(|known| given == known)) {
            let path = path.child("resourceRules.operations");
            errors.push(Error::not_supported(path, operation, &OPERATIONS));
        }
    }
}

/// `matchConstraints` of a policy, `matchResources` of a binding.
pub(super) fn match_resources(resources: &Value, path: &Path, errors: &mut Errors) {
    enumeration(resources, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    for selector in ["namespaceSelector", "objectSelector"] {
        if let Some(value) = resources.get(selector) {
            validate_label_selector(value, &path.child(selector), errors);
        }
    }
    for rules in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in list(resources, rules).iter().enumerate() {
            let path = path.child(rules).index(i);
            let mut names = BTreeSet::new();
            for (i, name) in list(rule, "resourceNames").iter().enumerate() {
                let path = path.child("resourceNames").index(i);
                for fault in name::path_segment(name.as_str().unwrap_or_default()) {
                    errors.push(Error::invalid(path.clone(), name, fault));
                }
                if !names.insert(name.as_str()) {
                    errors.push(Error::duplicate(path, name));
                }
            }
            validate_rule(rule, &path, errors);
        }
    }
}
