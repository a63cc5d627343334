//! The product, by what its user sees.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod manifests;
#[cfg(feature = "netns-tests")]
mod packets;
mod plans;

use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// The definitions that a user applies.
fn definitions() -> Vec<CustomResourceDefinition> {
    let texts = port_rule::api::CRDS_YAML.split("\n---\n");
    texts.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}
