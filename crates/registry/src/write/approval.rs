//! `certificatesigningrequests/approval`: only the conditions that say yes or no.
use serde_json::Value;

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
