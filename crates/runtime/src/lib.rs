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
//!   [`CATCH_UP_MAX`]. Reads across keys have no such promise; within a pass, and of any cached type, [`Api::get_own`] waits for
//!   what was written.
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
//! | where keys come from                           | [`Watch`], [`EventHandler`], [`HandlerFns`], [`Source`]; at run time [`Watches`] |
//! | which events count                             | [`Predicate`] of a watch, [`EventFilter`] of all of a controller's watches |
//! | who goes first                                 | priorities: the table at [`Enqueue`], [`Action::priority`], [`AtPriority`] |
//! | how fast a key may come                        | [`ControllerBuilder::backoff`], `retries`, `min_interval`, `max_attempts`  |
//! | what a pass may know of itself                 | [`Context`]: attempt, priority, cause, deadline                           |
//! | why a pass ran, and what it read and wrote     | [`ControllerHandle::explain`]                                             |
//! | how a controller does                          | [`ControllerHandle`]: state, stats, queue, sources; [`metrics`]           |
//! | how a program is probed and scraped            | module `endpoint`: [`ManagerBuilder`]'s `health` and `serve_metrics`      |
//! | what starts and stops when                     | the table at [`Manager`]; [`Runnable`]; while it runs: [`ManagerHandle`]  |
//! | which objects of a type are cached             | [`cache::CacheRules`]                                                     |
//! | several clusters                               | [`Manager::add_cluster`], [`Watch::cluster`]                              |
//! | which resource a kind is                       | [`Mapper`], from [`ManagerHandle::mapper`]                                |
//!
//! # Knows nothing of
//!
//! Who serves: everything runs over a `kube_client::Client`, be it a cluster or a server in this process.

mod adopt;
#[cfg(not(feature = "broken-rules"))]
mod broken;
#[cfg(feature = "broken-rules")]
pub mod broken;
pub mod cache;
mod client;
mod cluster;
mod condition;
mod context;
mod controller;
pub mod election;
#[cfg(feature = "endpoints")]
pub mod endpoint;
mod event;
mod explain;
pub mod fence;
mod finalizer;
mod manager;
mod mapper;
pub mod metrics;
mod owner;
mod predicate;
mod prune;
mod reconciler;
mod request;
pub mod shard;
mod signal;
mod source;
mod telemetry;
mod upsert;

pub use adopt::{Claim, ClaimError, Claimed};
pub use cache::Cache;
pub use client::layer;
pub use client::{
    Api, Apply, ApplyError, BODY_BYTES_MAX, Call, Client, ClientError, FieldValidation, LiveEvent,
    LiveWatch, LiveWatchError, MergeFrom, NOTES_MAX, Note, Noting, OWN_WRITE_WAIT_MAX,
    OWN_WRITES_MAX, Origin, Page, ReadFrom, Retry, Select, Subresource, WARNING_TEXTS_MAX,
    WarningPolicy, WriteOutcome, ignore_already_exists, ignore_not_found,
};
pub use cluster::{CLUSTERS_MAX, Cluster, ClusterBuilder};
pub use condition::{
    CONDITION_MESSAGE_CHARS_MAX, CONDITION_REASON_CHARS_MAX, CONDITION_TYPE_CHARS_MAX,
    ConditionError, ConditionStatus, check_condition, find_condition, has_condition,
    is_condition_current, is_condition_true, remove_condition, set_condition,
};
pub use context::{Context, ReconcileId};
pub use controller::{
    BuildError, CATCH_UP_MAX, CONTROLLER_NAME_CHARS_MAX, Controller, ControllerBuilder,
    ControllerDefaults, ControllerError, ControllerHandle, ControllerState, ControllerStats,
    PRIORITY_AGEING, SYNC_TIMEOUT, SyncHint,
};
pub use election::{ElectionError, ElectionOptions, LeaderElector, Leadership};
pub use event::{
    EVENT_QUEUE_MAX, EVENT_WORD_BYTES_MAX, EventApi, EventBuilder, EventLosses, EventRecorder,
    EventType, NOTE_BYTES_MAX, ObjectReference, UnknownEventType,
};
pub use explain::{Cause, ERROR_BYTES_MAX, EXPLAINED_PASSES, Explanation, PassOutcome, Writer};
pub use fence::{Fence, Fenced};
pub use finalizer::{
    Finalize, FinalizerError, FinalizerNameError, Finalizers, FinalizersError, add_finalizer,
    finalizer, has_finalizer, remove_finalizer,
};
pub use manager::{
    AddError, Elected, GRACE_PERIOD, Grace, MEMBERS_MAX, Manager, ManagerBuilder, ManagerError,
    ManagerHandle, Readiness, Runnable,
};
pub use mapper::{MAPPER_ASK_AGAIN, Mapper, MapperError, Mapping};
pub use owner::{
    OwnerError, controller_of, controller_reference, has_owner_reference, owner_reference,
    remove_owner_reference, set_controller_reference, set_owner_reference,
};
pub use predicate::{AnyEvent, EventFilter, Observed, Predicate};
pub use prune::{Child, PRUNE_CONCURRENCY_MAX, Prune, PruneError, Pruned};
pub use reconciler::{
    Action, AtPriority, BoxError, ForObject, ObjectReconciler, Reconciler, Requeue, Terminal,
    for_object, for_object_with, is_terminal,
};
pub use request::{Request, RequestKey};
pub use shard::{ShardOptions, Sharded};
pub use signal::cancel_on_signal;
pub use source::{
    Enqueue, EventHandler, HandlerFns, KeySink, Source, SourceFn, SourceRun, SourceStatus, Watch,
    WatchError, WatchHandle, Watches, source_fn,
};
#[cfg(feature = "otel")]
pub use telemetry::Traces;
pub use upsert::{UpsertError, Upserted, create_or_patch, create_or_update};

pub use setpoint_object::time::{Clock, Timestamp};
pub use setpoint_workqueue::{AddOptions, Group, PRIORITY_LOW, Priorities, RateLimiter};
