//! Starting a controller's sources, waiting for them, and running what they leave.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use setpoint_informer::InformerStatus;
use tokio::{
    sync::oneshot,
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::{
    ControllerError,
    error::{ReconcilePanic, SyncHint},
};
use crate::{
    cache::MemberStatus,
    error::{BoxError, panic_message},
    request::RequestKey,
    source::{Awaited, DynSource, Sources},
};

/// The sources of a controller that runs. Dropping it takes its handlers off the informers, and
/// drops what its sources left running.
pub(super) struct Started<R: RequestKey> {
    name: Arc<str>,
    sources: Arc<Sources<R>>,
    /// A task per source that is no watch.
    tasks: JoinSet<Result<(), ControllerError>>,
    /// What is to sync.
    pending: Vec<Pending<R>>,
}

enum Pending<R> {
    Watch(Awaited<R>),
    Foreign { source: String, started: oneshot::Receiver<()> },
}

impl<R: RequestKey> Started<R> {
    /// Starts all sources (CTL-1).
    pub(super) fn start(name: Arc<str>, sources: Arc<Sources<R>>) -> Result<Self, ControllerError> {
        let mut this = Self { name, sources, tasks: JoinSet::new(), pending: Vec::new() };
        match this.sources.start() {
            Ok(awaited) => this.pending = awaited.into_iter().map(Pending::Watch).collect(),
            Err(resource) => {
                let name = this.name.clone();
                return Err(ControllerError::SourceStopped { name, resource, source: None });
            }
        }
        for source in this.sources.take_foreign() {
            let pending = this.spawn(source);
            this.pending.push(pending);
        }
        Ok(this)
    }

    fn spawn(&mut self, source: Box<dyn DynSource<R>>) -> Pending<R> {
        let label = source.name();
        let (started, has_started) = oneshot::channel();
        let (name, keys) = (self.name.clone(), self.sources.sink());
        let counted = Counted(self.sources.clone());
        let failing = label.clone();
        self.tasks.spawn(async move {
            let _counted = counted;
            let life = async {
                let run = source.start(keys).await?;
                // Nobody waits for one that was added while the controller runs.
                _ = started.send(());
                match run.0 {
                    Some(run) => run.await,
                    None => Ok(()),
                }
            };
            let ended = AssertUnwindSafe(life).catch_unwind().await.unwrap_or_else(|panic| {
                Err(ReconcilePanic { message: panic_message(&*panic) }.into())
            });
            ended.map_err(|source| ControllerError::Source { name, of: failing, source })
        });
        Pending::Foreign { source: label, started: has_started }
    }

    /// Waits until everything that was started has synced, for at most `timeout`. Dropping it goes
    /// on starting nothing more.
    pub(super) async fn synced(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<(), ControllerError> {
        let deadline = timeout.map(|timeout| (timeout, Instant::now() + timeout));
        for pending in std::mem::take(&mut self.pending) {
            let expired = async {
                match deadline {
                    Some((timeout, deadline)) => {
                        tokio::time::sleep_until(deadline).await;
                        timeout
                    }
                    None => std::future::pending().await,
                }
            };
            let (name, mut pending) = (self.name.clone(), pending);
            tokio::select! {
                biased;
                // Cancel safe: nothing is asked again.
                failed = self.failed() => return Err(failed),
                synced = pending.synced(&name) => synced?,
                timeout = expired => return Err(pending.late(name, timeout)),
            }
        }
        Ok(())
    }

    /// Runs the sources that are no watches, those that are added meanwhile too, until one fails;
    /// says of watches that they are over. Cancel safe.
    pub(super) async fn failed(&mut self) -> ControllerError {
        let sources = self.sources.clone();
        loop {
            tokio::select! {
                biased;
                // Cancel safe: a dropped `join_next` has taken nothing.
                ended = self.tasks.join_next(), if !self.tasks.is_empty() => match ended {
                    Some(Ok(Err(failed))) => return failed,
                    Some(Err(error)) if error.is_panic() => return self.panicked(error),
                    _ => {}
                },
                // Cancel safe: it is told of what is not known here yet.
                resource = sources.watch_ended() => {
                    let controller = &self.name;
                    tracing::warn!(%controller, %resource, "an informer of a watch has ended: its events are missing from now on");
                },
                // Cancel safe: an event that it has taken is handled in the same poll.
                () = sources.retry() => {}
                // Cancel safe: a dropped `notified` that was not told leaves what it would have
                // been told.
                () = sources.foreign_added() => for source in sources.take_foreign() {
                    drop(self.spawn(source));
                },
            }
        }
    }

    /// A panic that came where nothing of the user's runs but `Drop`.
    fn panicked(&self, error: JoinError) -> ControllerError {
        let message = panic_message(&*error.into_panic());
        let source = ReconcilePanic { message }.into();
        ControllerError::Source { name: self.name.clone(), of: "a source".to_owned(), source }
    }

    /// Ends all sources, and waits until their tasks are gone.
    pub(super) async fn end(mut self) {
        self.sources.end();
        self.tasks.shutdown().await;
    }
}

impl<R: RequestKey> Drop for Started<R> {
    fn drop(&mut self) {
        self.sources.end();
    }
}

/// Counts a source as there until it is dropped.
struct Counted<R: RequestKey>(Arc<Sources<R>>);

impl<R: RequestKey> Drop for Counted<R> {
    fn drop(&mut self) {
        self.0.foreign_ended();
    }
}

impl<R> Pending<R> {
    async fn synced(&mut self, name: &Arc<str>) -> Result<(), ControllerError> {
        match self {
            Self::Watch(watch) => watch.registration.synced().await.map_err(|_| {
                let lagging = watch.lagging();
                let (resource, source) = (lagging.what, last_error(&lagging.status));
                ControllerError::SourceStopped { name: name.clone(), resource, source }
            }),
            Self::Foreign { started, .. } => match started.await {
                Ok(()) => Ok(()),
                // It has failed, which its task says.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// It has not synced in time.
    fn late(self, name: Arc<str>, timeout: Duration) -> ControllerError {
        match self {
            Self::Watch(watch) => {
                let MemberStatus { what: resource, status } = watch.lagging();
                let (hint, source) = (SyncHint::of(&status), last_error(&status));
                ControllerError::SyncTimeout { name, resource, timeout, hint, source }
            }
            Self::Foreign { source, .. } => {
                ControllerError::StartTimeout { name, of: source, timeout }
            }
        }
    }
}

impl<R> Awaited<R> {
    /// The informer that the watch waits for: one that has stopped, or else has not synced, or else
    /// whose handler is not done.
    fn lagging(&self) -> MemberStatus {
        let mut statuses = self.feed.statuses();
        let worst = statuses.iter().position(|member| member.status.has_stopped);
        let worst = worst.or_else(|| statuses.iter().position(|member| !member.status.has_synced));
        statuses.swap_remove(worst.unwrap_or(0))
    }
}

/// What an informer failed with last, if it does not keep up.
fn last_error(status: &InformerStatus) -> Option<BoxError> {
    status.degraded.as_ref().map(|degraded| BoxError::from(degraded.error.clone()))
}
