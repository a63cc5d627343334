//! The assembled control plane, in process.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod admission_webhooks;
mod audit_log;
mod bounds;
mod cache_sources;
mod client_calls;
mod client_helpers;
mod conversion_webhooks;
mod durable;
mod events;
mod extension;
mod extension_backend;
mod extension_backend_edges;
mod extension_kind;
mod garbage;
mod https;
mod impersonation;
mod in_process;
mod mapper;
mod namespaces;
mod origins;
mod plane;
mod protection;
mod rbac;
mod recordings;
#[allow(dead_code, reason = "tests of the program use more of it")]
mod remote;
mod replay;
mod request_metrics;
mod rules;
mod runtime;
mod serve;
mod shared;
mod sources;
mod storms;
#[path = "../../../../docs/testing/copier.rs"]
mod testing_page;
mod typed_apply;
mod umbrella;
mod walk;
mod webhook_certificates;
mod webhook_configurations;
mod webhooks;
