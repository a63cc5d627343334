//! What a manager runs beside controllers.

use std::{fmt, future::Future};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::error::BoxError;

/// A task for a [`Manager`](crate::Manager): what it does, and when it may run.
///
/// It runs until its token is cancelled, or until its work is done: an early success is fine and it
/// is not started again; an error stops the manager (MGR-8).
///
/// | made by      | starts                                                          | stops                     |
/// |--------------|-----------------------------------------------------------------|---------------------------|
/// | [`new`]      | when this process is the leader, as controllers do              | before the caches         |
/// | [`new`] with [`needs_leader`]`(false)` | when the caches have synced            | before the leader's tasks |
/// | [`warm_up`]  | before the election; told when this process has been elected    | before the caches         |
/// | [`webhooks`] | before the caches, which may need it to convert what they list  | after the caches          |
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

/// When a member runs: the groups of MGR-1 to 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// HTTP servers.
    Server,
    /// Servers of admission and conversion.
    Webhook,
    /// What runs in every replica.
    Other,
    /// What gets ready in every replica, and works on the leader.
    WarmUp,
    /// What runs on the leader.
    Leader,
}

pub(crate) type Run = Box<dyn FnOnce(Start) -> BoxFuture<'static, Result<(), BoxError>> + Send>;

/// What a member is started with.
pub(crate) struct Start {
    pub(crate) stop: CancellationToken,
    /// The member may do its group's work: this process was elected, or is to do work that needs no
    /// leader.
    pub(crate) go: CancellationToken,
}

impl Runnable {
    /// A task that runs on the leader only; with no election, that is every process (MGR-6).
    pub fn new<Fut>(run: impl FnOnce(CancellationToken) -> Fut + Send + 'static) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self::of(Group::Leader, run)
    }

    /// A server: started first, stopped last (MGR-1). It should have bound its port before.
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

    /// A task that gets ready before the election, so that it can work at once when this process is
    /// elected, which the second argument tells (MGR-5). Nobody waits for it: the election goes on
    /// meanwhile (MGR-7).
    pub fn warm_up<Fut>(
        run: impl FnOnce(CancellationToken, Elected) -> Fut + Send + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let run: Run = Box::new(move |start| Box::pin(run(start.stop, Elected::new(start.go))));
        Self { group: Group::WarmUp, run }
    }

    /// Whether a plain task runs on the leader only, which is the default. Otherwise it runs in
    /// every replica (MGR-4). Changes nothing about servers and tasks with a warm-up.
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

/// Whether a manager's leader-only members have been started: it was elected, or there is no
/// election (LE-17). Cheap to clone. It never reverts: a manager that has lost its leadership ends.
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

    /// Waits until they have been started; for ever if that never comes. Cancel safe: it only
    /// looks.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }
}
