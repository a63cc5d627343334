//! Plugins that set fields and refuse nothing.
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;

/// How long a pod stays on a node that is not ready or unreachable, in seconds: 300, as Kubernetes'
/// defaults for both.
const TOLERATION_SECONDS: i64 = 300;

/// Adds tolerations to pods for nodes that are not ready or unreachable.
#[derive(Debug)]
pub(super) struct DefaultTolerationSeconds;
impl Admission for DefaultTolerationSeconds {
    fn name(&self) -> &str {
        "DefaultTolerationSeconds"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.is("", "pods") && matches!(review.operation, Operation::Create | Operation::Update)
    }
    fn mutate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        pod: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            let own =
                spec.get("tolerations").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let missing: Vec<Value> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
                .into_iter()
                .filter(|taint| !own.iter().any(|t| tolerates(t, taint)))
                .map(|taint| {
                    json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS})
                })
                .collect();
            if !missing.is_empty()
                && let Some(list) =
                    spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut()
            {
                list.extend(missing);
            }
        }
        futures::future::ready(Ok(())).boxed()
    }
}
/// Whether a toleration covers a NoExecute taint without a value.
fn tolerates(toleration: &Value, taint: &str) -> bool {
    let text = |member: &str| toleration.get(member).and_then(Value::as_str).unwrap_or_default();
    (text("key") == taint || text("key").is_empty())
        && (text("effect") == "NoExecute" || text("effect").is_empty())
}

/// Adds finalizers that keep claims and volumes while they are in use.
#[derive(Debug)]
pub(super) struct StorageObjectInUseProtection;
impl Admission for StorageObjectInUseProtection {
    fn name(&self) -> &str {
        "StorageObjectInUseProtection"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create
            && (review.is("", "persistentvolumeclaims") || review.is("", "persistentvolumes"))
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let finalizer = if review.is("", "persistentvolumes") {
            "kubernetes.io/pv-protection"
        } else {
            "kubernetes.io/pvc-protection"
        };
        if !object.finalizers().contains(&finalizer)
            && let Some(list) =
                object.meta_mut().entry("finalizers").or_insert_with(|| json!([])).as_array_mut()
        {
            list.push(finalizer.into());
        }
        futures::future::ready(Ok(())).boxed()
    }
}

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
