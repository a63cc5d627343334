//! Manager, controllers and reconcilers: watches objects, and calls a function for each object that
//! changed.
//!
//! # Theory
//!
//! ```text
//!   informer ──▶ predicates ──▶ mapping ──▶ WorkQueue ──▶ worker ──▶ Reconciler::reconcile
//!   shared by all               event →         ▲                        │           │
//!   controllers                 keys            │                      Action     Context
//!                                               │                        │           ├─▶ Client
//!                                               └─ add_after ────────────┤           └─▶ EventRecorder
//!                                                  add_rate_limited ─────┘
//!
//!   Client: reads from the cache, writes to the server
//! ```
//!
//! A [`Reconciler`] gets the *key* of an object, never the event. It reads the current state and
//! brings the actual state to the desired one. The runtime guarantees:
//!
//! - One key is reconciled by one worker at a time. A change during a pass causes one more pass.
//! - A pass that fails or panics is retried with back-off. The table at [`Action`] lists what
//!   happens to a key after each outcome.
//! - A pass reads the writes of the previous pass over its key from the caches, if the controller
//!   watches their types. For that, the key is held back until the caches show the writes, for at
//!   most [`CATCH_UP_MAX`](controller::CATCH_UP_MAX). There is no such guarantee across keys.
//!   Within a pass, and for any cached type, [`Api::get_own`] waits for the pass's own writes.
//! - All deletions are delivered. For a missed one, a tombstone carries the key.
//!
//! [`Manager::run`] owns every task, in join sets. It starts the caches and then the controllers. A
//! controller waits for *its own* caches only, so a type that is not served yet delays no other
//! controller. It stops them in reverse order within one deadline, the event recorder last. The
//! first failure of any task stops all of them, and `run` returns it.
//!
//! Defaults are for production: the wall clock, and a seed from the operating system's entropy.
//! Nothing else reads the clock or draws randomness: time comes from tokio and the [`Clock`],
//! randomness from the manager's seed. With a [`clock`](ManagerBuilder::clock), a
//! [`seed`](ManagerBuilder::seed) and a current-thread runtime with paused time, a manager is
//! deterministic: it depends on its client and these two only.
//!
//! # A controller
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use setpoint_runtime::{Action, Context, Controller, Manager, Request, Watch, ClientError};
//! # async fn example(client: kube_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! async fn reconcile(request: Request, context: Context) -> Result<Action, ClientError> {
//!     let Some(config) = context.client().api::<ConfigMap>().get(&request)? else {
//!         return Ok(Action::await_change()); // deleted
//!     };
//!     tracing::info!(keys = config.data.as_ref().map_or(0, |data| data.len()), "seen");
//!     Ok(Action::await_change())
//! }
//!
//! let mut manager = Manager::new(client);
//! manager.add(Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(reconcile)?)?;
//! manager.run_until_signal().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Several replicas
//!
//! | goal                                     | use                                      | based on                                     |
//! |------------------------------------------|------------------------------------------|----------------------------------------------|
//! | one process works, others stand by       | [`ManagerBuilder::leader_election`]      | a Lease ([`election`]); writes are [fenced](fence) by it |
//! | all work, each key in one process        | [`ControllerBuilder::sharded`]           | a Lease per replica ([`shard`]); writes are fenced too |
//!
//! # Where to look
//!
//! | question                                       | answer                                                                    |
//! |------------------------------------------------|---------------------------------------------------------------------------|
//! | where keys come from                           | [`Watch`], [`EventHandler`](source::EventHandler), [`HandlerFns`](source::HandlerFns), [`Source`](source::Source); at run time [`Watches`](source::Watches) |
//! | which events count                             | [`Predicate`], of a watch or of all of a controller's watches |
//! | which keys go first                            | priorities: the table at [`Enqueue`](source::Enqueue), [`Action::priority`], [`AtPriority`](reconciler::AtPriority) |
//! | how often a key is reconciled                  | [`ControllerBuilder::rate_limiter`], [`RateLimits`]                       |
//! | what a pass knows about itself                 | [`Context`]: attempt, priority, cause, deadline                           |
//! | why a pass ran, and what it read and wrote     | [`ControllerHandle::explain`]                                             |
//! | the state of a controller                      | [`ControllerHandle`]: state, stats, queue, sources; [`metrics`]           |
//! | health probes and metrics over HTTP            | module `endpoint`: [`ManagerBuilder`]'s `health` and `serve_metrics`      |
//! | what starts and stops when                     | the table at [`Manager`]; [`Runnable`]; while it runs: [`ManagerHandle`]  |
//! | which objects of a type are cached             | [`CacheOptions`], [`ManagerBuilder::namespaces`]                          |
//! | several clusters                               | [`ManagerHandle::add_cluster`], [`Watch::cluster`]                        |
//! | which resource a kind is                       | [`Mapper`](mapper::Mapper), from [`ManagerHandle::mapper`]                                |
//!
//! # Names
//!
//! The root holds what nearly every controller uses. The modules hold the rest: limits, errors,
//! options.
//!
//! | module | contents |
//! |---|---|
//! | [`manager`], [`cluster`], [`election`], [`fence`], [`shard`] | what runs where, and who may write |
//! | [`controller`], [`reconciler`], [`request`], [`context`], [`explain`] | controllers, their passes, and why a pass ran |
//! | [`source`], [`predicate`], [`queue`] | where keys come from, which count, and how they wait |
//! | [`client`], [`cache`], [`mapper`] | reads, writes, and which resource a kind is |
//! | [`crd`] | CustomResourceDefinitions that a program installs |
//! | [`condition`], [`finalizer`](mod@finalizer), [`owner`], [`children`], [`adopt`], [`upsert`] | what reconcilers do to objects |
//! | [`recording`] | a run written to a file, and replayed |
//! | [`events`], [`metrics`], `endpoint` (feature `endpoints`), `telemetry` (feature `otel`) | Events, metrics, probes, traces |
//!
//! # Independent of the server
//!
//! Everything runs over a `kube_client::Client`: to a cluster, or to a server in this process.

