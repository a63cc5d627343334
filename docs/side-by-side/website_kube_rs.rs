//! The type that the three controllers share: a `Website` is an image and a number of replicas.

use kube_derive::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec of a Website.
#[derive(CustomResource, Debug, Clone, Serialize, Deserialize)]
#[kube(
    group = "example.dev",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    schema = "disabled",
    crates(
        kube_core = "kube_core",
        k8s_openapi = "k8s_openapi",
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteStatus {
    /// Number of ready Pods.
    #[serde(default)]
    pub(crate) ready_replicas: i32,
}
