//! The `Network` type: its spec and its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use setpoint::prelude::*;

/// The CRD that serves [`Network`], as a person would apply it.
pub const CRD_YAML: &str = include_str!("../manifests/crd.yaml");

/// What a network should be.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "samplecrd.k8s.io",
    version = "v1",
    kind = "Network",
    plural = "networks",
    namespaced,
    status = "NetworkStatus",
    schema = "disabled",
    crates(
        kube_core = "setpoint::kube_core",
        k8s_openapi = "setpoint::k8s_openapi",
        serde = "serde",
        serde_json = "serde_json"
    )
)]
pub struct NetworkSpec {
    /// The address range in CIDR notation, no host bits set: `192.168.0.0/16`.
    pub cidr: String,
    /// The gateway's address, a host address inside the range.
    pub gateway: String,
}

/// What a network is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// The range the network has at present; absent before the first one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
    /// The gateway it has at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Where the back end keeps it: a bridge's name, a registry entry, the id of a Neutron network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the network exists as declared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The finalizer that keeps a deleted object until its network is freed.
pub const FINALIZER: &str = "samplecrd.k8s.io/network";
/// The condition that says whether the network exists as declared.
pub const READY: &str = "Ready";
