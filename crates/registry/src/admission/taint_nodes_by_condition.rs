//! TaintNodesByCondition: the taint of new nodes.
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;

/// Taints a new node until its agent reports that it is ready.
#[derive(Debug)]
pub(super) struct TaintNodesByCondition;
impl Admission for TaintNodesByCondition {
    fn name(&self) -> &str {
        "TaintNodesByCondition"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is("", "nodes")
    }
    fn mutate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        node: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        if !node["spec"].is_object() {
            node["spec"] = json!({});
        }
        let taints = &mut node["spec"]["taints"];
        if !taints.is_array() {
            *taints = json!([]);
        }
        if let Some(taints) = taints.as_array_mut()
            && !taints.iter().any(|t| t["key"] == taint["key"] && t["effect"] == taint["effect"])
        {
            taints.push(taint);
        }
        futures::future::ready(Ok(())).boxed()
    }
}