pub mod adopt;
pub mod answer;
pub mod cache;
pub mod children;
pub mod client;
pub mod cluster;
pub mod condition;
pub mod context;
pub mod controller;
pub mod crd;
pub mod election;
#[cfg(feature = "endpoints")]
pub mod endpoint;
mod error;
pub mod events;
pub mod explain;
pub mod fence;
pub mod finalizer;
pub mod manager;
pub mod mapper;
pub mod metrics;
pub mod owner;
mod pass;
pub mod predicate;
pub mod reconciler;
pub mod recording;
pub mod request;
mod runnable;
pub mod shard;
mod signal;
pub mod source;
#[cfg(feature = "otel")]
pub mod telemetry;
#[cfg(not(feature = "otel"))]
mod telemetry;
pub mod upsert;

pub use cache::{Cache, CacheOptions};
pub use children::Children;
pub use client::{Api, Apply, Client, ClientError, MergeFrom};
pub use condition::set_condition;
pub use context::Context;
pub use controller::{
    BuildError, Controller, ControllerBuilder, ControllerHandle, ControllerState, RateLimits,
};
pub use election::ElectionOptions;
pub use events::{EventRecorder, ObjectReference};
pub use explain::Explanation;
pub use finalizer::{Finalize, finalizer};
pub use manager::{Manager, ManagerBuilder, ManagerError, ManagerHandle, Runnable};
pub use owner::{controller_reference, owner_reference};
pub use predicate::Predicate;
pub use reconciler::{Action, BoxError, Reconciler, Terminal};
pub use request::Request;
pub use shard::{ShardOptions, Sharded};
pub use signal::cancel_on_signal;
pub use source::Watch;
pub use upsert::{create_or_patch, create_or_update};

pub use setpoint_object::{
    GroupVersionKind,
    time::{Clock, Timestamp},
};

/// The work queue's types: options of an add, priorities, groups and rate limiters.
pub mod queue {
    pub use setpoint_workqueue::{AddOptions, Group, PRIORITY_LOW, Priorities, RateLimiter};
}
