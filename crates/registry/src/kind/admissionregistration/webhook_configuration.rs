//! Webhook configurations, validating and mutating (spec: admission §4).
use super::expression::Environment;
use super::rules::{conditions, enumeration, validate_rule};
use super::{name_warnings, refuse_reserved};
use crate::kind::{
    Fill, FormerVersion, Kind, Members, MetadataCheck, MetadataChecks, list, text,
    validate_label_selector,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::collections::BTreeSet;

const RULES: &str = "names, rules, selectors, clients, side effects, versions, conditions";

/// Versions of AdmissionReview.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// What servers before Kubernetes 1.22 stored.
const V1BETA1: FormerVersion = FormerVersion {
    convert: |object| {
        if let Value::Object(members) = object {
            former_webhooks(members);
        }
    },
    ..FormerVersion::retired("v1beta1")
};

/// ValidatingWebhookConfiguration.
pub(in crate::kind) static VALIDATING: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
    qualified_finalizers: false,
    unconditional_update: false,
    formers: &[V1BETA1],
    default: |object, _| webhooks(object, false),
    validate: |object, old, errors| {
        validating(object, errors);
        refuse_reserved(object, old, errors);
    },
    // Conditions in CEL are compiled.
    validates_slowly: true,
    warnings: name_warnings,
    update_warnings: |hooks, _| name_warnings(hooks),
    cells: Some(cells),
    rules: RULES,
    ..Kind::plain("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")
};

/// MutatingWebhookConfiguration.
pub(in crate::kind) static MUTATING: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
    qualified_finalizers: false,
    unconditional_update: false,
    formers: &[V1BETA1],
    default: |object, _| webhooks(object, true),
    validate: |object, old, errors| {
        mutating(object, errors);
        refuse_reserved(object, old, errors);
    },
    validates_slowly: true,
    warnings: name_warnings,
    update_warnings: |hooks, _| name_warnings(hooks),
    cells: Some(cells),
    rules: RULES,
    ..Kind::plain("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
};

/// The defaults of `v1beta1` that are others in `v1`.
fn former_webhooks(object: &mut Members) {
    for webhook in object.each("webhooks") {
        webhook.absent("failurePolicy", "Ignore");
        webhook.absent("matchPolicy", "Exact");
        webhook.absent("sideEffects", "Unknown");
        webhook.absent("timeoutSeconds", 30);
        webhook.absent("admissionReviewVersions", json!(["v1beta1"]));
    }
}

/// Webhook configurations.
fn webhooks(object: &mut Members, mutating: bool) {
    for webhook in object.each("webhooks") {
        webhook.absent("failurePolicy", "Fail");
        webhook.absent("matchPolicy", "Equivalent");
        webhook.absent("namespaceSelector", json!({}));
        webhook.absent("objectSelector", json!({}));
        webhook.absent("timeoutSeconds", 10);
        if mutating {
            webhook.absent("reinvocationPolicy", "Never");
        }
        let service = webhook.object("clientConfig").and_then(|config| config.object("service"));
        if let Some(service) = service {
            service.absent("port", 443);
        }
        webhook.each("rules").for_each(|rule| rule.absent("scope", "*"));
    }
}

/// The rules of a ValidatingWebhookConfiguration.
pub(super) fn validating(object: &Value, errors: &mut Errors) {
    validate(object, false, errors);
}

/// The rules of a MutatingWebhookConfiguration.
pub(super) fn mutating(object: &Value, errors: &mut Errors) {
    validate(object, true, errors);
}

fn validate(object: &Value, mutating: bool, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (i, webhook) in list(object, "webhooks").iter().enumerate() {
        let path = Path::new("webhooks").index(i);
        validate_webhook(webhook, mutating, &path, errors);
        review_versions(webhook, &path.child("admissionReviewVersions"), errors);
        let name = text(webhook, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(Error::duplicate(path.child("name"), &name.into()));
        }
    }
}

fn validate_webhook(webhook: &Value, mutating: bool, path: &Path, errors: &mut Errors) {
    qualified(text(webhook, "name"), path.child("name"), errors);
    for (i, rule) in list(webhook, "rules").iter().enumerate() {
        validate_rule(rule, &path.child("rules").index(i), errors);
    }
    enumeration(webhook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    enumeration(webhook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
    if webhook.get("sideEffects").is_none_or(Value::is_null) {
        let detail = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        errors.push(Error::required(path.child("sideEffects"), detail));
    }
    enumeration(webhook, "sideEffects", &SIDE_EFFECTS, path, errors);
    if let Some(seconds) = webhook.get("timeoutSeconds").and_then(Value::as_i64)
        && !(1..=30).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(Error::invalid(path.child("timeoutSeconds"), &seconds.into(), detail));
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        if let Some(value) = webhook.get(selector) {
            validate_label_selector(value, &path.child(selector), errors);
        }
    }
    if mutating {
        enumeration(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    }
    let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
    setpoint_schema::crd::validate_client_config(config, &path.child("clientConfig"), errors);
    let given = list(webhook, "matchConditions");
    conditions(given, &Environment::new(false), &path.child("matchConditions"), errors);
}

/// A name of three segments at least.
fn qualified(name: &str, path: Path, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let faults = name::dns1123_subdomain(name);
    if !faults.is_empty() {
        errors.push(Error::invalid(path, &name.into(), faults.join(",")));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(Error::invalid(path, &name.into(), detail));
    }
}

fn review_versions(webhook: &Value, path: &Path, errors: &mut Errors) {
    let given = list(webhook, "admissionReviewVersions");
    let known = REVIEW_VERSIONS.join(", ");
    if given.is_empty() {
        let detail = format!("must specify one of {known}");
        errors.push(Error::required(path.clone(), detail));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, version) in given.iter().filter_map(Value::as_str).enumerate() {
        if !seen.insert(version) {
            errors.push(Error::invalid(path.index(i), &version.into(), "duplicate version"));
            continue;
        }
        for fault in name::dns1035_label(version) {
            errors.push(Error::invalid(path.index(i), &version.into(), fault));
        }
    }
    if !seen.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let detail = format!("must include at least one of {known}");
        errors.push(Error::invalid(path.clone(), &given.into(), detail));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::len(object, "webhooks").into(), cell::age(object, now)]
}
