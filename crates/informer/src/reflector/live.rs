//! Changes: watches, one after the other.
use super::round::Ended;
use super::{EVENTS_PER_POLL_MAX, Reflector};
use crate::delta::{self, Delta, Keyed, QueueClosed};
use crate::intake::ObjectError;
use crate::record::RecordError;
use crate::source::{SourceError, WatchFrame, WatchStream};
use bytes::Bytes;
use futures::StreamExt;
use setpoint_object::Skim;
use setpoint_object::skim::SkimError;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// A watch that is closed sooner than this without an event is an error: 1 s, as client-go.
pub(super) const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);

/// How long after its timeout the reflector drops a watch that the server has not closed.
///
/// 30 s: the server's timeout starts when it accepts the watch. Without this limit, a connection
/// that died silently would leave the cache stale for ever.
pub const WATCH_GRACE: Duration = Duration::from_secs(30);

/// How long a watch may bring nothing, not even a bookmark, before another one is opened at the
/// last version.
///
/// 90 s: servers send a bookmark about every minute, kube-apiserver and `setpoint` after at most 75
/// seconds. A missing bookmark detects a dead connection under any protocol; clients of Kubernetes
/// have no pings to enable. Applies once the server has sent a bookmark, such as that of a streamed
/// list; before, only [`WATCH_GRACE`] applies.
pub const WATCH_QUIET_TIMEOUT: Duration = Duration::from_secs(90);

/// How often a watch is checked within its quiet timeout, instead of at each event.
const QUIET_LOOKS: u32 = 4;

/// Internal errors are forgotten after this time without one: 1 min, as client-go.
const INTERNAL_ERROR_QUIET: Duration = Duration::from_secs(60);

/// A watch that the server has accepted.
pub(super) struct OpenWatch {
    frames: WatchStream,
    opened: Instant,
    deadline: Instant,
    events: u64,
    /// It began as a streamed list, so it has delivered something.
    has_listed: bool,
    /// Whether versions arrive in order: not while a watch from no version replays what exists
    /// (REF-21).
    is_ordered: bool,
}

impl OpenWatch {
    /// A streamed list that continues with changes.
    pub(super) fn after_initial(frames: WatchStream, opened: Instant, timeout: Duration) -> Self {
        let deadline = opened + timeout + WATCH_GRACE;
        Self { frames, opened, deadline, events: 0, has_listed: true, is_ordered: true }
    }

    fn is_very_short(&self) -> bool {
        !self.has_listed && self.events == 0 && self.opened.elapsed() < VERY_SHORT_WATCH
    }
}

/// How a watch ended.
enum Closed {
    /// By the server, or at its deadline.
    Normally,
    /// By an error.
    By(SourceError),
    /// The queue is closed.
    Queue,
}

/// Detects a quiet watch.
#[derive(Default)]
struct Quiet {
    n_events: u64,
    n_looks: u32,
}

impl Quiet {
    /// One check of a watch that has had `n_events`. Whether it has had no event for as many checks
    /// as make up the timeout.
    fn is_over(&mut self, n_events: u64) -> bool {
        self.n_looks = if n_events == self.n_events { self.n_looks + 1 } else { 0 };
        self.n_events = n_events;
        self.n_looks >= QUIET_LOOKS
    }
}

/// Recent internal errors (REF-30 f): the times of the first and the last.
#[derive(Default)]
struct InternalErrors(Option<(Instant, Instant)>);

impl InternalErrors {
    /// Whether another one is within the budget.
    fn is_tolerated(&mut self, budget: Duration) -> bool {
        let now = Instant::now();
        let first = match self.0 {
            Some((first, last)) if now - last < INTERNAL_ERROR_QUIET => first,
            _ => now,
        };
        self.0 = Some((first, now));
        !budget.is_zero() && now - first < budget
    }
}

impl<T: Keyed> Reflector<T> {
    /// Watches from the last version until something fails (REF-20, REF-27).
    pub(super) async fn live(&mut self, mut open: Option<OpenWatch>) -> Ended {
        let mut internal_errors = InternalErrors::default();
        loop {
            let mut watch = match open.take() {
                Some(watch) => watch,
                None => match self.open().await {
                    Ok(watch) => watch,
                    Err(error) if error.is_refused() || error.is_too_many_requests() => {
                        self.pause(error).await;
                        continue;
                    }
                    Err(error) => return Ended::Failed(self.watch_error(error)),
                },
            };
            self.observer.watching();
            let closed = self.follow(&mut watch).await;
            let is_short = watch.is_very_short();
            self.observer.watched(watch.opened.elapsed(), watch.events, is_short);
            let error = match closed {
                Closed::Queue => return Ended::Closed,
                Closed::Normally if is_short => return Ended::Broke(self.very_short()),
                Closed::Normally => continue,
                Closed::By(error) => error,
            };
            drop(watch);
            if error.is_expired() {
                return Ended::Expired(self.watch_error(error));
            }
            if error.is_too_many_requests() {
                self.pause(error).await;
            } else if !(error.is_internal()
                && internal_errors.is_tolerated(self.options.internal_error_budget))
            {
                return Ended::Broke(self.watch_error(error));
            }
        }
    }

    async fn open(&mut self) -> Result<OpenWatch, SourceError> {
        let request = self.watch_request(self.state.resource_version.clone());
        let is_ordered = !matches!(&*request.resource_version, "" | "0");
        let opened = Instant::now();
        let deadline = opened + request.timeout + WATCH_GRACE;
        let source = self.source.clone();
        let quiet = self.options.watch_quiet_timeout.map(|timeout| opened + timeout);
        let answer = quiet.map_or(deadline, |quiet| quiet.min(deadline));
        let frames = match timeout_at(answer, source.watch_unchecked(request)).await {
            Ok(frames) => frames?,
            Err(_) => return Err(SourceError::protocol("no answer to a watch within its timeout")),
        };
        Ok(OpenWatch { frames, opened, deadline, events: 0, has_listed: false, is_ordered })
    }

