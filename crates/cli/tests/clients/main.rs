//! Real clients against the built program: kubectl of today and of 2020, the Python client,
//! kube-rs.
//!
//! A behaviour exists when these see it. `cargo xtask test` installs them and says where they are.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]
#![allow(clippy::disallowed_methods, reason = "tests drive other programs in real time")]

mod bad_input;
mod bombs;
mod certificates;
mod data;
mod encryption;
mod failures;
mod informer;
mod kube_rs;
mod kubectl;
mod kubectl_crd;
mod kubectl_kinds;
mod kubectl_objects;
mod kubectl_old;
mod kubectl_verbs;
mod managers;
mod python;
mod raw;
mod server;
