//! NodeRestriction: what the agent of a node may write (spec: admission §2).
//!
//! | object | an agent writes only |
//! |---|---|
//! | Node | its own; labels of agents; taints only on create |
//! | Pod | mirror pods on its node; the status and deletion of pods on its node |
//! | Lease | the one with its name in `kube-node-lease` |
//! | token | of a service account of a pod on its node, bound to the pod |
use super::{Admission, Operation, Review};
use crate::kind::{list, text};
use crate::stored::tree;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionResource, users};
use std::collections::BTreeSet;

const MIRROR: &str = "kubernetes.io/config.mirror";
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
    fn mutates(&self, _: Operation) -> bool {
        true
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let node = users::node_of(&review.attributes.identity.user).unwrap_or_default();
            if node.is_empty() {
                return Err(review.forbidden("could not determine node from user"));
            }
            let group = &*review.resource.gvk.group;
            let part = review.subresource.map_or("", |subresource| subresource.as_str());
            let checked = match (group, &*review.resource.resource, part) {
                ("", "nodes", _) => node_of(review, node, object),
                ("", "pods", "") => pod(review, node, object),
                ("", "pods", "status") => pod_status(review, node, object),
                ("", "pods", "eviction") => eviction(review, node).await?,
                ("", "pods", "attach" | "exec" | "log" | "portforward" | "proxy") => Ok(()),
                ("", "pods", part) => {
                    let operation = name_of(review.operation);
                    Err(format!("unexpected pod subresource {}, only 'status', 'eviction' and streams are allowed for {operation}", quote(part)))
                }
                ("coordination.k8s.io", "leases", _) => lease(review, node, object),
                ("", "serviceaccounts", "token") => token(review, node, object).await?,
                ("storage.k8s.io", "csinodes", _) => {
                    is_own(review, object, node).then_some(()).ok_or_else(|| {
                        "can only access CSINode with the same name as the requesting node".to_owned()
                    })
                }
                _ => Ok(()),
            };
            checked.map_err(|why| review.forbidden(&why))
        }
        .boxed()
    }
}
fn name_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}
/// The name of the written object.
fn is_own(review: &Review<'_>, object: &Value, node: &str) -> bool {
    match review.operation {
        Operation::Create => object.name() == node,
        _ => review.old.map_or(review.name, |old| old.name()) == node,
    }
}

fn node_of(review: &Review<'_>, node: &str, object: &Value) -> Result<(), String> {
    if !is_own(review, object, node) {
        let other = match review.operation {
            Operation::Create => object.name(),
            _ => review.old.map_or(review.name, |old| old.name()),
        };
        let (node, other) = (quote(node), quote(other));
        return Err(format!("node {node} is not allowed to modify node {other}"));
    }
    let subject = quote(node);
    match review.operation {
        Operation::Create => {
            if !object["spec"]["configSource"].is_null() {
                return Err(format!(
                    "node {subject} is not allowed to create pods with a non-nil configSource"
                ));
            }
            let set = refused(&Value::Null, &object["metadata"]["labels"]);
            if !set.is_empty() {
                return Err(format!(
                    "node {subject} is not allowed to set the following labels: {set}"
                ));
            }
            check_owners(&Value::Null, object, &subject)
        }
        Operation::Update => {
            let old = review.old.unwrap_or(&Value::Null);
            let set = refused(&old["metadata"]["labels"], &object["metadata"]["labels"]);
            if !set.is_empty() {
                return Err(format!("is not allowed to modify labels: {set}"));
            }
            if list(&old["spec"], "taints") != list(&object["spec"], "taints") {
                return Err(format!("node {subject} is not allowed to modify taints"));
            }
            check_owners(old, object, &subject)
        }
        Operation::Delete | Operation::Connect => Ok(()),
    }
}
fn check_owners(old: &Value, new: &Value, subject: &str) -> Result<(), String> {
    let owners = |node: &Value| list(&node["metadata"], "ownerReferences").to_vec();
    match owners(old) == owners(new) {
        true => Ok(()),
        false => Err(format!("node {subject} is not allowed to modify ownerReferences")),
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

fn pod(review: &Review<'_>, node: &str, object: &Value) -> Result<(), String> {
    let subject = quote(node);
    match review.operation {
        Operation::Create => {
            if object["metadata"]["annotations"].get(MIRROR).is_none() {
                return Err(format!(
                    "pod does not have {} annotation, node {subject} can only create mirror pods",
                    quote(MIRROR)
                ));
            }
            if text(&object["spec"], "nodeName") != node {
                return Err(format!(
                    "node {subject} can only create pods with spec.nodeName set to itself"
                ));
            }
            Ok(())
        }
        Operation::Delete => match is_on(review.old, node) {
            true => Ok(()),
            false => {
                Err(format!("node {subject} can only delete pods with spec.nodeName set to itself"))
            }
        },
        operation => {
            let operation = name_of(operation);
            Err(format!(
                "unexpected operation {operation}, node {subject} can only create and delete mirror pods"
            ))
        }
    }
}
fn is_on(pod: Option<&Value>, node: &str) -> bool {
    pod.is_some_and(|pod| text(&pod["spec"], "nodeName") == node)
}
fn pod_status(review: &Review<'_>, node: &str, object: &Value) -> Result<(), String> {
    let subject = quote(node);
    if !is_on(review.old, node) {
        return Err(format!(
            "node {subject} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    let labels = |pod: &Value| pod["metadata"].get("labels").cloned();
    if review.old.is_some_and(|old| labels(old) != labels(object)) {
        return Err(format!("node {subject} cannot update labels through pod status"));
    }
    Ok(())
}
async fn eviction(review: &Review<'_>, node: &str) -> Result<Result<(), String>, ApiError> {
    let pods = GroupVersionResource::new("", "v1", "pods");
    let found = review.objects().get(&pods, review.namespace, review.name).await?;
    let pod = found.map(|pod| tree(&pod.bytes)).transpose()?;
    Ok(match is_on(pod.as_ref(), node) {
        true => Ok(()),
        false => Err(format!(
            "node {} can only evict pods with spec.nodeName set to itself",
            quote(node)
        )),
    })
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
async fn token(
    review: &Review<'_>,
    node: &str,
    request: &Value,
) -> Result<Result<(), String>, ApiError> {
    let bound = &request["spec"]["boundObjectRef"];
    let pods = GroupVersionResource::new("", "v1", "pods");
    let row = review.inner.catalog.borrow().get("", "v1", "pods").cloned();
    let is_pod = row.is_some_and(|row| *row.gvk.kind == *text(bound, "kind"));
    if !is_pod || text(bound, "apiVersion") != "v1" || text(bound, "name").is_empty() {
        return Ok(Err("node requested token not bound to a pod".to_owned()));
    }
    let uid = text(bound, "uid");
    if uid.is_empty() {
        return Ok(Err("node requested token with a pod binding without a uid".to_owned()));
    }
    let found = review.objects().get(&pods, review.namespace, text(bound, "name")).await?;
    let Some(pod) = found.map(|pod| tree(&pod.bytes)).transpose()? else {
        return Ok(Err(format!("pod {} not found", quote(text(bound, "name")))));
    };
    if pod.uid() != uid {
        let (asked, own) = (quote(uid), quote(pod.uid()));
        return Ok(Err(format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated ({own})"
        )));
    }
    Ok(match is_on(Some(&pod), node) {
        true => Ok(()),
        false => {
            Err("node requested token bound to a pod scheduled on a different node".to_owned())
        }
    })
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
}
