//! The action `RestartAllContainers` of restart rules: all containers of the pod end, and start
//! again as in a new pod, one init container after the other.

use super::{LASTING, Plan, PodEvent, Surroundings, condition, items, text};
use crate::restart::{ContainerPolicy, Policy};
use serde_json::{Map, Value, json};

/// The condition of pods in which a rule has this action.
const CONDITION: &str = "AllContainersRestarting";
const REASON: &str = "RestartingAllContainers";
const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

/// Ends all containers, if one of them has ended with a code for which that is the action.
pub(super) fn begin(pod: &Value, around: &Surroundings) -> Option<Plan> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let is_asked = LASTING.into_iter().any(|(list, statuses)| {
        items(&spec[list]).iter().any(|container| {
            let of = |status: &&Value| status["name"] == container["name"];
            let status = items(&status[statuses]).iter().find(of);
            let code = status.and_then(|one| one["state"]["terminated"]["exitCode"].as_i64());
            code.is_some_and(|code| {
                ContainerPolicy::of_main(container, Policy::Never).restarts_all(code)
            })
        })
    });
    if !is_asked {
        return None;
    }
    let mut plan = Plan { due: Some(around.now), ..Plan::default() };
    let mut changed = Map::new();
    for (list, member) in LASTING {
        let mut statuses = items(&status[member]).to_vec();
        for one in &mut statuses {
            if one["state"]["waiting"].is_null() {
                if !one["state"]["running"].is_null() {
                    plan.events.push(PodEvent {
                        is_warning: false,
                        reason: "Killing",
                        message: "killing".to_owned(),
                        field_path: format!("spec.{list}{{{}}}", text(&one["name"])),
                    });
                }
                reset(one);
            }
        }
        if !statuses.is_empty() {
            changed.insert(member.to_owned(), statuses.into());
        }
    }
    let message = "container exited with restart policy rule".to_owned();
    let began = "RestartAllContainersStarted";
    let conditions: Vec<Value> = [
        condition(pod, around.now, CONDITION, true, began, Some(message)),
        condition(pod, around.now, "Ready", false, "ContainersNotReady", None),
        condition(pod, around.now, "ContainersReady", false, "ContainersNotReady", None),
    ]
    .into_iter()
    .flatten()
    .collect();
    changed.insert("conditions".to_owned(), conditions.into());
    plan.status = changed.into();
    Some(plan)
}

/// The condition of a pod that is not restarting, if it differs from the pod's. Pods without the
/// action have none.
pub(super) fn ended(pod: &Value, around: &Surroundings, reason: &str) -> Option<Value> {
    let can_begin = LASTING.into_iter().any(|(list, _)| {
        let rules = items(&pod["spec"][list]).iter().map(|one| items(&one["restartPolicyRules"]));
        rules.flatten().any(|rule| rule["action"] == "RestartAllContainers")
    });
    can_begin.then(|| condition(pod, around.now, CONDITION, false, reason, None)).flatten()
}

/// The status of a container that has been removed, and starts again.
fn reset(status: &mut Value) {
    let n_restarts = status["restartCount"].as_i64().unwrap_or_default() + 1;
    status["restartCount"] = n_restarts.into();
    status["state"] = json!({"waiting": {"reason": REASON, "message": MESSAGE}});
    status["lastState"] = json!({"terminated": {
        "exitCode": 137, "reason": REASON, "message": MESSAGE,
        "startedAt": null, "finishedAt": null,
    }});
    status["ready"] = false.into();
    status["started"] = false.into();
}
