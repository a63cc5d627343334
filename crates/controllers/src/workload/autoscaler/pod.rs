//! Pods as the autoscaler sees them: their state, and what they request.

use super::replicas::{PodState, Ready};
use crate::workload::pod::PodCondition;
use crate::workload::view::view;
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_object::time::Timestamp;

view! {
    /// A pod.
    Pod of core::Pod {
        /// The spec, as JSON: requests of resources are in it.
        spec: Value,
        /// The observed state.
        status: PodStatus,
    }
}

/// `status` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(super) phase: String,
    pub(super) conditions: Vec<PodCondition>,
    /// RFC 3339; empty before a node has accepted the pod.
    #[serde(deserialize_with = "crate::workload::view::or_default")]
    pub(super) start_time: String,
}

impl Pod {
    pub(super) fn state(&self) -> PodState {
        let ready = self.status.conditions.iter().find(|condition| condition.kind == "Ready");
        PodState {
            name: self.name().to_owned(),
            phase: self.status.phase.clone(),
            is_being_deleted: self.metadata.deletion_timestamp.is_some(),
            started: Timestamp::parse(&self.status.start_time),
            ready: ready.map(|ready| Ready {
                is_true: ready.status == "True",
                is_false: ready.status == "False",
                since: Timestamp::parse(&ready.last_transition_time).unwrap_or_default(),
            }),
        }
    }
}

/// What a pod requests: of one container, of the whole pod, or of its containers that keep running.
pub(super) fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, String> {
    let name = pod.name();
    let of_pod = &pod.spec["resources"]["requests"];
    let is_of_pod = of_pod.as_object().is_some_and(|requests| !requests.is_empty());
    if container.is_none() && is_of_pod {
        let requests = setpoint_quota::pod::requests(&pod.spec);
        let request = requests.get(resource).map(Quantity::milli_value);
        return request
            .ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"));
    }
    let list = |member: &str| pod.spec[member].as_array().map_or(&[][..], Vec::as_slice);
    let sidecars = list("initContainers").iter().filter(|init| init["restartPolicy"] == "Always");
    let mut sum = 0_i64;
    let mut is_found = false;
    for held in list("containers").iter().chain(sidecars) {
        let of = held["name"].as_str().unwrap_or_default();
        if container.is_some_and(|container| container != of) {
            continue;
        }
        is_found = true;
        let amount = &held["resources"]["requests"][resource];
        let amount = amount.as_str().and_then(|amount| Quantity::parse(amount).ok());
        let amount = amount.ok_or_else(|| {
            format!("missing request for {resource} in container {of} of Pod {name}")
        })?;
        sum = sum.saturating_add(amount.milli_value());
    }
    match container {
        Some(container) if !is_found => {
            Err(format!("container {container} not found in Pod {name}"))
        }
        _ => Ok(sum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_of_pods_and_containers() {
        let pod = |spec: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
        };
        let container =
            |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("s", "50m");
        sidecar["restartPolicy"] = "Always".into();
        let plain = pod(json!({
            "containers": [container("a", "1"), container("b", "250m")],
            "initContainers": [container("i", "4"), sidecar],
        }));
        assert_eq!(request(&plain, "cpu", None), Ok(1300));
        assert_eq!(request(&plain, "cpu", Some("b")), Ok(250));
        let error = |pod: &Pod, resource, container| request(pod, resource, container).unwrap_err();
        assert_eq!(
            error(&plain, "memory", None),
            "missing request for memory in container a of Pod p"
        );
        assert_eq!(error(&plain, "cpu", Some("x")), "container x not found in Pod p");
        let whole = pod(json!({
            "containers": [container("a", "1")], "resources": {"requests": {"cpu": "3"}},
        }));
        assert_eq!(request(&whole, "cpu", None), Ok(3000));
        assert_eq!(request(&whole, "cpu", Some("a")), Ok(1000));
        assert!(error(&whole, "memory", None).starts_with("missing pod-level request"));
    }
}
