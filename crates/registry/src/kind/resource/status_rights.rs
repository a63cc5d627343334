//! The rights that changes of a ResourceClaim's `status` require, besides that of writing it.
//!
//! | change                                   | requires, of `resourceclaims`                             |
//! |------------------------------------------|-----------------------------------------------------------|
//! | `allocation`, `reservedFor`              | the request's verb of the subresource `binding`, everywhere |
//! | `devices` of a driver, while allocated   | `arbitrary-node:<verb>` of the subresource `driver`, by the driver's name in the namespace |
//! | the same, of devices of the user's node  | that, or `associated-node:<verb>`                         |
//!
//! The user's node is that of the pod that a service account's token is bound to. Without the
//! feature `DRAResourceClaimGranularStatusAuthorization` none of them is required.
use crate::features::Feature;
use crate::kind::{Context, NeededRight, RequiredOn, list, text};
use serde_json::Value;
use setpoint_object::field::Path;
use setpoint_object::{name, users};
use std::collections::{BTreeMap, BTreeSet};

/// The rights that a change of a claim's status requires.
pub(super) fn status_rights(
    context: &Context<'_>,
    verb: &str,
    new: &Value,
    old: &Value,
) -> Vec<NeededRight> {
    if !context.features.is_on(Feature::DRAResourceClaimGranularStatusAuthorization) {
        return Vec::new();
    }
    let (new, old) = (&new["status"], &old["status"]);
    let path = Path::new("status");
    let mut rights = Vec::new();
    if ["allocation", "reservedFor"].iter().any(|member| new[member] != old[member]) {
        rights.push(NeededRight {
            field: path.child("allocation"),
            detail: format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission"
            ),
            on: RequiredOn::Subresource { subresource: "binding", name: None },
            verbs: vec![verb.to_owned()],
        });
    }
    let has_devices = context.features.is_on(Feature::DRAResourceClaimDeviceStatus);
    if new["allocation"].is_null() || !has_devices {
        return rights;
    }
    let verbs = verbs_of_devices(context, verb, &new["allocation"]);
    let detail = format!(
        "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission",
        verbs.join(" ")
    );
    rights.extend(changed_drivers(new, old).into_iter().map(|driver| NeededRight {
        field: path.child("devices"),
        detail: detail.clone(),
        on: RequiredOn::Subresource { subresource: "driver", name: Some(driver.to_owned()) },
        verbs: verbs.clone(),
    }));
    rights
}

/// The verbs of which one is required to change the status of devices.
fn verbs_of_devices(context: &Context<'_>, verb: &str, allocation: &Value) -> Vec<String> {
    let own = match context.extra.get(users::BOUND_NODE).map(Vec::as_slice) {
        Some([node]) if users::service_account_of(context.user).is_some() => node.as_str(),
        _ => "",
    };
    let is_own = !own.is_empty()
        && name::dns1123_subdomain(own).is_empty()
        && node_of(allocation) == Some(own);
    let associated = is_own.then(|| format!("associated-node:{verb}"));
    associated.into_iter().chain([format!("arbitrary-node:{verb}")]).collect()
}

/// The drivers whose devices are reported in another way than before.
fn changed_drivers<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let key = |device: &'a Value| {
        ["driver", "pool", "device", "shareID"].map(|member| text(device, member))
    };
    let mut before: BTreeMap<_, &Value> =
        list(old, "devices").iter().map(|device| (key(device), device)).collect();
    let mut changed = BTreeSet::new();
    for device in list(new, "devices") {
        if before.remove(&key(device)) != Some(device) {
            changed.insert(text(device, "driver"));
        }
    }
    changed.extend(before.into_values().map(|device| text(device, "driver")));
    changed
}

/// The node whose devices are allocated, if they are of one node.
fn node_of(allocation: &Value) -> Option<&str> {
    let [term] = list(&allocation["nodeSelector"], "nodeSelectorTerms") else { return None };
    let [field] = list(term, "matchFields") else { return None };
    let [node] = list(field, "values") else { return None };
    let is_name = list(term, "matchExpressions").is_empty()
        && text(field, "key") == "metadata.name"
        && text(field, "operator") == "In";
    node.as_str().filter(|_| is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn drivers_of_new_changed_and_removed_devices_are_found() {
        let device = |driver: &str, name: &str, data: Value| json!({"driver": driver, "pool": "p", "device": name, "data": data});
        let old = json!({"devices": [
            device("a", "1", json!({})), device("b", "1", json!({})), device("c", "1", json!({})),
        ]});
        let new = json!({"devices": [
            device("a", "1", json!({})), device("b", "1", json!({"x": 1})), device("d", "1", json!({})),
        ]});
        assert_eq!(changed_drivers(&new, &old), BTreeSet::from(["b", "c", "d"]));
    }

    #[test]
    fn devices_of_one_node_are_selected_by_its_name() {
        let selector = |term: Value| json!({"nodeSelector": {"nodeSelectorTerms": [term]}});
        let field = |operator: &str| json!({"key": "metadata.name", "operator": operator, "values": ["n1"]});
        assert_eq!(node_of(&selector(json!({"matchFields": [field("In")]}))), Some("n1"));
        assert_eq!(node_of(&selector(json!({"matchFields": [field("NotIn")]}))), None);
        assert_eq!(node_of(&json!({})), None);
    }
}
