//! Real clients against the built program: current kubectl, kubectl of 2020, Helm, four clients in
//! Python, kopf, the JavaScript client, kube-rs.
//!
//! A behavior counts as implemented when these clients observe it. `cargo xtask test` installs them
//! and passes their paths.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]
#![allow(clippy::disallowed_methods, reason = "tests drive other programs in real time")]

mod bad_input;
mod bombs;
mod certificates;
mod data;
mod encryption;
mod failures;
mod gate;
mod helm;
mod informer;
mod kms;
mod kopf;
mod kube_rs;
mod kubectl;
mod kubectl_auth;
mod kubectl_autoscale;
mod kubectl_certificates;
mod kubectl_crd;
mod kubectl_explain;
mod kubectl_kinds;
mod kubectl_nodes;
mod kubectl_objects;
mod kubectl_old;
mod kubectl_policies;
mod kubectl_processes;
mod kubectl_processes_life;
mod kubectl_rollout;
mod kubectl_story;
mod kubectl_terminals;
mod kubectl_verbs;
mod managers;
mod node;
mod projects;
mod python;
mod raw;
#[path = "../shared/ready_line.rs"]
mod ready_line;
mod server;
