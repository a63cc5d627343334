//! Writes what cycles decided about groups.

use super::{Binder, FIELD_MANAGER};
use crate::group::{GroupCondition, group_of};
use crate::scheduler::pod_group_resource;
use kube_core::DynamicObject;
use kube_core::params::Patch;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_runtime::{Action, BoxError, Context, Request};
use std::sync::Arc;

impl Binder {
    /// Says in the status of a group whether it is placed.
    pub(super) async fn say_of_group(
        &self,
        key: &Request,
        condition: &Arc<GroupCondition>,
        context: &Context,
    ) -> Result<Action, BoxError> {
        let api = context.client().api_with::<DynamicObject>(pod_group_resource());
        let api = api.field_manager(FIELD_MANAGER);
        let group = group_of(key).unwrap_or_else(|| key.clone());
        if let Some(found) = api.get_live(&group).await?
            && let Some(condition) = changed(&found, condition, context.clock().now())
        {
            let patch = json!({
                "metadata": {"uid": found.metadata.uid}, "status": {"conditions": [condition]},
            });
            match api.patch_status(&group, &Patch::Strategic(patch)).await {
                Err(error) if error.is_not_found() => {}
                // Nothing is to be said of another group that has the name.
                Err(error) if error.is_conflict() => {
                    let live = api.get_live(&group).await?;
                    if live.is_some_and(|live| live.metadata.uid == found.metadata.uid) {
                        return Err(error.into());
                    }
                }
                patched => _ = patched?,
            }
        }
        self.shared.state.lock().finish_group(key, condition);
        Ok(Action::await_change())
    }
}

/// The condition as it is written, if it differs. Once a group was placed, it stays so.
fn changed(group: &DynamicObject, condition: &GroupCondition, now: Timestamp) -> Option<Value> {
    const TYPE: &str = "PodGroupScheduled";
    let conditions = group.data["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|found| found["type"] == TYPE);
    let was_true = found.is_some_and(|found| found["status"] == "True");
    if was_true && !condition.is_true {
        return None;
    }
    let GroupCondition { is_true, reason, message } = condition;
    let status = if *is_true { "True" } else { "False" };
    let generation = group.metadata.generation.unwrap_or_default();
    let mut written = json!({
        "type": TYPE, "status": status, "reason": reason, "message": message,
        "observedGeneration": generation,
    });
    let is_same = |member: &str| {
        found.is_some_and(|found| match &found[member] {
            Value::Null => [json!(""), json!(0)].contains(&written[member]),
            value => *value == written[member],
        })
    };
    if ["status", "reason", "message", "observedGeneration"].into_iter().all(is_same) {
        return None;
    }
    written["lastTransitionTime"] = match found.filter(|found| found["status"] == status) {
        Some(found) => found["lastTransitionTime"].clone(),
        None => now.rfc3339().into(),
    };
    Some(written)
}
