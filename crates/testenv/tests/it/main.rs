//! Tests of test environments through their public API.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod autoscale;
mod built_in;
mod certificates;
mod cluster;
mod copier;
mod device_taints;
mod elections;
mod env;
mod jobs;
mod legacy_tokens;
mod migrations;
mod resource_claims;
mod scenario;
mod service_ranges;
mod services;
mod storage;
mod storms;
mod taints;
mod trust_bundle;
mod volumes;
mod workloads;
