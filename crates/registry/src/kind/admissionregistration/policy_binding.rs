//! Rules of bindings of admission policies, validating and mutating (spec: admission §5, §6).
use super::rules::{match_resources, mutable_operations};
use crate::kind::{list, one_of, text, validate_label_selector};
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::name;
use std::collections::BTreeSet;

/// ValidatingAdmissionPolicyBinding.
pub(super) fn validating(object: &Value, errors: &mut Errors) {
    common(object, errors);
    actions(&object["spec"], &Path::new("spec").child("validationActions"), errors);
}

/// MutatingAdmissionPolicyBinding.
pub(super) fn mutating(object: &Value, errors: &mut Errors) {
    common(object, errors);
    let path = Path::new("spec").child("matchResources");
    mutable_operations(&object["spec"]["matchResources"], &path, errors);
}

/// The fields that both have.
fn common(object: &Value, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let policy = text(spec, "policyName");
    if policy.is_empty() {
        errors.push(Error::required(path.child("policyName"), ""));
    } else {
        for fault in name::dns1123_subdomain(policy) {
            errors.push(Error::invalid(path.child("policyName"), &policy.into(), fault));
        }
    }
    if spec.get("paramRef").is_some_and(Value::is_object) {
        param_ref(&spec["paramRef"], &path.child("paramRef"), errors);
    }
    if spec.get("matchResources").is_some_and(Value::is_object) {
        match_resources(&spec["matchResources"], &path.child("matchResources"), errors);
    }
}

fn param_ref(reference: &Value, path: &Path, errors: &mut Errors) {
    let name = text(reference, "name");
    let has_selector = reference.get("selector").is_some_and(Value::is_object);
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        for fault in name::path_segment(name) {
            errors.push(Error::invalid(path.child("name"), &name.into(), fault));
        }
        if has_selector {
            errors.push(Error::forbidden(path.child("name"), exclusive));
        }
    }
    if has_selector {
        validate_label_selector(&reference["selector"], &path.child("selector"), errors);
        if !name.is_empty() {
            errors.push(Error::forbidden(path.child("selector"), exclusive));
        }
    } else if name.is_empty() {
        let detail = "one of name or selector must be specified";
        errors.push(Error::required(path.clone(), detail));
    }
    one_of(reference, "parameterNotFoundAction", &["Deny", "Allow"], path, errors);
}

fn actions(spec: &Value, path: &Path, errors: &mut Errors) {
    const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
    let mut seen = BTreeSet::new();
    for (i, action) in list(spec, "validationActions").iter().enumerate() {
        let shown = action.as_str().unwrap_or_default();
        if !ACTIONS.contains(&shown) {
            errors.push(Error::not_supported(path.index(i), action, &ACTIONS));
        }
        if !seen.insert(shown) {
            errors.push(Error::duplicate(path.index(i), action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure \
                      information in the API response and headers serves no purpose)";
        errors.push(Error::invalid(path.clone(), &spec["validationActions"], detail));
    }
    if seen.is_empty() {
        let detail = "at least one validation action is required";
        errors.push(Error::required(path.clone(), detail));
    }
}
