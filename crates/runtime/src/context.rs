//! What a reconciler works with.

use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
};

use setpoint_object::{GroupVersionKind, time::Clock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use crate::pass::ReconcileId;
use crate::{
    client::Client,
    events::EventRecorder,
    pass::{AnyPass, Cause},
    request::RequestKey,
    source::Watches,
};

/// What a reconciler is given for one pass: the client, the recorder, the clock, and which pass
/// this is. Cheap to clone.
///
/// What a reconciler needs of its own, a back-end or settings, are its fields.
#[derive(Clone)]
pub struct Context {
    // Helpers.
    pub(crate) home: Arc<Home>,
    /// Made when it is first asked for: a pass that finds nothing to do may never.
    client: OnceLock<Client>,
    pass: Arc<dyn AnyPass>,

    // Which pass this is.
    which: Which,
}

/// What all passes of a worker have in common.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: Clock,
    pub(crate) stopping: CancellationToken,
    pub(crate) controller: Arc<str>,
    pub(crate) kind: Option<GroupVersionKind>,
    /// The controller's `Watches<R>`.
    pub(crate) watches: Arc<dyn Any + Send + Sync>,
}

/// Which pass it is, and what it was handed out with.
#[derive(Clone, Copy)]
pub(crate) struct Which {
    pub(crate) reconcile_id: ReconcileId,
    pub(crate) attempt: u32,
    pub(crate) priority: i32,
    pub(crate) cause: Cause,
    pub(crate) deadline: Option<Instant>,
}

impl Context {
    pub(crate) fn new(home: Arc<Home>, pass: Arc<dyn AnyPass>, which: Which) -> Self {
        Self { home, client: OnceLock::new(), pass, which }
    }

    /// The client: reads from the cache, writes to the server. Its requests carry the
    /// [`Origin`](crate::client::Origin) of this pass.
    pub fn client(&self) -> &Client {
        self.client.get_or_init(|| self.home.client.for_pass(self.pass.clone()))
    }

    /// Where to tell what happened, in the controller's name.
    pub fn recorder(&self) -> &EventRecorder {
        &self.home.recorder
    }

    /// What time it is.
    pub fn clock(&self) -> &Clock {
        &self.home.clock
    }

    /// The controller's name.
    pub fn controller(&self) -> &str {
        &self.home.controller
    }

    /// The kind that the controller is [`for_`](crate::ControllerBuilder::for_), if it is for one.
    pub fn kind(&self) -> Option<&GroupVersionKind> {
        self.home.kind.as_ref()
    }

    /// The controller's watches, to be added to and taken from; `None` if its keys are no `R`.
    pub fn watches<R: RequestKey>(&self) -> Option<Watches<R>> {
        self.home.watches.downcast_ref::<Watches<R>>().cloned()
    }

    /// Which pass this is, among all passes of all controllers.
    pub fn reconcile_id(&self) -> ReconcileId {
        self.which.reconcile_id
    }

    /// How many passes over this key have failed, or asked to be repeated, in a row: zero at first.
    pub fn attempt(&self) -> u32 {
        self.which.attempt
    }

    /// Why this pass runs: of several reasons, the one that decided when.
    pub fn cause(&self) -> Cause {
        self.which.cause
    }

    /// The priority with which the key was handed out, which it keeps unless the
    /// [`Action`](crate::Action) says otherwise.
    pub fn priority(&self) -> i32 {
        self.which.priority
    }

    /// When this pass will be dropped where it waits, if it may not take [for
    /// ever](crate::ControllerBuilder::reconcile_timeout). A pass that returns before decides
    /// itself what that means.
    pub fn deadline(&self) -> Option<Instant> {
        self.which.deadline
    }

    /// Cancelled when the controller is to stop: long work should end at the next safe point.
    pub fn stopping(&self) -> &CancellationToken {
        &self.home.stopping
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("controller", &self.home.controller)
            .field("reconcile_id", &self.which.reconcile_id)
            .field("attempt", &self.which.attempt)
            .finish_non_exhaustive()
    }
}
