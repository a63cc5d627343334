//! Authorization of what a ResourceClaim's `status` says, besides that of writing it.
//!
//! | change                                   | requires, of `resourceclaims`                             |
//! |------------------------------------------|-----------------------------------------------------------|
//! | `allocation`, `reservedFor`              | the request's verb of the subresource `binding`, everywhere |
//! | `devices` of a driver, while allocated   | `arbitrary-node:<verb>` of the subresource `driver`, by the driver's name in the namespace |
//! | the same, of devices of the user's node  | that, or `associated-node:<verb>`                         |
//!
//! The user's node is that of the pod that a service account's token is bound to.
use super::Write;
use crate::attributes::ResourcePath;
use crate::authorize::{Decision, forbidden};
use crate::kind::{list, text};
use crate::routed::Requested;
use crate::subresource::Subresource;
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::{name, users};
use std::collections::{BTreeMap, BTreeSet};

/// The fact about a service account's token: its node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

impl Write<'_> {
    /// Reports what the user may not change of a claim's status, before all other errors.
    pub(super) async fn check_claim_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let is_claim = &*self.resource.resource == "resourceclaims"
            && self.resource.kind.group == "resource.k8s.io";
        if !is_claim || self.target.subresource != Some(Subresource::Status) {
            return;
        }
        let (new, old) = (&new["status"], &old["status"]);
        let mut found = Errors::new();
        let verb = self.attributes.verb.as_str();
        let path = Path::new("status");
        if ["allocation", "reservedFor"].iter().any(|member| new[member] != old[member]) {
            let binding = self.claim_part("binding", "", "");
            if let Some(why) = self.refusal(verb, binding).await {
                let detail = format!(
                    "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {why}"
                );
                found.push(Error::forbidden(path.child("allocation"), detail));
            }
        }
        if !new["allocation"].is_null() {
            let verbs = self.verbs_of_devices(&new["allocation"]);
            for driver in changed_drivers(new, old) {
                if let Some(why) = self.refusal_of_all(&verbs, driver).await {
                    let detail = format!(
                        "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {why}",
                        verbs.join(" ")
                    );
                    found.push(Error::forbidden(path.child("devices"), detail));
                }
            }
        }
        if !found.is_empty() {
            let others = std::mem::replace(errors, found);
            errors.extend(others);
        }
    }
    /// The verbs of which one is required to change the status of devices.
    fn verbs_of_devices(&self, allocation: &Value) -> Vec<String> {
        let verb = self.attributes.verb.as_str();
        let identity = &self.attributes.identity;
        let own = match identity.extra.get(NODE_NAME).map(Vec::as_slice) {
            Some([node]) if users::service_account_of(&identity.user).is_some() => node.as_str(),
            _ => "",
        };
        let is_own = !own.is_empty()
            && name::dns1123_subdomain(own).is_empty()
            && node_of(allocation) == Some(own);
        let associated = is_own.then(|| format!("associated-node:{verb}"));
        associated.into_iter().chain([format!("arbitrary-node:{verb}")]).collect()
    }
    /// Why none of some verbs is allowed for a driver: that of the first one.
    async fn refusal_of_all(&self, verbs: &[String], driver: &str) -> Option<String> {
        let mut first = None;
        for verb in verbs {
            let path = self.claim_part("driver", &self.target.namespace, driver);
            let why = self.refusal(verb, path).await?;
            first.get_or_insert(why);
        }
        first
    }
    /// Why a request is not allowed; `None`: it is.
    async fn refusal(&self, verb: &str, path: ResourcePath) -> Option<String> {
        let request = self.attributes.with(Verb::from(verb), Requested::Unrouted(path));
        let reason = match self.inner.authorization.decide(&request).await {
            Ok(Decision::Allow(_)) => return None,
            Ok(Decision::Deny(reason) | Decision::NoOpinion(reason)) => reason,
            Err(error) => error.0.message,
        };
        Some(forbidden(&request, &reason).0.message)
    }
    /// A subresource of claims that only authorizers know.
    fn claim_part(&self, subresource: &str, namespace: &str, name: &str) -> ResourcePath {
        ResourcePath {
            group: self.resource.gvk.group.to_string(),
            version: self.resource.gvk.version.to_string(),
            resource: self.resource.resource.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: Subresource::of(subresource),
        }
    }
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
