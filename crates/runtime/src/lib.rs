//! Manager, controllers and reconcilers: from a changed object to a function that makes the world fit it.
//!
//! # Theory
//!
//! ```text
//!   informer ──▶ predicates ──▶ mapping ──▶ WorkQueue ──▶ worker ──▶ Reconciler::reconcile(request, context)
//!   (shared by all              (event → keys)                                │        │
//!    controllers)                     ▲                                       │        ├─▶ Client: reads from the cache,
//!                                     └──── add_after / add_rate_limited ◀── Action    │   writes to the server
//!                                                                                      └─▶ EventRecorder
//! ```
//!
//! A [`Reconciler`] is told *which* object to look at, never what happened to it: it reads the present state and makes the rest fit.
//! What it promises in return:
//!
//! - One key is reconciled by one worker at a time, and a change that comes meanwhile causes one more pass.
//! - A pass that fails, or panics, is repeated with back-off; the table at [`Action`] says what happens to a key after each outcome.
//! - A pass sees in the caches what the pass before it wrote of the types it watches: a key is held until they show it, for at most
//!   [`CATCH_UP_MAX`]. Reads across keys have no such promise.
//! - A deletion is told, also one that was missed: a tombstone carries its key.
//!
//! Who owns what: [`Manager::run`] owns every task, in join sets. It starts the caches, then the controllers, which wait for *their own*
//! caches only: a type that nobody serves yet holds up nobody else. It stops them in the opposite order within one deadline, and the event
//! recorder last. The first failure of any task stops all, and is what `run` returns.
//!
//! Nothing here reads the wall clock or draws from the system's chance: time is tokio's and the [`Clock`]'s, chance comes from
//! the manager's seed. On a current-thread runtime with paused time, a manager is a function of its client and its seed.
//!
//! # A controller
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use setpoint_runtime::{Action, Clock, Context, Controller, Manager, Request, Watch, ClientError};
//! # async fn example(client: kube_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! async fn reconcile(request: Request, context: Context) -> Result<Action, ClientError> {
//!     let Some(config) = context.client().api::<ConfigMap>().get(&request)? else {
//!         return Ok(Action::await_change()); // deleted
//!     };
//!     tracing::info!(keys = config.data.as_ref().map_or(0, |data| data.len()), "seen");
//!     Ok(Action::await_change())
//! }
//!
//! let mut manager = Manager::builder(client, Clock::wall()).build();
//! manager.add(Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(reconcile)?)?;
//! let stop = tokio_util::sync::CancellationToken::new();
//! manager.run(stop).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Not here yet
//!
//! Leader election, metrics and health endpoints, sharding, webhooks, priorities of keys, adding controllers to a manager that runs, and
//! watches of metadata alone. The counters that endpoints will serve exist: [`ControllerHandle::stats`],
//! [`EventRecorder::lost`].
//!
//! # Knows nothing of
//!
//! Who serves: everything runs over a `kube_client::Client`, be it a cluster or a server in this process.

mod cache;
mod client;
mod condition;
mod context;
mod controller;
mod event;
mod finalizer;
mod manager;
mod owner;
mod predicate;
mod reconciler;
mod request;
mod signal;
mod upsert;
mod watch;

pub use cache::Cache;
pub use client::{Api, BODY_BYTES_MAX, Call, Client, ClientError, Origin};
pub use condition::{ConditionStatus, set_condition};
pub use context::{Context, ReconcileId};
pub use controller::{
    BuildError, CATCH_UP_MAX, Controller, ControllerBuilder, ControllerError, ControllerHandle,
    ControllerState, ControllerStats, SYNC_TIMEOUT,
};
pub use event::{EventRecorder, EventType, ObjectReference};
pub use finalizer::{Finalize, FinalizerError, finalizer};
pub use manager::{
    AddError, GRACE_PERIOD, Grace, Manager, ManagerBuilder, ManagerError, Readiness,
};
pub use owner::{OwnerError, controller_of, owner_reference, set_controller_reference};
pub use predicate::Predicate;
pub use reconciler::{Action, BoxError, Reconciler, Requeue, Terminal, is_terminal};
pub use request::{Request, RequestKey};
pub use signal::cancel_on_signal;
pub use upsert::{UpsertError, Upserted, create_or_update};
pub use watch::Watch;

pub use setpoint_object::time::Clock;