    async fn follow(&mut self, watch: &mut OpenWatch) -> Closed {
        let mut quiet = Quiet::default();
        let look = self.options.watch_quiet_timeout.map(|timeout| timeout / QUIET_LOOKS);
        let next =
            |deadline: Instant| look.map_or(deadline, |look| deadline.min(Instant::now() + look));
        let mut timer = std::pin::pin!(sleep_until(next(watch.deadline)));
        loop {
            // Cancel safe: a stream that is not polled to its next frame keeps it, and the timer
            // stays where it is.
            let frame = tokio::select! {
                biased;
                frame = watch.frames.next() => frame,
                () = &mut timer => {
                    if watch.deadline <= Instant::now() {
                        return Closed::Normally;
                    }
                    if quiet.is_over(watch.events) && self.state.has_bookmarks {
                        tracing::info!(resource = %self.resource_type, "a watch was quiet for too long; opening another one");
                        return Closed::Normally;
                    }
                    timer.as_mut().reset(next(watch.deadline));
                    continue;
                }
            };
            let frame = match frame {
                Some(Ok(WatchFrame::Error(error))) => return Closed::By(error.into()),
                Some(Ok(frame)) => frame,
                // A lost connection is like a closed watch: the version is still valid (REF-27).
                Some(Err(error)) if error.is_transport() => {
                    tracing::info!(
                        resource = %self.resource_type,
                        "watch interrupted: {}",
                        crate::failure::chain(&error)
                    );
                    return Closed::Normally;
                }
                Some(Err(error)) => return Closed::By(error),
                None => return Closed::Normally,
            };
            watch.events += 1;
            match self.take(frame, &mut watch.is_ordered).await {
                Ok(()) => {}
                Err(Untaken::Closed) => return Closed::Queue,
                Err(Untaken::Malformed(error)) => return Closed::By(malformed(&error)),
            }
            if watch.events.is_multiple_of(EVENTS_PER_POLL_MAX as u64) {
                // An endless stream must not delay other tasks, nor the deadline, which is
                // otherwise checked only while the stream has nothing.
                self.intake.settle().await;
                if watch.deadline <= Instant::now() {
                    return Closed::Normally;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Queues the change of one frame, and then moves the version (REF-22).
    async fn take(&mut self, frame: WatchFrame, is_ordered: &mut bool) -> Result<(), Untaken> {
        let (delta, object): (fn(T) -> Delta<T>, _) = match &frame {
            WatchFrame::Added(object) => (Delta::Added, object),
            WatchFrame::Modified(object) => (Delta::Updated, object),
            WatchFrame::Deleted(object) => (Delta::Deleted, object),
            WatchFrame::Bookmark(_) | WatchFrame::Unknown { .. } | WatchFrame::Error(_) => {
                return Ok(self.take_version(frame, is_ordered).await?);
            }
        };
        let item = match self.intake.event(object) {
            Ok(item) => item,
            Err(ObjectError::Record(RecordError::Malformed(error))) if object.starts_with(b"{") => {
                return Err(Untaken::Malformed(error));
            }
            Err(error) => {
                self.skip(error);
                return Ok(());
            }
        };
        item.resource_version().clone_into(&mut self.next_version);
        self.push(delta(item)).await?;
        if !self.next_version.is_empty() {
            // Events after the replay of existing objects are in order (REF-21). A skipped object
            // does not show whether the replay has ended.
            *is_ordered |= !matches!(frame, WatchFrame::Added(_));
            if *is_ordered {
                self.reached_next();
            }
        }
        Ok(())
    }

    pub(super) async fn push(&mut self, delta: Delta<T>) -> Result<(), QueueClosed> {
        delta::push(&*self.queue, delta).await
    }

    /// A frame without an object to store: it only moves the version.
    async fn take_version(
        &mut self,
        frame: WatchFrame,
        is_ordered: &mut bool,
    ) -> Result<(), QueueClosed> {
        let resource_version = match &frame {
            WatchFrame::Bookmark(object) => version_of(object),
            WatchFrame::Unknown { verb, object } => {
                tracing::warn!(resource = %self.resource_type, verb, "unknown watch event");
                version_of(object)
            }
            _ => return Ok(()),
        };
        match resource_version {
            Ok(resource_version) if resource_version.is_empty() => {}
            Ok(resource_version) => {
                if matches!(frame, WatchFrame::Bookmark(_)) {
                    self.state.has_bookmarks = true;
                    *is_ordered = true;
                    let bookmark = Delta::Bookmark { resource_version: resource_version.clone() };
                    self.push(bookmark).await?;
                }
                if *is_ordered {
                    self.reached(&resource_version);
                }
            }
            Err(error) => self.skip(error),
        }
        Ok(())
    }
}

/// Why a frame was not queued.
enum Untaken {
    Closed,
    /// Not JSON: the stream may have lost more.
    Malformed(SkimError),
}

impl From<QueueClosed> for Untaken {
    fn from(_: QueueClosed) -> Self {
        Self::Closed
    }
}

/// The error of a watch that sends something else than JSON.
pub(super) fn malformed(error: &SkimError) -> SourceError {
    SourceError::protocol(format!("not a watch event: {error}"))
}

fn version_of(object: &Bytes) -> Result<String, RecordError> {
    Ok(Skim::of(object)?.resource_version.into_owned())
}
