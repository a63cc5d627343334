//! The assembled control plane, in process.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod admission;
mod admission_plugins;
mod admission_policies;
mod admission_webhooks;
mod aggregation;
mod audit_log;
mod authorization_config;
mod bounds;
mod cache_sources;
mod client_calls;
mod client_helpers;
mod conversion_webhooks;
mod durable;
mod escalations;
mod events;
mod extension;
mod extension_backend;
mod extension_backend_edges;
mod extension_kind;
mod flow_control;
mod front_proxy;
mod garbage;
mod https;
mod impersonation;
mod in_process;
mod issuers;
mod kubeadm;
mod mapper;
mod member_order;
mod mutating_policies;
mod namespaces;
mod node_authorizer;
mod node_plugins;
mod origins;
mod plane;
mod pod_security;
mod policy_permissions;
mod protection;
mod quotas;
mod rbac;
mod recordings;
#[allow(dead_code, reason = "tests of the program use more of it")]
mod remote;
mod replay;
mod request_metrics;
mod request_spans;
mod rules;
mod runtime;
mod serve;
mod service_account_tokens;
mod service_accounts;
mod shared;
mod sources;
mod start_objects;
mod storms;
#[path = "../../../../docs/testing/copier.rs"]
mod testing_page;
mod typed_apply;
mod umbrella;
mod walk;
mod watch_limits;
mod webhook_certificates;
mod webhook_configurations;
mod webhooks;
