//! Manager, controllers and reconcilers: from a changed object to a function that makes the world
//! fit it.
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
//! A [`Reconciler`] is told *which* object to look at, never what happened to it: it reads the
//! present state and makes the rest fit. What it promises in return:
//!
//! - One key is reconciled by one worker at a time, and a change that comes meanwhile causes one
//!   more pass.
//! - A pass that fails, or panics, is repeated with back-off; the table at [`Action`] says what
//!   happens to a key after each outcome.
//! - A pass sees in the caches what the pass before it wrote of the types it watches: a key is held
//!   until they show it, for at most [`CATCH_UP_MAX`](controller::CATCH_UP_MAX). Reads across keys
//!   have no such promise; within a pass, and of any cached type, [`Api::get_own`] waits for what
//!   was written.
//! - A deletion is told, also one that was missed: a tombstone carries its key.
//!
//! Who owns what: [`Manager::run`] owns every task, in join sets. It starts the caches, then the
//! controllers, which wait for *their own* caches only: a type that nobody serves yet holds up
//! nobody else. It stops them in the opposite order within one deadline, and the event recorder
//! last. The first failure of any task stops all, and is what `run` returns.
//!
//! Defaults are for production: the wall clock, and a seed from the operating system's entropy.
//! Nothing else reads the clock or draws chance: time is tokio's and the [`Clock`]'s, chance comes
//! from the manager's seed. On a current-thread runtime with paused time, a manager with a
//! [`clock`](ManagerBuilder::clock) and a [`seed`](ManagerBuilder::seed) is a function of its
//! client and these two.
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
//! | wanted                                   | use                                      | what holds it                                |
//! |------------------------------------------|------------------------------------------|----------------------------------------------|
//! | one process works, others stand by       | [`ManagerBuilder::leader_election`]      | a Lease ([`election`]), and writes that it [fences](fence) |
//! | all work, each key in one process        | [`ControllerBuilder::sharded`]           | a Lease per replica ([`shard`]), fenced alike |
//!
//! # Where to look
//!
//! | question                                       | answer                                                                    |
//! |------------------------------------------------|---------------------------------------------------------------------------|
//! | where keys come from                           | [`Watch`], [`EventHandler`](source::EventHandler), [`HandlerFns`](source::HandlerFns), [`Source`](source::Source); at run time [`Watches`](source::Watches) |
//! | which events count                             | [`Predicate`], of a watch or of all of a controller's watches |
//! | who goes first                                 | priorities: the table at [`Enqueue`](source::Enqueue), [`Action::priority`], [`AtPriority`](reconciler::AtPriority) |
//! | how fast a key may come                        | [`ControllerBuilder::rate_limiter`], [`RateLimits`]                       |
//! | what a pass may know of itself                 | [`Context`]: attempt, priority, cause, deadline                           |
//! | why a pass ran, and what it read and wrote     | [`ControllerHandle::explain`]                                             |
//! | how a controller does                          | [`ControllerHandle`]: state, stats, queue, sources; [`metrics`]           |
//! | how a program is probed and scraped            | module `endpoint`: [`ManagerBuilder`]'s `health` and `serve_metrics`      |
//! | what starts and stops when                     | the table at [`Manager`]; [`Runnable`]; while it runs: [`ManagerHandle`]  |
//! | which objects of a type are cached             | [`CacheOptions`], [`ManagerBuilder::namespaces`]                          |
//! | several clusters                               | [`Manager::add_cluster`], [`Watch::cluster`]                              |
//! | which resource a kind is                       | [`Mapper`](mapper::Mapper), from [`ManagerHandle::mapper`]                                |
//!
//! # Names
//!
//! The root has what nearly every controller uses. Each noun is a module with the rest: limits,
//! errors, options.
//!
//! | module | what is in it |
//! |---|---|
//! | [`manager`], [`cluster`], [`election`], [`fence`], [`shard`] | what runs where, and who may write |
//! | [`controller`], [`reconciler`], [`request`], [`context`], [`explain`] | controllers, their passes, and why a pass ran |
//! | [`source`], [`predicate`], [`queue`] | where keys come from, which count, and how they wait |
//! | [`client`], [`cache`], [`mapper`] | reads, writes, and which resource a kind is |
//! | [`crd`] | the definitions of custom types that a program brings along |
//! | [`condition`], [`finalizer`](mod@finalizer), [`owner`], [`prune`], [`adopt`], [`upsert`] | what reconcilers do to objects |
//! | [`recording`] | a run written to a file, and replayed |
//! | [`events`], [`metrics`], `endpoint` (feature `endpoints`), `telemetry` (feature `otel`) | Events, metrics, probes, traces |
//!
//! # Knows nothing of
//!
//! Who serves: everything runs over a `kube_client::Client`, be it a cluster or a server in this
//! process.

pub mod adopt;
#[cfg(not(feature = "broken-rules"))]
mod broken;
#[cfg(feature = "broken-rules")]
pub mod broken;
pub mod cache;
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
pub mod prune;
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
pub use prune::Prune;
pub use reconciler::{Action, BoxError, Reconciler, Terminal};
pub use request::Request;
pub use shard::{ShardOptions, Sharded};
pub use signal::cancel_on_signal;
pub use source::Watch;
pub use upsert::{create_or_patch, create_or_update};

pub use setpoint_object::time::{Clock, Timestamp};

/// How keys wait: options of an add, and what decides who goes first and how fast.
pub mod queue {
    pub use setpoint_workqueue::{AddOptions, Group, PRIORITY_LOW, Priorities, RateLimiter};
}
