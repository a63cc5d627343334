//! Tasks that start and stop together.

use std::{collections::BTreeMap, future::Future, pin::pin, sync::Arc};

use setpoint_object::panic;
use tokio::{
    sync::oneshot,
    task::{Id, JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use super::{
    ManagerError,
    roster::{Member, Roster},
};
use crate::error::{BoxError, chain};
use crate::runnable::Start;

/// The tasks of one stage, their names, and the token that stops them.
pub(super) struct Stage {
    tasks: JoinSet<Result<(), BoxError>>,
    names: BTreeMap<Id, Arc<str>>,
    stop: CancellationToken,
}

impl Stage {
    pub(super) fn new() -> Self {
        Self { tasks: JoinSet::new(), names: BTreeMap::new(), stop: CancellationToken::new() }
    }

    /// Starts a task of the manager's own.
    pub(super) fn spawn<Fut>(
        &mut self,
        name: &str,
        task: impl FnOnce(CancellationToken) -> Fut + Send + 'static,
    ) where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let stop = self.stop.clone();
        let id = self.tasks.spawn(async move { task(stop).await }).id();
        self.names.insert(id, name.into());
    }

    /// Starts a task of the manager's own that also ends with `end`.
    pub(super) fn spawn_until<Fut>(
        &mut self,
        name: &str,
        end: CancellationToken,
        task: impl FnOnce(CancellationToken) -> Fut + Send + 'static,
    ) where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.spawn(name, |all| async move {
            let mut running = pin!(task(end.clone()));
            tokio::select! {
                biased;
                () = &mut running => return Ok(()),
                () = all.cancelled() => end.cancel(),
            }
            running.await;
            Ok(())
        });
    }

    /// Starts a member, unless the stop begins first. The returned receiver completes when the
    /// member was called, or will never be.
    pub(super) fn admit(
        &mut self,
        member: Member,
        go: CancellationToken,
        roster: Arc<Roster>,
    ) -> oneshot::Receiver<()> {
        let Member { name, run, stop, .. } = member;
        let (called, was_called) = oneshot::channel();
        let all = self.stop.clone();
        let label = name.clone();
        let task = async move {
            let _ended = Ended { name, roster: roster.clone() };
            // The only place that starts members: nothing starts after the stop has begun.
            if roster.is_stopping() || stop.is_cancelled() {
                return Ok(());
            }
            let mut running = run(Start { stop: stop.clone(), go });
            // The receiver may be gone.
            _ = called.send(());
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                () = all.cancelled() => stop.cancel(),
            }
            running.await
        };
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, label);
        was_called
    }

    /// The names of the tasks that run.
    pub(super) fn running(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.values()
    }

    /// Whether it was told to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// The next end of a task; pending if there is none. Cancel safe: a dropped `join_next` takes
    /// nothing.
    pub(super) async fn next(&mut self) -> Result<(), ManagerError> {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.settle(ended),
            None => std::future::pending().await,
        }
    }

    fn settle(
        &mut self,
        ended: Result<(Id, Result<(), BoxError>), JoinError>,
    ) -> Result<(), ManagerError> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let name = self.names.remove(&id).unwrap_or_else(|| "a task".into());
        match ended {
            Ok((_, Ok(()))) => Ok(()),
            Ok((_, Err(source))) => Err(ManagerError::Member { name, source }),
            Err(error) if error.is_panic() => Err(ManagerError::Panic {
                name,
                message: panic::message(&*error.into_panic()).to_owned(),
            }),
            Err(_cancelled) => Ok(()),
        }
    }

    /// Stops the stage and waits for it. Returns its first failure; later ones are logged.
    pub(super) async fn end(&mut self) -> Option<ManagerError> {
        self.stop.cancel();
        let mut first = None;
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if let Err(error) = self.settle(ended) {
                keep_first(&mut first, Some(error));
            }
        }
        first
    }
}

/// Stores the first failure, and logs later ones (MGR-10).
pub(super) fn keep_first(first: &mut Option<ManagerError>, next: Option<ManagerError>) {
    match (first.is_some(), next) {
        (_, None) => {}
        (false, next) => *first = next,
        (true, Some(error)) => tracing::error!(error = chain(&error), "failed while stopping"),
    }
}

/// Frees a member's name when dropped, however the member ends.
struct Ended {
    name: Arc<str>,
    roster: Arc<Roster>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.roster.ended(&self.name);
    }
}
