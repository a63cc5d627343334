//! PodResizeValidator: a pod grows only as far as its node allows.
use super::{Admission, Operation, Review};
use crate::kind::text;
use crate::stored::tree;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::quantity::Quantity;
use setpoint_object::status::Cause;
use setpoint_object::{ApiError, GroupVersionResource};

/// The label with the operating system of a node.
const OS: &str = "kubernetes.io/os";

#[derive(Debug)]
pub(super) struct PodResizeValidator;

impl Admission for PodResizeValidator {
    fn name(&self) -> &str {
        "PodResizeValidator"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Update && review.is_part("", "pods", "resize")
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(pod) = pod else { return Ok(()) };
            if review.old.is_some_and(|old| old["spec"] == pod["spec"]) {
                return Ok(());
            }
            let Some(node) = node_of(review, pod).await? else { return Ok(()) };
            let Err((reason, why)) = check(pod, &node) else { return Ok(()) };
            let mut error = review.forbidden(&why);
            let cause = Cause { reason: reason.to_owned(), ..Cause::default() };
            error.0.details.get_or_insert_default().causes.push(cause);
            Err(error)
        }
        .boxed()
    }
}

/// The node of a pod; `None` if it is on none.
///
/// # Errors
///
/// 403 if the node does not exist.
pub(super) async fn node_of(review: &Review<'_>, pod: &Value) -> Result<Option<Value>, ApiError> {
    let name = text(&pod["spec"], "nodeName");
    if name.is_empty() {
        return Ok(None);
    }
    let nodes = GroupVersionResource::new("", "v1", "nodes");
    match review.objects().get(&nodes, "", name).await? {
        Some(node) => tree(&node.bytes).map(Some),
        None => Err(review.forbidden(&format!("node {} not found", quote(name)))),
    }
}

/// Whether a node can have the pod as it is to be.
///
/// # Errors
///
/// The reason of the cause, and the message.
fn check(pod: &Value, node: &Value) -> Result<(), (&'static str, String)> {
    if let Some(system) = node["metadata"]["labels"][OS].as_str().filter(|os| *os != "linux") {
        let (name, system) = (quote(text(&node["metadata"], "name")), quote(system));
        return Err((
            "UnsupportedPlatform",
            format!("pod resize is only supported on linux nodes, node {name} is {system}"),
        ));
    }
    let requests = setpoint_quota::pod::requests(&pod["spec"]);
    let allocatable = |name: &str| {
        let amount = node["status"]["allocatable"][name].as_str().unwrap_or("0");
        Quantity::parse(amount).unwrap_or_else(|_| Quantity::from_units(0))
    };
    let mut lacking = Vec::new();
    for (name, in_milli) in [("cpu", true), ("memory", false)] {
        let Some(requested) = requests.get(name) else { continue };
        let most = allocatable(name);
        if requested.compare(&most).is_gt() {
            let shown = |amount: &Quantity| match in_milli {
                true => amount.milli_value(),
                false => amount.value(),
            };
            let (requested, most) = (shown(requested), shown(&most));
            lacking.push(format!("{name}, requested: {requested}, allocatable: {most}"));
        }
    }
    match lacking.is_empty() {
        true => Ok(()),
        false => Err((
            "NodeCapacity",
            format!("node didn't have enough allocatable resources: {}", lacking.join("; ")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_fits_its_node() {
        let pod = |cpu: &str, memory: &str| {
            let resources = json!({"requests": {"cpu": cpu, "memory": memory}});
            json!({"spec": {"containers": [{"resources": resources}, {"resources": resources}]}})
        };
        let node = |os: &str| {
            json!({
                "metadata": {"name": "n1", "labels": {OS: os}},
                "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}},
            })
        };
        assert_eq!(check(&pod("1", "512Mi"), &node("linux")), Ok(()));
        assert_eq!(
            check(&pod("1500m", "1Gi"), &node("linux")).unwrap_err(),
            (
                "NodeCapacity",
                "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824".to_owned(),
            )
        );
        let (reason, why) = check(&pod("1", "1"), &node("windows")).unwrap_err();
        assert_eq!(reason, "UnsupportedPlatform");
        assert_eq!(why, r#"pod resize is only supported on linux nodes, node "n1" is "windows""#);
    }
}
