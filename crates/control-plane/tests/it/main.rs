//! Behaviour of whole control planes on virtual time.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod devices;
mod endings;
mod idle;
mod migration;
mod nodes;
mod pod_groups;
mod roles;
mod tokens;
mod trust_bundle;
mod user;
