//! The container of a request.

use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt as _;
use setpoint_object::pod_phase;

/// The member of a pod's spec and that of its status, for each kind of container.
const KINDS: [(&str, &str); 3] = [
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn names(list: &Value) -> String {
    let names = items(list).iter().filter_map(|container| container["name"].as_str());
    names.collect::<Vec<_>>().join(" ")
}

/// The name of the container that a request means.
///
/// # Errors
///
/// 400 if the pod has several and none is named, or if it has no container of the name.
pub(super) fn chosen(pod: &Value, name: &str) -> Result<String, ApiError> {
    let (spec, of_pod) = (&pod["spec"], pod.name());
    if name.is_empty() {
        if let [only] = items(&spec["containers"]) {
            return Ok(only["name"].as_str().unwrap_or_default().to_owned());
        }
        let mut message = format!(
            "a container name must be specified for pod {of_pod}, choose one of: [{}]",
            names(&spec["containers"])
        );
        let init = names(&spec["initContainers"]);
        if !init.is_empty() {
            message = format!("{message} or one of the init containers: [{init}]");
        }
        return Err(ApiError::bad_request(message));
    }
    let is_known =
        KINDS.iter().any(|(member, _)| items(&spec[member]).iter().any(|one| one["name"] == name));
    match is_known {
        true => Ok(name.to_owned()),
        false => {
            let message = format!("container {name} is not valid for pod {of_pod}");
            Err(ApiError::bad_request(message))
        }
    }
}

fn status<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let all = KINDS.iter().flat_map(|(_, member)| items(&pod["status"][member]));
    all.into_iter().find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

/// Checks that a container has a log.
///
/// # Errors
///
/// 400 with what it waits for.
pub(super) fn check_started(pod: &Value, name: &str) -> Result<(), ApiError> {
    let status = status(pod, name);
    let has_run = !status["state"]["running"].is_null()
        || !status["state"]["terminated"].is_null()
        || !status["lastState"]["terminated"].is_null();
    if has_run {
        return Ok(());
    }
    let reason = status["state"]["waiting"]["reason"].as_str().unwrap_or("ContainerCreating");
    let pod = pod.name();
    let message = format!("container \"{name}\" in pod \"{pod}\" is waiting to start: {reason}");
    Err(ApiError::bad_request(message))
}

/// Checks that a container runs.
///
/// # Errors
///
/// 400 for a pod that has ended, 500 for a container that does not run.
pub(super) fn check_running(pod: &Value, name: &str) -> Result<(), ApiError> {
    check_not_over(pod)?;
    match status(pod, name)["state"]["running"].is_null() {
        true => {
            let message = format!("container not found (\"{name}\")");
            Err(ApiError::internal(message))
        }
        false => Ok(()),
    }
}

/// Checks that a pod has not ended.
///
/// # Errors
///
/// 400 with its phase.
pub(super) fn check_not_over(pod: &Value) -> Result<(), ApiError> {
    match pod["status"]["phase"].as_str() {
        Some(phase) if pod_phase::is_terminal(phase) => Err(ApiError::bad_request(format!(
            "cannot connect to a container of a completed pod; current phase is {phase}"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_names_a_container_unless_there_is_one() {
        let one = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}});
        assert_eq!(chosen(&one, "").unwrap(), "a");
        assert!(chosen(&one, "b").is_err());
        let two = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}],
        }});
        let message = chosen(&two, "").unwrap_err().0.message;
        assert_eq!(
            message,
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
        assert_eq!(chosen(&two, "i").unwrap(), "i");
    }

    #[test]
    fn a_container_that_waits_has_no_log() {
        let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [
            {"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}},
            {"name": "b", "state": {"running": {}}},
        ]}});
        let message = check_started(&pod, "a").unwrap_err().0.message;
        assert_eq!(message, "container \"a\" in pod \"p\" is waiting to start: PodInitializing");
        check_started(&pod, "b").unwrap();
        check_running(&pod, "b").unwrap();
        assert!(check_running(&pod, "a").is_err());
    }
}
