//! A declarative control-plane kit.
//!
//! By default this crate is a controller runtime: informers, work queues and managers over a
//! `kube_client::Client`. Features add an embedded API server and more:
//!
//! | feature | adds | depends on |
//! |---|---|---|
//! | `runtime` (default) | [`informer`], [`runtime`], [`workqueue`], [`prelude`] | `kube-client` |
//! | `apply` | [`mod@apply`]: typed setters for server-side apply, of built-in types and by `#[derive(Partial)]` | |
//! | `derive` | `#[derive(CustomResource)]` from [`kube_derive`] | |
//! | `schema` | the same with `JsonSchema`: derived types have a definition | `derive` |
//! | `endpoints` | a manager's health and metrics over HTTP: [`runtime::endpoint`] | an HTTP server |
//! | `compressed` | compressed caches: `CachePolicy::Compressed`, compressed metadata | zstd |
//! | `otel` | passes as OpenTelemetry spans: [`runtime::telemetry::Traces`] | `opentelemetry` |
//! | `webhook` | [`webhook`]: admission, conversion and token review in Rust functions; `Manager::webhooks` | an HTTP server |
//! | `server` | [`ControlPlane`], [`apiserver`], [`registry`], [`store`] with objects in memory | the API server, `endpoints` |
//! | `disk` | [`store::DiskStore`] | `server`, redb, zstd |
//! | `otlp` | spans of requests to a collector: [`otlp::Exporter`] | `server`, `h2` |
//! | `process-node` | nodes whose pods run as local processes: [`process_node::ProcessNodes`] | `server` |
//! | `etcd` | [`etcd`] | `server`, `h2` |
//! | `encryption` | [`encryption`] at rest | `server`, ciphers |
//! | `log` | [`log`]: logs of a program on standard error | `tracing-subscriber` |
//! | `testenv` | [`testenv`](mod@testenv): a control plane for tests, in virtual time, with faults | `server` |
//! | `full` | all of the above |  |
//!
//! `kube-client`, `kube-core`, `kube-derive` and `k8s-openapi` are re-exported in compatible
//! versions. A program chooses the version of the Kubernetes API with a feature of `k8s-openapi`:
//!
//! ```toml
//! [dependencies]
//! setpoint = { git = "https://github.com/setpoint-rs/setpoint" }
//! k8s-openapi = { version = "0.29", features = ["latest"] }
//! ```
//!
//! # A controller
//!
//! A controller is a function of a key:
//!
//! ```no_run
//! use setpoint::k8s_openapi::api::core::v1::ConfigMap;
//! use setpoint::prelude::*;
//!
//! async fn reconcile(request: Request, context: Context) -> Result<Action, ClientError> {
//!     let Some(config) = context.client().api::<ConfigMap>().get(&request)? else {
//!         return Ok(Action::await_change()); // deleted
//!     };
//!     // Make the actual state match `config`. Each step must tolerate that it was done already.
//!     Ok(Action::await_change())
//! }
//!
//! # async fn example(client: setpoint::kube_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let mut manager = Manager::new(client);
//! manager.add(Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(reconcile)?)?;
//! manager.run_until_signal().await?;
//! # Ok(())
//! # }
//! ```
//!
#![cfg_attr(
    feature = "server",
    doc = r#"
# A control plane

A control plane is a loop of data, and the whole loop fits in one process. A [`ControlPlane`] has a
store, a registry and an API server. Building it does no work; its owner runs and stops it; clients
are handles that wait until it has started.

```
# tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
use setpoint::ControlPlane;
use tokio_util::sync::CancellationToken;

let plane = ControlPlane::builder().build();
let client = plane.client();
let stop = CancellationToken::new();
let running = plane.run(stop.clone());
let request = async {
    let version = client.apiserver_version().await?;
    stop.cancel();
    Ok::<_, kube_client::Error>(version)
};
let (result, version) = tokio::join!(running, request);
result?;
assert_eq!(version?.major, "1");
# Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
```

| to get | use |
|---|---|
| objects in memory, in a folder, in etcd | [`ControlPlaneBuilder::store`] with a [`MemoryStore`](store::MemoryStore), a `DiskStore` (feature `disk`), an `EtcdStore` (feature `etcd`), or a custom engine |
| several servers on one store | [`ControlPlaneBuilder::shared_as`] |
| TLS, certificates, kubeconfig, tokens | [`ServeOptions`], [`ControlPlane::serve`] |
| roles; by default, authenticated users may do everything | [`ControlPlaneBuilder::rbac`] |
| admission, authorizers, kinds, routes, audit of its own | [`ControlPlaneBuilder`]; `docs/extending.md` has a table |
| an in-process client or informer source | [`ControlPlane::client`], [`ControlPlane::source`] |
| a custom HTTP server around it | [`ControlPlane::server`], a tower service |
| notification when it is ready, and a way to stop it | [`ControlPlane::ready`], [`Serving::run`] |
| nodes without containers, and a scheduler | [`ControlPlaneBuilder::nodes`] |
| deterministic tests | [`ControlPlaneBuilder::simulated`] |

