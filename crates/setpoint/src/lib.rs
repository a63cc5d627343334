//! A declarative control-plane kit.
//!
//! # Theory
//!
//! A control plane is a loop of data, and the whole loop fits in one process. [`ControlPlane`] assembles it: a store, the
//! registry over it, the API server over that. It is built without doing any work; its owner runs it and stops it; clients are
//! handles that wait until it has started.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use setpoint::ControlPlane;
//! use tokio_util::sync::CancellationToken;
//!
//! let plane = ControlPlane::builder().build();
//! let client = plane.client();
//! let stop = CancellationToken::new();
//! let running = plane.run(stop.clone());
//! let asking = async {
//!     let version = client.apiserver_version().await?;
//!     stop.cancel();
//!     Ok::<_, kube_client::Error>(version)
//! };
//! let (ended, version) = tokio::join!(running, asking);
//! ended?;
//! assert_eq!(version?.major, "1");
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! [`ControlPlane::serve`] puts it behind sockets. This program keeps objects and certificates in a folder, serves `kubectl` over TLS,
//! and stops cleanly on SIGINT or SIGTERM (`crates/setpoint/examples/embed.rs`):
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```
//!
//! | an embedder wants | there is |
//! |---|---|
//! | objects in memory, in a folder, in etcd | [`ControlPlaneBuilder::store`] with a [`MemoryStore`](store::MemoryStore), a [`DiskStore`](store::DiskStore), an engine of its own |
//! | several servers on one store | [`ControlPlaneBuilder::shared_as`] |
//! | TLS, certificates, kubeconfig, tokens | [`ServeOptions`], [`ControlPlane::serve`] |
//! | a client, an informer's source, in process | [`ControlPlane::client`], [`ControlPlane::source`] |
//! | HTTP of its own around it | [`ControlPlane::server`], a tower service |
//! | to know when it serves, and to stop it | [`ControlPlane::ready`], [`Serving::run`] |
//! | tests that do the same each time | [`ControlPlaneBuilder::simulated`] |
//!
//! A controller is a function of a key, and runs against this control plane or any cluster:
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use setpoint::prelude::*;
//!
//! async fn reconcile(request: Request, context: Context) -> Result<Action, ClientError> {
//!     let Some(config) = context.client().api::<ConfigMap>().get(&request)? else {
//!         return Ok(Action::await_change()); // deleted
//!     };
//!     // Make the world fit `config`; every step may have been taken already.
//!     Ok(Action::await_change())
//! }
//!
//! # async fn example(client: kube_client::Client, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! let mut manager = Manager::builder(client, Clock::wall()).build();
//! manager.add(Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(reconcile)?)?;
//! manager.run(stop).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A control plane takes the wall clock and the operating system's entropy. One that is
//! [`simulated`](ControlPlaneBuilder::simulated) takes neither: on a current-thread runtime with paused time it does the same thing
//! each time, given the same seed and requests.

mod built_in;
pub mod control_plane;
mod extensions;
mod request_metrics;
pub mod serve;
pub mod source;
mod webhook_metrics;

pub use control_plane::{ControlPlane, ControlPlaneBuilder};
pub use request_metrics::{REQUEST_SECONDS, RequestMetrics};
pub use serve::{ServeError, ServeOptions, Serving};
pub use source::InProcessSource;
pub use webhook_metrics::{LATENCY_SECONDS, WebhookMetrics};

pub use setpoint_apiserver as apiserver;
pub use setpoint_informer as informer;
pub use setpoint_object as object;
pub use setpoint_registry as registry;
pub use setpoint_registry::kind;
pub use setpoint_runtime as runtime;
pub use setpoint_store as store;
pub use setpoint_webhook as webhook;
pub use setpoint_workqueue as workqueue;

/// What most controllers start from: `use setpoint::prelude::*`.
pub mod prelude {
    pub use setpoint_informer::{
        ClientSource, Event, HandlerOptions, InformerFactory, Key, ListWatch, Lister,
        SharedInformer, Tombstone,
    };
    pub use setpoint_runtime::{
        Action, Apply, ClientError, Clock, Context, Controller, ElectionOptions, Finalize, Manager,
        ObjectReference, Predicate, Prune, Reconciler, Request, Runnable, Terminal, Watch,
        cancel_on_signal, controller_reference, create_or_update, finalizer, set_condition,
    };
    pub use setpoint_workqueue::WorkQueue;
    pub use tokio_util::sync::CancellationToken;
}
