//! Nodes.
use crate::kind::{Fill, Kind, Members, Selectable, StatusMeta, not_supported};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// Node.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    selectable: &[Selectable { absent: "false", ..Selectable::new("spec.unschedulable") }],
    selects_namespace: false,
    unknown_label: not_supported,
    cells: Some(cells),
    ..Kind::with_status("", "Node", StatusMeta::All, INITIAL)
};

/// Node information has members that are always present.
const INITIAL: &str = r#"{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"architecture":"","bootID":"","containerRuntimeVersion":"","kernelVersion":"","kubeProxyVersion":"","kubeletVersion":"","machineID":"","operatingSystem":"","osImage":"","systemUUID":""}}"#;

/// The value of node information that a kubelet has not reported.
const UNKNOWN: &str = "<unknown>";

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

const ROLE_LABEL: &str = "kubernetes.io/role";

/// Node: allocatable is the capacity by default.
fn default(object: &mut Members, _version: &str) {
    let Some(status) = object.object("status") else { return };
    if let Some(capacity) = status.get("capacity").cloned() {
        status.absent("allocatable", capacity);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = match cell::condition(object, "status.conditions", "Ready") {
        Some(ready) if cell::text(ready, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if cell::at(object, "spec.unschedulable") == true {
        status.push_str(",SchedulingDisabled");
    }
    let info = cell::at(object, "status.nodeInfo");
    let address = |ty: &str| {
        cell::list(object, "status.addresses")
            .iter()
            .find(|address| cell::text(address, "type") == ty)
            .map_or(cell::NONE, |address| cell::text(address, "address"))
    };
    vec![
        cell::name(object),
        status.into(),
        roles(object).into(),
        cell::age(object, now),
        cell::text(info, "kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        cell::text_or(info, "osImage", UNKNOWN).into(),
        cell::text_or(info, "kernelVersion", UNKNOWN).into(),
        cell::text_or(info, "containerRuntimeVersion", UNKNOWN).into(),
    ]
}

/// Roles from labels, sorted, without duplicates.
fn roles(object: &Value) -> String {
    let mut roles: Vec<&str> = cell::at(object, "metadata.labels")
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { cell::NONE.to_owned() } else { roles.join(",") }
}