By default a control plane uses the wall clock and the operating system's entropy. A
[`simulated`](ControlPlaneBuilder::simulated) one uses neither: on a current-thread runtime with
paused time, the same seed and requests always have the same result.
"#
)]
#![cfg_attr(
    feature = "disk",
    doc = r"
[`ControlPlane::serve`] serves it on sockets. This program stores objects and certificates in a
folder, serves `kubectl` over TLS, and stops cleanly on SIGINT or SIGTERM
(`crates/setpoint/examples/embed.rs`):

```no_run"
)]
#![cfg_attr(feature = "disk", doc = include_str!("../examples/embed.rs"))]
#![cfg_attr(feature = "disk", doc = "```")]

#[cfg(all(feature = "runtime", feature = "webhook"))]
mod manager_webhooks;
#[cfg(all(feature = "runtime", feature = "webhook"))]
mod webhook_metrics;

#[cfg(all(feature = "runtime", feature = "webhook"))]
pub use manager_webhooks::{
    ManagerWebhooks, ManagerWebhooksError, ServedWebhooks, WebhookCertificates,
    WebhookCertificatesError,
};
#[cfg(feature = "server")]
pub use setpoint_control_plane::{
    AdmissionConfigError, AdmissionConfiguration, AuthorizationConfig, ConfigMetrics,
    ConfiguredAuthorizers, ControlPlane, ControlPlaneBuilder, EgressMetrics, InProcessSource,
    IssuerMetrics, IssuerTokens, KubeletFilesError, KubeletOptions, ManifestsWorker,
    MetricsPageOptions, NODE_LABEL, PeerOptions, REQUEST_SECONDS, RequestMetrics, STAGES_BYTES_MAX,
    Selection, ServeError, ServeOptions, Serving, SharedParts, SimulatedNodes, StageError, Stages,
    WebhookCredentials, abac, admission_config, authorization_config, control_plane, delegation,
    egress, oidc, remote, serve, server_hash, source, webhook_client,
};
#[cfg(all(feature = "runtime", feature = "webhook"))]
pub use webhook_metrics::{LATENCY_SECONDS, WebhookMetrics};

pub use k8s_openapi;
#[cfg(feature = "runtime")]
pub use kube_client;
pub use kube_core;
#[cfg(feature = "derive")]
pub use kube_derive;
#[cfg(feature = "schema")]
pub use schemars;
#[cfg(feature = "server")]
pub use setpoint_apiserver as apiserver;
#[cfg(feature = "runtime")]
pub use setpoint_apply as apply;
#[cfg(feature = "server")]
pub use setpoint_audit as audit;
#[cfg(feature = "encryption")]
pub use setpoint_encryption as encryption;
#[cfg(feature = "runtime")]
pub use setpoint_informer as informer;
#[cfg(feature = "log")]
pub use setpoint_log as log;
pub use setpoint_object as object;
#[cfg(feature = "otlp")]
pub use setpoint_otlp as otlp;
#[cfg(feature = "process-node")]
pub use setpoint_process_node as process_node;
#[cfg(feature = "server")]
pub use setpoint_registry as registry;
#[cfg(feature = "server")]
pub use setpoint_registry::kind;
#[cfg(feature = "runtime")]
pub use setpoint_runtime as runtime;
#[cfg(feature = "runtime")]
pub use setpoint_runtime::crd;
#[cfg(feature = "server")]
pub use setpoint_spans as spans;
#[cfg(feature = "server")]
pub use setpoint_store as store;
#[cfg(feature = "etcd")]
pub use setpoint_store_etcd as etcd;
#[cfg(feature = "testenv")]
pub use setpoint_testenv as testenv;
#[cfg(feature = "testenv")]
pub use setpoint_testenv::test;
#[cfg(feature = "webhook")]
pub use setpoint_webhook as webhook;
#[cfg(feature = "runtime")]
pub use setpoint_workqueue as workqueue;

/// The names that most controllers use: `use setpoint::prelude::*`.
#[cfg(feature = "runtime")]
pub mod prelude {
    #[cfg(feature = "webhook")]
    pub use crate::ManagerWebhooks;
    #[cfg(feature = "schema")]
    pub use kube_core::CustomResourceExt;
    pub use kube_core::{Resource, ResourceExt};
    #[cfg(feature = "derive")]
    pub use kube_derive::CustomResource;
    #[cfg(feature = "schema")]
    pub use schemars::JsonSchema;
    #[cfg(feature = "apply")]
    pub use setpoint_apply::{HasPartial, Partial};
    pub use setpoint_informer::{
        ClientSource, Event, HandlerOptions, InformerFactory, Key, ListWatch, Lister,
        SharedInformer, Tombstone,
    };
    #[cfg(feature = "apply")]
    pub use setpoint_macros::Partial;
    pub use setpoint_runtime::{
        Action, Apply, BoxError, BuildError, CacheOptions, Children, ClientError, Clock, Context,
        Controller, ElectionOptions, Finalize, Manager, ManagerBuilder, MergeFrom, ObjectReference,
        Predicate, RateLimits, Reconciler, Request, Runnable, Terminal, Watch, cancel_on_signal,
        controller_reference, create_or_patch, create_or_update, finalizer, set_condition,
    };
    pub use setpoint_workqueue::WorkQueue;
    pub use tokio_util::sync::CancellationToken;
}
