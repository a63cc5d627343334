//! The outer loop: rounds, and the waits between them.
use super::{RETRY_AFTER_MAX, Reflector, ReflectorError};
use crate::delta::{self, Delta, DeltaQueue, Keyed, QueueClosed};
use crate::failure::chain;
use crate::intake::ObjectError;
use crate::source::{SourceError, WatchRequest};
use crate::transform::TransformError;
use rand::Rng;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The shortest timeout of a watch: 5 min, as client-go. The timeout of each watch is drawn from
/// one to two times this, in whole seconds, so that watches opened together are not closed
/// together.
pub const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(300);

/// The state of a reflector between requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReflectorState {
    /// The version up to which changes have been queued; empty before the first list.
    pub resource_version: String,
    /// The server no longer has that version, or has not reached it (REF-5).
    pub is_unavailable: bool,
    /// A first list came in several pages, so the server has no watch cache (REF-1 e).
    pub is_paged: bool,
    /// A streamed list never ended: this server does not support them (REF-13).
    pub cannot_stream: bool,
    /// The server has sent a bookmark, so a watch that is quiet for long is dead
    /// ([`WATCH_QUIET_TIMEOUT`](super::WATCH_QUIET_TIMEOUT)).
    pub has_bookmarks: bool,
}

/// The reason why a round ended. All but the first lead to a wait and another round.
pub(super) enum Ended {
    /// The queue was closed.
    Closed,
    /// It failed, and the error handler is called (REF-30 a, c).
    Failed(ReflectorError),
    /// An ordinary failure (REF-30 g).
    Broke(ReflectorError),
    /// The version is expired: list again (REF-30 d).
    Expired(ReflectorError),
}

impl From<crate::delta::QueueClosed> for Ended {
    fn from(_: crate::delta::QueueClosed) -> Self {
        Self::Closed
    }
}

impl<T: Keyed> Reflector<T> {
    /// Runs until `stop`, or until the queue is closed. Drops a pending request or wait at once
    /// (REF-8).
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.rounds() => {}
        }
    }

    async fn rounds(&mut self) {
        loop {
            let ended = self.round().await;
            let (Ended::Failed(error) | Ended::Broke(error) | Ended::Expired(error)) = &ended
            else {
                return;
            };
            let wait = self.wait(error.source_error());
            match ended {
                Ended::Failed(error) => self.observer.failed(Arc::new(error)),
                Ended::Broke(error) => self.observer.retrying(Arc::new(error)),
                Ended::Expired(error) => {
                    tracing::debug!(resource = %self.resource_type, error = chain(&error), "listing again");
                }
                Ended::Closed => {}
            }
            sleep(wait).await;
        }
    }

    /// One round: the existing objects, and then changes.
    async fn round(&mut self) -> Ended {
        let watch = match self.initial().await {
            Ok(watch) => watch,
            Err(ended) => return ended,
        };
        let ticks = ticks(self.resync.clone(), self.queue.clone());
        tokio::select! {
            biased;
            ended = self.live(watch) => ended,
            closed = ticks => closed.into(),
        }
    }

    /// Waits one step within a round, after a refused connection or too many requests.
    pub(super) async fn pause(&mut self, error: SourceError) {
        let wait = self.wait(Some(&error));
        self.observer.retrying(Arc::new(self.watch_error(error)));
        sleep(wait).await;
    }

    /// The next wait: a step of the back-off, or the server's `Retry-After` if that is longer.
    fn wait(&mut self, error: Option<&SourceError>) -> Duration {
        let retry_after = error.and_then(SourceError::retry_after).unwrap_or_default();
        self.backoff.next_wait().max(retry_after.min(RETRY_AFTER_MAX))
    }

    pub(super) fn watch_request(&mut self, resource_version: String) -> WatchRequest {
        let min = self.options.watch_timeout_min.max(WATCH_TIMEOUT_MIN).as_secs();
        WatchRequest {
            resource_version,
            timeout: Duration::from_secs(self.rng.random_range(min..2 * min)),
            send_initial_events: false,
        }
    }

    pub(super) fn watch_error(&self, source: SourceError) -> ReflectorError {
        ReflectorError::Watch { resource: self.resource_type.to_string(), source }
    }

    pub(super) fn list_error(&self, source: SourceError) -> ReflectorError {
        ReflectorError::List { resource: self.resource_type.to_string(), source }
    }

    pub(super) fn very_short(&self) -> ReflectorError {
        ReflectorError::VeryShortWatch { resource: self.resource_type.to_string() }
    }

    pub(super) fn transform_error(&self, source: TransformError) -> ReflectorError {
        ReflectorError::Transform { resource: self.resource_type.to_string(), source }
    }

    pub(super) fn skip(&self, source: impl Into<ObjectError>) {
        let resource = self.resource_type.to_string();
        let source = source.into();
        self.observer.skipped(Arc::new(ReflectorError::Object { resource, source }));
    }

    /// Changes up to this version have been queued.
    pub(super) fn reached(&mut self, resource_version: &str) {
        if !resource_version.is_empty() {
            resource_version.clone_into(&mut self.state.resource_version);
            self.observer.reached(resource_version);
        }
    }

    /// Changes up to `next_version` have been queued.
    pub(super) fn reached_next(&mut self) {
        std::mem::swap(&mut self.state.resource_version, &mut self.next_version);
        self.observer.reached(&self.state.resource_version);
    }
}

/// When a reflector queues resyncs (REF-40 to REF-42).
pub struct Resync {
    /// The time between two checks of `is_due`; zero is never.
    pub period: Duration,
    /// Whether a handler wants a resync now.
    pub is_due: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Resync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resync").field("period", &self.period).finish_non_exhaustive()
    }
}

/// Queues a resync in each period in which a handler wants one. Runs during a watch phase (REF-42).
pub(super) async fn ticks<T: Keyed>(
    resync: Option<Arc<Resync>>,
    queue: Arc<dyn DeltaQueue<T>>,
) -> QueueClosed {
    let Some(resync) = resync else { return std::future::pending().await };
    loop {
        sleep(resync.period).await;
        if (resync.is_due)()
            && let Err(closed) = delta::push(&*queue, Delta::SyncAll).await
        {
            return closed;
        }
    }
}
