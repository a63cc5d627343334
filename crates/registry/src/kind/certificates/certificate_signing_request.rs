//! CertificateSigningRequests: the server sets the requesting user, and approval has its own
//! endpoint.
mod rules;

pub(crate) use rules::{common_name, organizations};

use crate::kind::{
    Context, Kind, MetadataChecks, NameRule, Part, Selectable, StatusMeta, StatusRule, list,
    not_supported, text,
};
use crate::table::{age, cell};
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use std::collections::HashMap;

/// CertificateSigningRequest.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    prepare,
    names: NameRule::Any,
    prepare_status,
    validate: rules::validate,
    validate_status: rules::validate_status,
    parts: &[APPROVAL],
    selectable: &[Selectable::new("spec.signerName")],
    selects_namespace: false,
    unknown_label: not_supported,
    cells: Some(cells),
    rules: "form and signature of the request, signer, usages, lifetime; conditions and certificate at their endpoints",
    status: Some(StatusRule {
        checks: MetadataChecks::WHOLE_THEN_CHANGE,
        ..StatusRule::new(StatusMeta::All, "{}")
    }),
    ..Kind::plain("certificates.k8s.io", "CertificateSigningRequest")
};

/// `certificatesigningrequests/approval`: changes only the approval conditions.
const APPROVAL: Part = Part {
    takes_metadata: true,
    prepare: date,
    validate: rules::validate_approval,
    resets: &["spec"],
    checks: MetadataChecks::WHOLE_THEN_CHANGE,
    ..Part::new("approval", take_conditions)
};
/// Copies the conditions of a request to `approval`.
fn take_conditions(merged: &mut Value, sent: &mut Value) {
    match sent["status"]["conditions"].take() {
        Value::Null => {
            if let Some(status) = merged.get_mut("status").and_then(Value::as_object_mut) {
                status.remove("conditions");
            }
        }
        conditions => merged["status"]["conditions"] = conditions,
    }
}
/// Sets the time of conditions without one.
fn date(context: &Context<'_>, new: &mut Value, old: Option<&Value>) {
    let before = old.map_or(&[][..], |old| list(&old["status"], "conditions"));
    let mut known = HashMap::new();
    for condition in before {
        known.entry((&condition["type"], &condition["status"])).or_insert(condition);
    }
    let conditions = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let same = known.get(&(&condition["type"], &condition["status"])).copied();
        if condition.get("lastUpdateTime").is_none_or(Value::is_null) {
            condition["lastUpdateTime"] = context.now.rfc3339().into();
        }
        if condition.get("lastTransitionTime").is_none_or(Value::is_null) {
            condition["lastTransitionTime"] = match same {
                Some(same) => same["lastTransitionTime"].clone(),
                None => context.now.rfc3339().into(),
            };
        }
    }
}

/// Sets the requesting user with all that is known of it; what the body says of it is ignored.
fn prepare(context: &Context<'_>, request: &mut Value, old: Option<&Value>) {
    match old {
        Some(old) => request["spec"] = old["spec"].clone(),
        None => {
            if !request["spec"].is_object() {
                request["spec"] = json!({});
            }
            let Some(spec) = request["spec"].as_object_mut() else { return };
            for field in ["username", "uid", "groups", "extra"] {
                spec.remove(field);
            }
            spec.insert("username".into(), context.user.into());
            if !context.uid.is_empty() {
                spec.insert("uid".into(), context.uid.into());
            }
            if !context.groups.is_empty() {
                let groups = context.groups.iter().map(|group| &**group).collect();
                spec.insert("groups".into(), groups);
            }
            if !context.extra.is_empty() {
                let extra = context.extra.iter().map(|(key, facts)| (key.clone(), json!(facts)));
                spec.insert("extra".into(), Value::Object(extra.collect()));
            }
        }
    }
}

/// Keeps the approval conditions, which have their own endpoint.
fn prepare_status(context: &Context<'_>, request: &mut Value, old: &Value) {
    let is_decision = |c: &Value| matches!(text(c, "type"), "Approved" | "Denied");
    let mut conditions: Vec<Value> = list(&request["status"], "conditions")
        .iter()
        .filter(|c| !is_decision(c))
        .cloned()
        .collect();
    let decided = list(&old["status"], "conditions").iter().filter(|c| is_decision(c)).cloned();
    let mut all: Vec<Value> = decided.collect();
    all.append(&mut conditions);
    if !all.is_empty() {
        request["status"]["conditions"] = all.into();
    }
    date(context, request, Some(old));
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |ty: &str| cell::condition(object, "status.conditions", ty).is_some();
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied".to_owned(),
        (false, true) => "Approved".to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !cell::scalar(object, "status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let requested = match cell::has(object, "spec.expirationSeconds") {
        true => age::human_duration(cell::int(object, "spec.expirationSeconds")),
        false => cell::NONE.to_owned(),
    };
    vec![
        cell::name(object),
        cell::age(object, now),
        cell::text_or(object, "spec.signerName", cell::NONE).into(),
        cell::text(object, "spec.username").into(),
        requested.into(),
        condition.into(),
    ]
}
