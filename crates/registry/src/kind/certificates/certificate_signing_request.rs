//! CertificateSigningRequests: the server sets the requesting user, and approval has its own
//! endpoint.
mod duration;
mod rules;

pub(crate) use rules::{common_name, organizations};

use crate::kind::{
    Context, Fill, Kind, MetadataChecks, NameRule, Part, Selectable, StatusMeta, StatusRule, list,
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
    resets: &["spec"],
    status: Some(StatusRule {
        checks: MetadataChecks::WHOLE_THEN_CHANGE,
        resets: &["spec", "status/conditions"],
        counts: duration::count,
        ..StatusRule::new(StatusMeta::All, "{}")
    }),
    ..Kind::plain("certificates.k8s.io", "CertificateSigningRequest")
};

/// `certificatesigningrequests/approval`: changes only the approval conditions.
const APPROVAL: Part = Part {
    takes_metadata: true,
    prepare: date,
    validate: rules::validate_approval,
    resets: &["spec", "status/certificate"],
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
    let is_dated = |condition: &&Value| !condition["lastTransitionTime"].is_null();
    for condition in before.iter().filter(is_dated) {
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

/// Sets the requesting user; the body's one is ignored.
fn prepare(context: &Context<'_>, request: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        request["spec"] = old["spec"].clone();
        return;
    }
    let Some(spec) = request.as_object_mut().and_then(|request| request.object_or_new("spec"))
    else {
        return;
    };
    for member in ["username", "uid", "groups", "extra"] {
        spec.remove(member);
    }
    spec.insert("username".to_owned(), context.user.into());
    if !context.uid.is_empty() {
        spec.insert("uid".to_owned(), context.uid.into());
    }
    if !context.groups.is_empty() {
        let groups = context.groups.iter().map(|group| &**group).collect();
        spec.insert("groups".to_owned(), groups);
    }
    if !context.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(context.extra));
    }
}

/// Keeps the approval conditions as they are. One that is added or removed is refused: they have
/// their own endpoint.
fn prepare_status(context: &Context<'_>, request: &mut Value, old: &Value) {
    for kind in ["Approved", "Denied"] {
        let stored = list(&old["status"], "conditions").iter();
        let stored: Vec<&Value> = stored.filter(|c| text(c, "type") == kind).collect();
        let sent = request.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        let sent = sent.into_iter().flatten().filter(|c| text(c, "type") == kind);
        let sent: Vec<&mut Value> = sent.collect();
        if sent.len() == stored.len() {
            for (sent, stored) in sent.into_iter().zip(stored) {
                *sent = stored.clone();
            }
        }
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
