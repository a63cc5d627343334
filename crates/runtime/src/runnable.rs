//! Tasks that a manager runs besides controllers.

use std::{fmt, future::Future};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::error::BoxError;

/// A task for a [`Manager`](crate::Manager), and when it runs.
///
/// It runs until its token is cancelled or its work is done. Returning early with success is fine,
/// and it is not restarted. An error stops the manager (MGR-8).
///
/// | made by      | starts                                                          | stops                     |
/// |--------------|-----------------------------------------------------------------|---------------------------|
/// | [`new`]      | when this process is elected, as controllers do                 | before the caches         |
/// | [`new`] with [`needs_leader`]`(false)` | when the caches have synced            | before the leader's tasks |
/// | [`warm_up`]  | before the election; is notified when this process is elected   | before the caches         |
/// | [`webhooks`] | before the caches, whose lists may need conversion webhooks     | after the caches          |
/// | [`server`]   | first                                                           | last                      |
///
/// [`new`]: Self::new
/// [`needs_leader`]: Self::needs_leader
/// [`warm_up`]: Self::warm_up
/// [`webhooks`]: Self::webhooks
/// [`server`]: Self::server
#[must_use = "a runnable does nothing until a manager runs it"]
pub struct Runnable {
    pub(crate) group: Group,
    pub(crate) run: Run,
}

/// The groups of MGR-1 to 6, in the order in which they start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// HTTP servers.
    Server,
    /// Admission and conversion webhooks.
    Webhook,
    /// Tasks of every replica.
    Other,
    /// Tasks that warm up in every replica and work on the leader.
    WarmUp,
    /// Tasks of the leader.
    Leader,
}

pub(crate) type Run = Box<dyn FnOnce(Start) -> BoxFuture<'static, Result<(), BoxError>> + Send>;

/// The arguments that a member is started with.
pub(crate) struct Start {
    pub(crate) stop: CancellationToken,
    /// Cancelled when the member may do its group's work: this process was elected, or the work
    /// needs no leader.
    pub(crate) go: CancellationToken,
}

impl Runnable {
    /// A task that runs on the leader only. Without an election, every process leads (MGR-6).
    pub fn new<Fut>(run: impl FnOnce(CancellationToken) -> Fut + Send + 'static) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self::of(Group::Leader, run)
    }

    /// A server: started first, stopped last (MGR-1). Bind its port before.
    pub fn server<Fut>(run: impl FnOnce(CancellationToken) -> Fut + Send + 'static) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self::of(Group::Server, run)
    }

    /// A server of admission or conversion webhooks: started before the caches, stopped after them
    /// (MGR-2).
    pub fn webhooks<Fut>(run: impl FnOnce(CancellationToken) -> Fut + Send + 'static) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self::of(Group::Webhook, run)
    }

    /// A task that warms up before the election, so that it can work as soon as this process is
    /// elected: the second argument is cancelled then (MGR-5). The election does not wait for it
    /// (MGR-7).
    pub fn warm_up<Fut>(
        run: impl FnOnce(CancellationToken, Elected) -> Fut + Send + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let run: Run = Box::new(move |start| Box::pin(run(start.stop, Elected::new(start.go))));
        Self { group: Group::WarmUp, run }
    }

    /// Whether a task made by [`new`](Self::new) runs on the leader only. Default: yes. Otherwise
    /// it runs in every replica (MGR-4). No effect on servers, webhooks and tasks with a warm-up.
    pub fn needs_leader(mut self, needs_leader: bool) -> Self {
        self.group = match (self.group, needs_leader) {
            (Group::Leader, false) => Group::Other,
            (Group::Other, true) => Group::Leader,
            (group, _) => group,
        };
        self
    }

    fn of<Fut>(group: Group, run: impl FnOnce(CancellationToken) -> Fut + Send + 'static) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self { group, run: Box::new(move |start| Box::pin(run(start.stop))) }
    }
}

impl fmt::Debug for Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runnable").field("group", &self.group).finish_non_exhaustive()
    }
}

/// Whether a manager's leader-only members have started: it was elected, or there is no election
/// (LE-17). Cheap to clone. Never reverts: a manager that loses its leadership ends.
#[derive(Debug, Clone)]
pub struct Elected(CancellationToken);

impl Elected {
    pub(crate) fn new(elected: CancellationToken) -> Self {
        Self(elected)
    }

    /// Whether they have been started.
    pub fn is_elected(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until they have been started, possibly for ever. Cancel safe: it only observes.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }
}
