//! Behaviour of whole control planes on virtual time.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod device_taints;
mod devices;
mod endings;
mod gang_jobs;
mod gangs;
mod idle;
mod migration;
mod nodes;
mod pod_groups;
mod pool_status;
mod roles;
mod storage_versions;
mod tokens;
mod transport;
mod trust_bundle;
mod user;
