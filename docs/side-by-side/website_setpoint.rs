//! The type that the three controllers share: a `Website` is an image and a number of replicas.

use serde::{Deserialize, Serialize};
use setpoint::prelude::*;

/// The spec of a Website.
#[derive(CustomResource, Partial, Debug, Clone, Serialize, Deserialize)]
#[kube(
    group = "example.dev",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    schema = "disabled",
    crates(
        kube_core = "setpoint::kube_core",
        k8s_openapi = "setpoint::k8s_openapi",
        serde = "serde",
        serde_json = "serde_json"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteSpec {
    /// The image that serves it.
    pub(crate) image: String,
    /// Number of Pods.
    pub(crate) replicas: i32,
}

/// The status of a Website.
#[derive(Partial, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteStatus {
    /// Number of ready Pods.
    #[serde(default)]
    pub(crate) ready_replicas: i32,
}
