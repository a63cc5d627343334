//! What an agent may write of pods.
use super::{missing, refuse, word};
use crate::admission::{Operation, Review};
use crate::kind::core::pod::references::api_object;
use crate::kind::{list, text};
use crate::stored::tree;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionResource};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Creates and deletes.
pub(super) async fn check(review: &Review<'_>, node: &str, pod: &Value) -> Result<(), ApiError> {
    let subject = quote(node);
    match review.operation {
        Operation::Create => {
            if let Err(why) = mirror(node, pod) {
                return refuse(review, &why);
            }
            owned(review, node, list(&pod["metadata"], "ownerReferences")).await?;
            match api_object(&pod["spec"]) {
                Ok(None) => Ok(()),
                Ok(Some(resource)) => refuse(
                    review,
                    &format!("node {subject} can not create pods that reference {resource}"),
                ),
                Err(error) => refuse(
                    review,
                    &format!("error checking mirror pod for API references: {error}"),
                ),
            }
        }
        Operation::Delete if is_on(review.old, node) => Ok(()),
        Operation::Delete => refuse(
            review,
            &format!("node {subject} can only delete pods with spec.nodeName set to itself"),
        ),
        operation => refuse(
            review,
            &format!(
                "unexpected operation {}, node {subject} can only create and delete mirror pods",
                quote(word(operation))
            ),
        ),
    }
}

fn mirror(node: &str, pod: &Value) -> Result<(), String> {
    let subject = quote(node);
    if pod["metadata"]["annotations"].get(MIRROR).is_none() {
        return Err(format!(
            "pod does not have {} annotation, node {subject} can only create mirror pods",
            quote(MIRROR)
        ));
    }
    if text(&pod["spec"], "nodeName") != node {
        return Err(format!(
            "node {subject} can only create pods with spec.nodeName set to itself"
        ));
    }
    Ok(())
}

/// A mirror pod has one owner, which is its node.
async fn owned(review: &Review<'_>, node: &str, owners: &[Value]) -> Result<(), ApiError> {
    let subject = quote(node);
    let only =
        |rest: &str| refuse(review, &format!("node {subject} can only create pods with {rest}"));
    let owner = match owners {
        [] => return only("an owner reference set to itself"),
        [owner] => owner,
        _ => return only("a single owner reference set to itself"),
    };
    let row = review.inner.catalog.borrow().get("", "v1", "nodes").cloned();
    let is_node = row.is_some_and(|row| *row.gvk.kind == *text(owner, "kind"));
    if text(owner, "apiVersion") != "v1" || !is_node || text(owner, "name") != node {
        return only("an owner reference set to itself");
    }
    if owner["controller"] != true {
        return only("a controller owner reference set to itself");
    }
    if owner["blockOwnerDeletion"] == true {
        return refuse(
            review,
            &format!("node {subject} must not set blockOwnerDeletion on an owner reference"),
        );
    }
    let nodes = GroupVersionResource::new("", "v1", "nodes");
    let Some(found) = review.objects().tree(&nodes, "", node).await? else {
        return Err(missing("node", node));
    };
    match text(owner, "uid") == found.uid() {
        true => Ok(()),
        false => refuse(
            review,
            &format!(
                "node {node} UID mismatch: expected {} got {}",
                text(owner, "uid"),
                found.uid()
            ),
        ),
    }
}

/// The status of a pod. Its labels and claims are not the agent's.
pub(super) fn status(review: &Review<'_>, node: &str, pod: &Value) -> Result<(), String> {
    let subject = quote(node);
    let old = match (review.operation, review.old) {
        (Operation::Update, Some(old)) => old,
        (operation, _) => return Err(format!("unexpected operation {}", quote(word(operation)))),
    };
    if !is_on(Some(old), node) {
        return Err(format!(
            "node {subject} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    let labels = |pod: &Value| pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    if labels(old) != labels(pod) {
        return Err(format!("node {subject} cannot update labels through pod status"));
    }
    let claims = |pod: &Value| -> Vec<[Value; 2]> {
        let claims = list(&pod["status"], "resourceClaimStatuses").iter();
        claims.map(|claim| [claim["name"].clone(), claim["resourceClaimName"].clone()]).collect()
    };
    if claims(old) != claims(pod) {
        return Err(format!("node {subject} cannot update resource claim statues"));
    }
    let extended = |pod: &Value| {
        let claim = &pod["status"]["extendedResourceClaimStatus"];
        let mappings = list(claim, "requestMappings").to_vec();
        claim.is_object().then(|| (text(claim, "resourceClaimName").to_owned(), mappings))
    };
    if extended(old) != extended(pod) {
        return Err(format!("node {subject} cannot update extended resource claim status"));
    }
    Ok(())
}

/// The eviction of a pod on the node.
pub(super) async fn eviction(
    review: &Review<'_>,
    node: &str,
    eviction: &Value,
) -> Result<(), ApiError> {
    if review.operation != Operation::Create {
        return refuse(review, &format!("unexpected operation {}", word(review.operation)));
    }
    let name = match review.name {
        "" => eviction.name(),
        name => name,
    };
    if name.is_empty() {
        return refuse(review, "could not determine pod from request data");
    }
    let pod = find(review, name).await?;
    match is_on(Some(&pod), node) {
        true => Ok(()),
        false => refuse(
            review,
            &format!("node {node} can only evict pods with spec.nodeName set to itself"),
        ),
    }
}

/// A pod in the namespace of the request.
///
/// # Errors
///
/// 404.
pub(super) async fn find(review: &Review<'_>, name: &str) -> Result<Value, ApiError> {
    let pods = GroupVersionResource::new("", "v1", "pods");
    match review.objects().get(&pods, review.namespace, name).await? {
        Some(pod) => tree(&pod.bytes),
        None => Err(missing("pod", name)),
    }
}

pub(super) fn is_on(pod: Option<&Value>, node: &str) -> bool {
    pod.is_some_and(|pod| text(&pod["spec"], "nodeName") == node)
}
