//! The effect of an eviction on a budget (spec: api-server §5.6).
use crate::kind::text;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::status::{Cause, Details};
use setpoint_object::time::Timestamp;
use setpoint_object::{ApiError, Reason};

/// Maximum number of disrupted pods that are recorded in one budget: as kube-apiserver's
/// `MaxDisruptedPodSize`.
const DISRUPTED_PODS_MAX: usize = 2000;
/// Takes one disruption from the budget, or returns why not.
pub(crate) fn charge(budget: &mut Value, pod: &str, now: Timestamp) -> Result<(), ApiError> {
    let name = budget.name().to_owned();
    let status = &budget["status"];
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if status["observedGeneration"].as_i64().unwrap_or(0) < generation {
        return Err(in_progress(&name));
    }
    let number = |member: &str| status[member].as_i64().unwrap_or(0);
    let allowed = number("disruptionsAllowed");
    if allowed <= 0 {
        let (desired, current) = (number("desiredHealthy"), number("currentHealthy"));
        let start = format!("The disruption budget {name} does not allow evicting pods currently");
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let condition = conditions.find(|condition| condition["type"] == "DisruptionAllowed");
        let [reason, why] = match condition.filter(|condition| condition["status"] == "False") {
            Some(condition) => [text(condition, "reason"), text(condition, "message")],
            None => [""; 2],
        };
        let message = if reason == "SyncFailed" && !why.is_empty() {
            // What it counts is not to be trusted then.
            format!("{start} because it failed sync: {why}")
        } else if current <= desired {
            format!(
                "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
            )
        } else if !why.is_empty() {
            format!("{start} ({reason}): {why}")
        } else {
            start
        };
        return Err(refusal(message, 0));
    }
    if status["disruptedPods"].as_object().is_some_and(|p| p.len() > DISRUPTED_PODS_MAX) {
        return Err(ApiError::new(
            403,
            Reason::Forbidden,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
    budget["status"]["disruptedPods"][pod] = now.rfc3339().into();
    Ok(())
}
/// Whether pods that are not ready may be evicted without using the budget: its policy is always,
/// or enough other pods are healthy.
pub(crate) fn spares_unready(budget: &Value) -> bool {
    let number = |member: &str| budget["status"][member].as_i64().unwrap_or(0);
    let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || current >= desired && desired > 0
}
/// 429: the budget's status is out of date.
pub(crate) fn in_progress(budget: &str) -> ApiError {
    let message = format!("The disruption budget {budget} is still being processed by the server.");
    refusal(message, 10)
}
fn refusal(message: String, retry_after_seconds: u32) -> ApiError {
    let cause = Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() };
    let mut error = ApiError::too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry_after_seconds,
    );
    error.0.details.get_or_insert_with(Details::default).causes.push(cause);
    error
}
