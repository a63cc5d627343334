//! Kinds that configure admission.

use super::cell::{self, UNSET, at, text};
use serde_json::Value;
use setpoint_object::time::Timestamp;

pub(super) fn webhooks(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::len(object, "webhooks").into(), cell::age(object, now)]
}

pub(super) fn validating(object: &Value, now: Timestamp) -> Vec<Value> {
    policy(object, "spec.validations", now)
}

pub(super) fn mutating(object: &Value, now: Timestamp) -> Vec<Value> {
    policy(object, "spec.mutations", now)
}

fn policy(object: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let kind = at(object, "spec.paramKind");
    let kind = match kind.is_null() {
        true => UNSET.to_owned(),
        false => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
    };
    vec![cell::name(object), cell::len(object, rules).into(), kind.into(), cell::age(object, now)]
}

pub(super) fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let reference = at(object, "spec.paramRef");
    let shown = match (text(reference, "namespace"), text(reference, "name")) {
        (_, "") if cell::has(reference, "selector") => cell::selector(reference, "selector"),
        (_, "") => UNSET.to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![
        cell::name(object),
        text(object, "spec.policyName").into(),
        shown.into(),
        cell::age(object, now),
    ]
}
