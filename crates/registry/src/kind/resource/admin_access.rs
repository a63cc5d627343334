//! Admin access to devices: only in namespaces that are labelled for it.
//!
//! | write                          | needs the label if                                       |
//! |--------------------------------|----------------------------------------------------------|
//! | a new claim or template        | a request of one kind of device asks for admin access    |
//! | a claim's `status`             | a result has admin access, and none had it before        |
use crate::kind::{NeededLabel, list};
use serde_json::Value;
use setpoint_object::field::Path;

/// The label that a claim needs.
pub(super) fn of_claim(new: &Value, old: Option<&Value>) -> Option<NeededLabel> {
    let field = match old {
        None => requested(&new["spec"])?,
        Some(old) => granted(new).filter(|_| granted(old).is_none())?,
    };
    Some(label(field))
}
/// The label that a template needs.
pub(super) fn of_template(new: &Value, _: Option<&Value>) -> Option<NeededLabel> {
    requested(&new["spec"]["spec"]).map(label)
}
fn label(field: Path) -> NeededLabel {
    NeededLabel {
        label: "resource.kubernetes.io/admin-access",
        field,
        gives: "admin access to devices",
        verifies: "admin access",
    }
}

/// The first request for admin access of a claim's spec. The path is that of a claim, also in a
/// template.
fn requested(spec: &Value) -> Option<Path> {
    let asks = |request: &Value| request["exactly"]["adminAccess"] == true;
    let first = list(&spec["devices"], "requests").iter().position(asks)?;
    Some(Path::new("spec.devices.requests").index(first).child("adminAccess"))
}
/// The first result with admin access of a claim's status.
fn granted(claim: &Value) -> Option<Path> {
    let results = list(&claim["status"]["allocation"]["devices"], "results");
    let first = results.iter().position(|result| result["adminAccess"] == true)?;
    Some(Path::new("status.allocation.devices.results").index(first).child("adminAccess"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_request_for_admin_access_is_found() {
        let devices = |admin: Value| json!({"devices": {"requests": [{"name": "a", "firstAvailable": [{}]}, {"name": "b", "exactly": {"adminAccess": admin}}]}});
        let path = |label: Option<NeededLabel>| label.map(|label| label.field.text());
        let expected = Some("spec.devices.requests[1].adminAccess".to_owned());
        let claim = json!({"spec": devices(json!(true))});
        assert_eq!(path(of_claim(&claim, None)), expected);
        assert_eq!(path(of_template(&json!({"spec": claim}), None)), expected);
        let none = json!({"spec": devices(json!(false))});
        assert_eq!(path(of_claim(&none, None)), None);
        assert_eq!(path(of_template(&json!({"spec": none}), None)), None);
    }

    #[test]
    fn the_first_result_with_admin_access_is_found_unless_one_had_it() {
        let with = |admin: bool| json!({"status": {"allocation": {"devices": {"results": [{"adminAccess": admin}]}}}});
        let path = |new: bool, old: bool| {
            of_claim(&with(new), Some(&with(old))).map(|label| label.field.text())
        };
        let expected = Some("status.allocation.devices.results[0].adminAccess".to_owned());
        assert_eq!(path(true, false), expected);
        assert_eq!(path(true, true), None);
        assert_eq!(path(false, false), None);
    }
}
