//! `certificatesigningrequests/approval`: only the conditions that say yes or no.
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// Takes the conditions of a request sent to `approval`.
pub(super) fn take(merged: &mut Value, sent: &mut Value) {
    match sent["status"]["conditions"].take() {
        Value::Null => {
            if let Some(status) = merged.get_mut("status").and_then(Value::as_object_mut) {
                status.remove("conditions");
            }
        }
        conditions => merged["status"]["conditions"] = conditions,
    }
}
/// Dates conditions that came without a time.
pub(super) fn date(new: &mut Value, old: &Value, now: Timestamp) {
    let before = old["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let conditions = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let same = before
            .iter()
            .find(|c| c["type"] == condition["type"] && c["status"] == condition["status"]);
        if condition.get("lastUpdateTime").is_none_or(Value::is_null) {
            condition["lastUpdateTime"] = now.rfc3339().into();
        }
        if condition.get("lastTransitionTime").is_none_or(Value::is_null) {
            condition["lastTransitionTime"] = match same {
                Some(same) => same["lastTransitionTime"].clone(),
                None => now.rfc3339().into(),
            };
        }
    }
}
