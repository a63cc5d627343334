//! DefaultTolerationSeconds: tolerations of pods for nodes that are not ready or unreachable.
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;

/// How long a pod stays on a node that is not ready or unreachable.
#[derive(Debug, Clone, Copy)]
pub(super) struct TolerationSeconds {
    pub(super) not_ready: i64,
    pub(super) unreachable: i64,
}

/// 300 seconds, as Kubernetes' defaults for both.
impl Default for TolerationSeconds {
    fn default() -> Self {
        Self { not_ready: 300, unreachable: 300 }
    }
}

/// Adds tolerations to pods for nodes that are not ready or unreachable.
#[derive(Debug)]
pub(super) struct DefaultTolerationSeconds(pub(super) TolerationSeconds);
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
            let TolerationSeconds { not_ready, unreachable } = self.0;
            let missing: Vec<Value> = [
                ("node.kubernetes.io/not-ready", not_ready),
                ("node.kubernetes.io/unreachable", unreachable),
            ]
            .into_iter()
            .filter(|(taint, _)| !own.iter().any(|t| tolerates(t, taint)))
            .map(|(taint, seconds)| {
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
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
