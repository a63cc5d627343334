//! Which certificates of pods an agent may request.
use super::{refuse, word};
use crate::admission::{Operation, Review};
use crate::kind::text;
use crate::stored::tree;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupResource, GroupVersionResource};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// A request is for a pod on the node, and names the pod, its service account and the node by their
/// uids. What is not there yet, or is another object, is no refusal: the agent tries again.
pub(super) async fn check(
    review: &Review<'_>,
    node: &str,
    part: &str,
    request: &Value,
) -> Result<(), ApiError> {
    if review.operation != Operation::Create {
        let operation = word(review.operation);
        return refuse(review, &format!("unexpected operation {operation}"));
    }
    if !part.is_empty() {
        return refuse(review, &format!("unexpected subresource {part}"));
    }
    let spec = &request["spec"];
    let named = |member: &str| text(spec, member);
    let of_node = quote(named("nodeName"));
    if named("nodeName") != node {
        let node = quote(node);
        return refuse(
            review,
            &format!(
                "PodCertificateRequest.Spec.NodeName={of_node}, which is not the requesting node {node}"
            ),
        );
    }
    let found = find(review, "nodes", "", node).await?;
    let found = found.map_err(|error| retry(&format!("node {of_node}"), &error))?;
    let in_namespace = |name: &str| quote(&format!("{}/{name}", review.namespace));
    let of_pod = in_namespace(named("podName"));
    if found.uid() != named("nodeUID") {
        return Err(other(format!(
            "PodCertificateRequest for pod {of_pod} names node UID {}, inconsistent with the running node ({})",
            quote(named("nodeUID")),
            quote(found.uid())
        )));
    }
    let pod = find(review, "pods", review.namespace, named("podName")).await?;
    let pod = pod.map_err(|error| retry(&format!("pod {of_pod}"), &error))?;
    if pod.uid() != named("podUID") {
        return Err(other(format!(
            "PodCertificateRequest for pod {of_pod} contains pod UID ({}) which differs from running pod {}",
            quote(named("podUID")),
            quote(pod.uid())
        )));
    }
    if text(&pod["spec"], "nodeName") != node {
        return refuse(
            review,
            &format!(
                "pod {of_pod} is not running on node {of_node} named in the PodCertificateRequest"
            ),
        );
    }
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return refuse(review, &format!("pod {of_pod} is a mirror pod"));
    }
    let (account, own) = (named("serviceAccountName"), text(&pod["spec"], "serviceAccountName"));
    if account != own {
        return refuse(
            review,
            &format!(
                "PodCertificateRequest for pod {of_pod} contains serviceAccountName ({}) that differs from running pod ({})",
                quote(account),
                quote(own)
            ),
        );
    }
    let found = find(review, "serviceaccounts", review.namespace, account).await?;
    let of_account = in_namespace(account);
    let found = found.map_err(|error| retry(&format!("service account {of_account}"), &error))?;
    if found.uid() != named("serviceAccountUID") {
        return Err(other(format!(
            "PodCertificateRequest for pod {of_pod} names service account UID {}, which differs from the running service account ({})",
            quote(named("serviceAccountUID")),
            quote(found.uid())
        )));
    }
    Ok(())
}

/// An object of the core group. The inner error is that it is not there, in the words of a lister.
async fn find(
    review: &Review<'_>,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Result<Value, ApiError>, ApiError> {
    let rows = GroupVersionResource::new("", "v1", resource);
    Ok(match review.objects().get(&rows, namespace, name).await? {
        Some(found) => Ok(tree(&found.bytes)?),
        None => {
            let singular = resource.strip_suffix('s').unwrap_or(resource);
            let singular = GroupResource { group: "".into(), resource: singular.into() };
            Err(ApiError::not_found(&singular, name))
        }
    })
}

fn retry(what: &str, error: &ApiError) -> ApiError {
    other(format!("while retrieving {what} named in the PodCertificateRequest: {error}"))
}

/// An error without a reason.
fn other(message: String) -> ApiError {
    ApiError::unclassified(message)
}
