//! NodeRestriction: what the agent of a node may write (spec: admission §2).
//!
//! | object | an agent writes only |
//! |---|---|
//! | Node | its own; labels of agents; on update no taints and no owners |
//! | Pod | mirror pods on its node, owned by it, that refer to no other objects; the status, eviction and deletion of pods on its node |
//! | PersistentVolumeClaim | sizes and conditions in the status |
//! | Lease, CSINode | the one with its name; Leases in `kube-node-lease` |
//! | ResourceSlice | creates and deletes those of its node |
//! | CertificateSigningRequest | for its own name, of the signers for agents |
//! | PodCertificateRequest | creates those of pods on its node |
//! | token | of a service account of a pod on its node, bound to the pod, for an audience that the pod uses or that an authorizer allows |
mod pod_certificates;
mod pods;
mod tokens;

use super::{Admission, Operation, Review};
use crate::features::Feature;
use crate::kind::certificates::certificate_signing_request::common_name;
use crate::kind::{list, text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupResource, users};
use std::collections::BTreeSet;

/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";
/// Labels under Kubernetes' domains that an agent may set.
const LABELS: [&str; 13] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Domains whose labels, and those of their subdomains, an agent may set.
const DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The signers of the certificates of agents.
const SIGNERS: [&str; 2] =
    ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
/// Members of the status of a claim that an agent writes.
const CLAIM_STATUS: [&str; 4] =
    ["allocatedResourceStatuses", "allocatedResources", "capacity", "conditions"];

#[derive(Debug)]
pub(super) struct NodeRestriction;

impl Admission for NodeRestriction {
    fn name(&self) -> &str {
        "NodeRestriction"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        let identity = &review.attributes.identity;
        users::node_of(&identity.user).is_some() && identity.is_in(users::NODES)
    }
    fn mutates(&self, operation: Operation) -> bool {
        operation != Operation::Connect
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let user = &review.attributes.identity.user;
            let node = users::node_of(user).unwrap_or_default();
            if node.is_empty() {
                let user = quote(user);
                return refuse(review, &format!("could not determine node from user {user}"));
            }
            let group = &*review.resource.gvk.group;
            let part = review.subresource.map_or("", |subresource| subresource.as_str());
            let checked = match (group, &*review.resource.resource, part) {
                ("", "nodes", _) => node_of(review, node, object),
                ("", "pods", "") => return pods::check(review, node, object).await,
                ("", "pods", "status") => pods::status(review, node, object),
                ("", "pods", "eviction") => return pods::eviction(review, node, object).await,
                ("", "pods", part) => Err(format!(
                    "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                    quote(part)
                )),
                ("", "persistentvolumeclaims", "status") => claim_status(review, node, object),
                ("", "persistentvolumeclaims", _) => Err("may only update PVC status".to_owned()),
                ("", "serviceaccounts", "token") if review.operation == Operation::Create => {
                    return tokens::check(review, node, object).await;
                }
                ("certificates.k8s.io", "certificatesigningrequests", _) => {
                    let feature = Feature::AllowInsecureKubeletCertificateSigningRequests;
                    match review.inner.features.is_on(feature) {
                        true => Ok(()),
                        false => certificate(review, node, object),
                    }
                }
                ("certificates.k8s.io", "podcertificaterequests", part) => {
                    return pod_certificates::check(review, node, part, object).await;
                }
                ("coordination.k8s.io", "leases", _) => lease(review, node, object),
                ("resource.k8s.io", "resourceslices", _) => slice(review, node, object),
                ("storage.k8s.io", "csinodes", _) => {
                    is_own(review, object, node).then_some(()).ok_or_else(|| {
                        "can only access CSINode with the same name as the requesting node"
                            .to_owned()
                    })
                }
                _ => Ok(()),
            };
            checked.or_else(|why| refuse(review, &why))
        }
        .boxed()
    }
}

fn refuse(review: &Review<'_>, why: &str) -> Result<(), ApiError> {
    Err(review.forbidden(why))
}
/// The 404 for an object that a check needs. The reference names the resource in the singular.
fn missing(resource: &str, name: &str) -> ApiError {
    ApiError::not_found(&GroupResource { group: "".into(), resource: resource.into() }, name)
}
/// The name of an operation in texts.
fn word(operation: Operation) -> &'static str {
    super::matching::word(operation)
}
/// The name of the written object.
fn name_of<'v>(review: &'v Review<'_>, object: &'v Value) -> &'v str {
    match review.operation {
        Operation::Create => object.name(),
        _ => review.old.map_or(review.name, |old| old.name()),
    }
}
fn is_own(review: &Review<'_>, object: &Value, node: &str) -> bool {
    name_of(review, object) == node
}

