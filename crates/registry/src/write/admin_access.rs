//! Claims of devices with admin access: only in namespaces that are labelled for it.
//!
//! | write                          | is checked if                                            |
//! |--------------------------------|----------------------------------------------------------|
//! | a new claim or template        | a request of one kind of device asks for admin access    |
//! | a claim's `status`             | a result has admin access, and none had it before        |
use crate::admission::Review;
use crate::kind::list;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::meta::ObjectExt;

/// The label of a namespace whose claims may have admin access.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Reports admin access in a namespace without the label, before all other errors.
///
/// # Errors
///
/// The namespace cannot be read.
pub(super) async fn check(
    review: &Review<'_>,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Errors,
) -> Result<(), ApiError> {
    let Some(path) = asked(&review.resource.resource, new, old) else { return Ok(()) };
    let others = std::mem::take(errors);
    let Some(namespace) = review.namespace_object().await? else {
        let name = review.namespace;
        let detail = format!(
            "could not retrieve namespace to verify admin access: namespaces \"{name}\" not found"
        );
        errors.push(Error::internal(path, detail));
        errors.extend(others);
        return Ok(());
    };
    let label = namespace.meta().and_then(|meta| meta.get("labels")?.get(LABEL)?.as_str());
    if label != Some("true") {
        let detail = format!(
            "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
        );
        errors.push(Error::forbidden(path, detail));
    }
    errors.extend(others);
    Ok(())
}

/// Where a write asks for admin access first.
fn asked(resource: &str, new: &Value, old: Option<&Value>) -> Option<Path> {
    let spec = match resource {
        "resourceclaims" => &new["spec"],
        "resourceclaimtemplates" => &new["spec"]["spec"],
        _ => return None,
    };
    if let Some(old) = old {
        let first = |claim: &Value| {
            let results = list(&claim["status"]["allocation"]["devices"], "results");
            results.iter().position(|result| result["adminAccess"] == true)
        };
        if first(old).is_some() {
            return None;
        }
        let path = Path::new("status.allocation.devices.results").index(first(new)?);
        return Some(path.child("adminAccess"));
    }
    let asks = |request: &Value| request["exactly"]["adminAccess"] == true;
    let first = list(&spec["devices"], "requests").iter().position(asks)?;
    // The API's path is that of a claim.
    Some(Path::new("spec.devices.requests").index(first).child("adminAccess"))
}

#[cfg(test)]
mod tests {
    use super::asked;
    use serde_json::{Value, json};

    #[test]
    fn the_first_request_for_admin_access_is_found() {
        let devices = |admin: Value| json!({"devices": {"requests": [{"name": "a", "firstAvailable": [{}]}, {"name": "b", "exactly": {"adminAccess": admin}}]}});
        let claim = json!({"spec": devices(json!(true))});
        let path = |path: Option<setpoint_object::field::Path>| path.map(|path| path.text());
        let expected = Some("spec.devices.requests[1].adminAccess".to_owned());
        assert_eq!(path(asked("resourceclaims", &claim, None)), expected);
        let template = json!({"spec": {"spec": devices(json!(true))}});
        assert_eq!(path(asked("resourceclaimtemplates", &template, None)), expected);
        let none = json!({"spec": devices(json!(false))});
        assert_eq!(path(asked("resourceclaims", &none, None)), None);
        assert_eq!(path(asked("pods", &claim, None)), None);
        let with = |admin: bool| json!({"status": {"allocation": {"devices": {"results": [{"adminAccess": admin}]}}}});
        let granted = Some("status.allocation.devices.results[0].adminAccess".to_owned());
        assert_eq!(path(asked("resourceclaims", &with(true), Some(&with(false)))), granted);
        assert_eq!(path(asked("resourceclaims", &with(true), Some(&with(true)))), None);
    }
}
