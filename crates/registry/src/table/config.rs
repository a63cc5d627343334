//! Kinds that hold settings, rights and reservations.

use super::age::human_duration;
use super::cell::{self, NONE, at, int, len, list, scalar, text, text_or};
use serde_json::Value;
use setpoint_object::time::Timestamp;

pub(super) fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::age(object, now)]
}

pub(super) fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = len(object, "data") + len(object, "binaryData");
    vec![cell::name(object), entries.into(), cell::age(object, now)]
}

pub(super) fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        text(object, "type").into(),
        len(object, "data").into(),
        cell::age(object, now),
    ]
}

pub(super) fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), text(object, "spec.holderIdentity").into(), cell::age(object, now)]
}

pub(super) fn resource_quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let mut hard: Vec<&String> =
        at(object, "status.hard").as_object().into_iter().flat_map(|hard| hard.keys()).collect();
    hard.sort_unstable();
    for resource in hard {
        // Resource names have dots, which paths take for separators.
        let of = |path: &str| match at(object, path).get(resource) {
            Some(Value::String(amount)) => amount.clone(),
            Some(other) => other.to_string(),
            None => "0".to_owned(),
        };
        let entry = format!("{resource}: {}/{}", of("status.used"), of("status.hard"));
        if resource.starts_with("limits") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![
        cell::name(object),
        requests.join(", ").into(),
        limits.join(", ").into(),
        cell::age(object, now),
    ]
}

pub(super) fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let names: Vec<String> = list(object, "subjects")
            .iter()
            .filter(|subject| text(subject, "kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", text(subject, "namespace"), text(subject, "name"))
                }
                _ => text(subject, "name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    vec![
        cell::name(object),
        format!("{}/{}", text(object, "roleRef.kind"), text(object, "roleRef.name")).into(),
        cell::age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(super) fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |ty: &str| cell::condition(object, "status.conditions", ty).is_some();
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied".to_owned(),
        (false, true) => "Approved".to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !scalar(object, "status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let requested = match cell::has(object, "spec.expirationSeconds") {
        true => human_duration(int(object, "spec.expirationSeconds")),
        false => NONE.to_owned(),
    };
    vec![
        cell::name(object),
        cell::age(object, now),
        text_or(object, "spec.signerName", NONE).into(),
        text(object, "spec.username").into(),
        requested.into(),
        condition.into(),
    ]
}
