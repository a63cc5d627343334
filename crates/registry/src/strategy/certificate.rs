//! Certificate signing requests.
use super::Context;
use super::pod::{list, text};
use serde_json::Value;
use setpoint_object::field;

/// Who asks for a certificate is what the server knows, not what the body says.
pub(super) fn prepare_certificate_request(
    context: &Context<'_>,
    request: &mut Value,
    old: Option<&Value>,
) {
    match old {
        Some(old) => request["spec"] = old["spec"].clone(),
        None => {
            request["spec"]["username"] = context.user.into();
            request["spec"]["groups"] = context.groups.into();
            if context.groups.is_empty()
                && let Some(spec) = request["spec"].as_object_mut()
            {
                spec.remove("groups");
            }
        }
    }
}
/// Approval has an endpoint of its own.
pub(super) fn prepare_certificate_status(_: &Context<'_>, request: &mut Value, old: &Value) {
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
}
/// Certificate requests.
pub(super) fn validate_certificate_request(
    request: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    if old.is_some() {
        return;
    }
    let path = field::Path::new("spec");
    let spec = &request["spec"];
    for member in ["request", "signerName"] {
        if text(spec, member).is_empty() {
            errors.push(field::Error::required(path.child(member), ""));
        }
    }
    if list(spec, "usages").is_empty() {
        errors.push(field::Error::required(path.child("usages"), ""));
    }
}
