//! The arguments of a pass.

use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use setpoint_object::{GroupVersionKind, time::Clock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use crate::pass::ReconcileId;
use crate::{
    client::Client,
    cluster::Cluster,
    events::EventRecorder,
    pass::{AnyPass, CacheId, Cause},
    request::RequestKey,
    source::Watches,
};

/// The context of one pass: client, recorder, clock, and the pass's own data. Cheap to clone.
///
/// Dependencies of your own, a back-end or settings, are fields of the reconciler.
#[derive(Clone)]
pub struct Context {
    // Helpers.
    pub(crate) common: Arc<CommonContext>,
    /// Made at the first use: many passes need none.
    client: OnceLock<Client>,
    pass: Arc<dyn AnyPass>,

    // The pass's own data.
    info: PassInfo,
}

/// What all passes of a worker share.
#[derive(Clone)]
pub(crate) struct CommonContext {
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: Clock,
    pub(crate) stopping: CancellationToken,
    pub(crate) controller: Arc<str>,
    pub(crate) kind: Option<GroupVersionKind>,
    /// The controller's `Watches<R>`.
    pub(crate) watches: Arc<dyn Any + Send + Sync>,
    /// The clients of other clusters that passes have used.
    pub(crate) elsewhere: Arc<Mutex<HashMap<CacheId, Client>>>,
}

/// The data of one pass.
#[derive(Clone, Copy)]
pub(crate) struct PassInfo {
    pub(crate) reconcile_id: ReconcileId,
    pub(crate) attempt: u32,
    pub(crate) priority: i32,
    pub(crate) cause: Cause,
    pub(crate) deadline: Option<Instant>,
}

impl Context {
    pub(crate) fn new(common: Arc<CommonContext>, pass: Arc<dyn AnyPass>, info: PassInfo) -> Self {
        Self { common, client: OnceLock::new(), pass, info }
    }

    /// The client: reads from the cache, writes to the server. Its requests carry this pass's
    /// [`Origin`](crate::client::Origin).
    pub fn client(&self) -> &Client {
        self.client.get_or_init(|| self.common.client.for_pass(self.pass.clone()))
    }

    /// The client of another cluster: as [`client`](Self::client), with the controller's field
    /// manager, behind the same fence, and recorded for [explanations](crate::explain). A key that
    /// wrote there is held back until the controller's watches of that cluster show it.
    ///
    /// [`Cluster::client`] has none of these.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use setpoint_runtime::{Action, BoxError, Context, Reconciler, Request, cluster::Cluster};
    /// /// Copies a ConfigMap to another cluster.
    /// struct Copier {
    ///     to: Cluster,
    /// }
    ///
    /// impl Reconciler for Copier {
    ///     type Error = BoxError;
    ///
    ///     async fn reconcile(&self, key: Request, context: Context) -> Result<Action, BoxError> {
    ///         if let Some(map) = context.client().api::<ConfigMap>().get(&key)? {
    ///             let mut copy = ConfigMap { data: map.data.clone(), ..ConfigMap::default() };
    ///             copy.metadata.name = map.metadata.name.clone();
    ///             copy.metadata.namespace = map.metadata.namespace.clone();
    ///             context.client_of(&self.to).api::<ConfigMap>().create(&copy).await?;
    ///         }
    ///         Ok(Action::await_change())
    ///     }
    /// }
    /// ```
    pub fn client_of(&self, cluster: &Cluster) -> Client {
        let id = cluster.cache().id();
        let mut elsewhere = self.common.elsewhere.lock();
        let removed: Vec<_> = match elsewhere.contains_key(&id) {
            true => Vec::new(),
            false => {
                elsewhere.extract_if(|_, client| client.cache().closed().is_cancelled()).collect()
            }
        };
        let client = elsewhere.entry(id).or_insert_with(|| {
            self.common.client.for_cluster(cluster.name().into(), cluster.client())
        });
        let client = client.for_pass(self.pass.clone());
        drop(elsewhere);
        drop(removed);
        client
    }

    /// Records events in the controller's name.
    pub fn recorder(&self) -> &EventRecorder {
        &self.common.recorder
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.common.clock
    }

    /// The controller's name.
    pub fn controller(&self) -> &str {
        &self.common.controller
    }

    /// The kind that the controller is [`for_`](crate::ControllerBuilder::for_), if any.
    pub fn kind(&self) -> Option<&GroupVersionKind> {
        self.common.kind.as_ref()
    }

    /// The controller's watches, to add and remove; `None` if its keys are not `R`.
    pub fn watches<R: RequestKey>(&self) -> Option<Watches<R>> {
        self.common.watches.downcast_ref::<Watches<R>>().cloned()
    }

    /// The unique id of this pass.
    pub fn reconcile_id(&self) -> ReconcileId {
        self.info.reconcile_id
    }

    /// How many passes over this key in a row have failed or asked for a requeue; zero at first.
    pub fn attempt(&self) -> u32 {
        self.info.attempt
    }

    /// Why this pass runs. If there are several causes, the one that determined its time.
    pub fn cause(&self) -> Cause {
        self.info.cause
    }

    /// The priority that the key was handed out with. A requeue keeps it unless the
    /// [`Action`](crate::Action) sets another.
    pub fn priority(&self) -> i32 {
        self.info.priority
    }

    /// When this pass times out and is dropped; `None` without a
    /// [time-out](crate::ControllerBuilder::reconcile_timeout).
    pub fn deadline(&self) -> Option<Instant> {
        self.info.deadline
    }

    /// Cancelled when the controller stops: long work should end at the next safe point.
    pub fn stopping(&self) -> &CancellationToken {
        &self.common.stopping
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("controller", &self.common.controller)
            .field("reconcile_id", &self.info.reconcile_id)
            .field("attempt", &self.info.attempt)
            .finish_non_exhaustive()
    }
}