fn node_of(review: &Review<'_>, node: &str, object: &Value) -> Result<(), String> {
    let subject = quote(node);
    if !is_own(review, object, node) {
        let other = quote(name_of(review, object));
        return Err(format!("node {subject} is not allowed to modify node {other}"));
    }
    match review.operation {
        Operation::Create => {
            if !object["spec"]["configSource"].is_null() {
                return Err(format!(
                    "node {subject} is not allowed to create pods with a non-nil configSource"
                ));
            }
            let set = refused(&Value::Null, &object["metadata"]["labels"]);
            match set.is_empty() {
                true => Ok(()),
                false => {
                    Err(format!("node {subject} is not allowed to set the following labels: {set}"))
                }
            }
        }
        Operation::Update => {
            let old = review.old.unwrap_or(&Value::Null);
            let source = |node: &Value| node["spec"]["configSource"].clone();
            if !source(object).is_null() && source(object) != source(old) {
                return Err(format!(
                    "node {subject} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if list(&old["spec"], "taints") != list(&object["spec"], "taints") {
                return Err(format!("node {subject} is not allowed to modify taints"));
            }
            let owners = |node: &Value| list(&node["metadata"], "ownerReferences").to_vec();
            if owners(old) != owners(object) {
                return Err(format!("node {subject} is not allowed to modify ownerReferences"));
            }
            let set = refused(&old["metadata"]["labels"], &object["metadata"]["labels"]);
            match set.is_empty() {
                true => Ok(()),
                false => Err(format!("is not allowed to modify labels: {set}")),
            }
        }
        Operation::Delete | Operation::Connect => Ok(()),
    }
}
/// The changed labels that an agent may not change, joined.
fn refused(old: &Value, new: &Value) -> String {
    let keys = |labels: &Value| -> BTreeSet<String> {
        labels.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let mut changed: Vec<String> = keys(old).union(&keys(new)).cloned().collect();
    changed.retain(|key| old.get(key) != new.get(key) && !may_set(key));
    changed.join(", ")
}
fn may_set(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let is_under = |of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    if is_under("node-restriction.kubernetes.io") {
        return false;
    }
    if !is_under("kubernetes.io") && !is_under("k8s.io") {
        return true;
    }
    LABELS.contains(&key) || DOMAINS.iter().any(|of| is_under(of))
}

/// A claim may differ in [`CLAIM_STATUS`] only.
fn claim_status(review: &Review<'_>, node: &str, claim: &Value) -> Result<(), String> {
    if review.operation != Operation::Update {
        return Err(format!("unexpected operation {}", quote(word(review.operation))));
    }
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        let mut remove = |member: &str, names: &[&str]| {
            if let Some(members) = claim.get_mut(member).and_then(Value::as_object_mut) {
                members.retain(|name, _| !names.contains(&name.as_str()));
            }
        };
        remove("metadata", &["managedFields", "resourceVersion"]);
        remove("status", &CLAIM_STATUS);
        claim
    };
    match review.old.is_some_and(|old| is_same(&rest(old), &rest(claim))) {
        true => Ok(()),
        false => Err(format!(
            "node {} is not allowed to update fields other than status.quantity and status.conditions",
            quote(node)
        )),
    }
}
/// Whether two trees are the same, if what is empty counts as absent. As deep as the trees, whose
/// depth decoding limits.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, value)| is_same(value, b.get(name).unwrap_or(&Value::Null)))
                && b.iter().all(|(name, value)| a.contains_key(name) || is_blank(value))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        _ => a == b || is_blank(a) && is_blank(b),
    }
}
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// A certificate of an agent must be for the agent itself.
fn certificate(review: &Review<'_>, node: &str, request: &Value) -> Result<(), String> {
    let signer = text(&request["spec"], "signerName");
    if review.operation != Operation::Create || !SIGNERS.contains(&signer) {
        return Ok(());
    }
    let name = common_name(request).map_err(|error| format!("unable to parse csr: {error}"))?;
    let user = &review.attributes.identity.user;
    match *name == **user {
        true => Ok(()),
        false => Err(format!("can only create a node CSR with CN=system:node:{node}")),
    }
}

fn lease(review: &Review<'_>, node: &str, object: &Value) -> Result<(), String> {
    if review.namespace != LEASES {
        return Err(format!("can only access leases in the {} system namespace", quote(LEASES)));
    }
    match is_own(review, object, node) {
        true => Ok(()),
        false => {
            Err("can only access node lease with the same name as the requesting node".to_owned())
        }
    }
}

/// The authorizer knows neither what is created, nor each object of a deletecollection.
fn slice(review: &Review<'_>, node: &str, object: &Value) -> Result<(), String> {
    let is_of_node = |slice: &Value| text(&slice["spec"], "nodeName") == node;
    let (is_allowed, verb) = match review.operation {
        Operation::Create => (is_of_node(object), "create"),
        Operation::Delete => (review.old.is_some_and(is_of_node), "delete"),
        Operation::Update | Operation::Connect => (true, ""),
    };
    match is_allowed {
        true => Ok(()),
        false => Err(format!(
            "can only {verb} ResourceSlice with the same NodeName as the requesting node"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn agents_set_their_own_labels_only() {
        for (key, expected) in [
            ("team", true),
            ("example.com/a", true),
            ("kubernetes.io/hostname", true),
            ("node.kubernetes.io/anything", true),
            ("x.kubelet.kubernetes.io/a", true),
            ("node-restriction.kubernetes.io/a", false),
            ("kubernetes.io/other", false),
            ("a.k8s.io/b", false),
        ] {
            assert_eq!(may_set(key), expected, "{key}");
        }
        let old = json!({"a.k8s.io/kept": "1"});
        assert_eq!(refused(&old, &old), "");
        assert_eq!(refused(&old, &json!({"k8s.io/b": "1"})), "a.k8s.io/kept, k8s.io/b");
    }

    #[test]
    fn what_is_empty_counts_as_absent() {
        let full = json!({"a": [{"b": 1}], "c": {"d": "x"}});
        let blank = json!({"a": [{"b": 1, "e": null}], "c": {"d": "x", "f": {}}, "g": []});
        assert!(is_same(&full, &blank) && is_same(&blank, &full));
        for other in [json!({"a": [{"b": 1}]}), json!({"a": [{"b": 2}], "c": {"d": "x"}})] {
            assert!(!is_same(&full, &other) && !is_same(&other, &full), "{other}");
        }
    }
}
