//! A watch that survives broken connections, without a cache.
//!
//! # Theory
//!
//! A [`RetryWatcher`] starts at a version of the caller, for instance of an object that it has just
//! written, and returns every later change in order, each once per watch that delivers it (FAC-8).
//! It never lists, so it ends where a watch alone cannot continue:
//!
//! | event                                                   | reaction                                                    |
//! |---------------------------------------------------------|-------------------------------------------------------------|
//! | a change                                                | returns it, and records its version                         |
//! | a bookmark                                              | records its version                                         |
//! | the watch closes, breaks, is refused, or fails by 429, 5xx and the like | another watch from the recorded version, [`RETRY_WAIT_MIN`] after the last try and after the server's `Retry-After` |
//! | 410                                                     | ends: changes are lost. List again                          |
//! | 401, 403                                                | ends: another try needs other credentials                   |
//! | an object without a version, an unknown verb            | ends: the version to continue from is unknown               |
//!
//! The `until` functions wait for a condition: [`until`] over a retry watcher, [`until_with_sync`]
//! over an informer of its own, which survives a 410 because it lists again. Both wait for ever;
//! put a timeout around them. Dropping them stops them.

mod until;

pub use until::{until, until_with_sync};

use crate::backoff;
use crate::reflector::{WATCH_GRACE, WATCH_QUIET_TIMEOUT, WATCH_TIMEOUT_MIN};
use crate::source::{ListWatch, SourceError, WatchFrame, WatchRequest, WatchStream};
use bytes::Bytes;
use futures::StreamExt;
use rand::Rng;
use rand::rngs::SmallRng;
use setpoint_object::{Skim, seed};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The minimum time between the starts of two watches: 1 s, as client-go, so that a server that
/// closes watches at once is not flooded with requests.
pub const RETRY_WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest wait by `Retry-After`: 5 min, the shortest watch. A mistake of a server must not
/// silence a watcher for longer.
pub const RETRY_AFTER_MAX: Duration = WATCH_TIMEOUT_MIN;

/// One change of one object, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The object was created, or matches now.
    Added(Bytes),
    /// The object was changed.
    Modified(Bytes),
    /// The object was deleted; its last state.
    Deleted(Bytes),
}

impl Change {
    /// The object.
    pub fn object(&self) -> &Bytes {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => object,
        }
    }
}

/// Why a [`RetryWatcher`] cannot start, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetryWatcherError {
    /// A watch cannot start at `""` or `"0"`: it would begin with the existing objects, in no
    /// order.
    #[error("a watch cannot be resumed from resourceVersion {0:?}")]
    Start(String),
    /// 410: the version has expired, and changes since are lost. List again.
    #[error("the watch can no longer be resumed from resourceVersion {resource_version}")]
    Expired {
        /// The version.
        resource_version: String,
        /// The error of the server.
        #[source]
        source: SourceError,
    },
    /// 401 or 403.
    #[error("the watch is not allowed")]
    Denied(#[source] SourceError),
    /// An object without a resourceVersion.
    #[error("an object without a resourceVersion")]
    NoVersion,
    /// An unknown verb.
    #[error("a watch event of unknown type {0:?}")]
    UnknownEvent(String),
    /// It had ended before.
    #[error("the watch has ended")]
    Ended,
}

/// A watch that survives broken connections. See the [module's theory](self).
pub struct RetryWatcher {
    // Inputs.
    source: Arc<dyn ListWatch>,
    rng: SmallRng,
    // State.
    resource_version: String,
    watch: Option<OpenWatch>,
    /// The server has sent a bookmark, so a watch that is quiet for long is dead.
    has_bookmarks: bool,
    /// The earliest time of the next watch.
    next_try: Option<Instant>,
    is_over: bool,
}

/// The random numbers of one watcher.
fn rng(seed: u64) -> SmallRng {
    backoff::rng(seed, 11)
}

struct OpenWatch {
    frames: WatchStream,
    deadline: Instant,
    /// The time of the last frame.
    last_frame: Instant,
}

impl fmt::Debug for RetryWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryWatcher")
            .field("resource_version", &self.resource_version)
            .field("is_open", &self.watch.is_some())
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl RetryWatcher {
    /// A watch of all changes after a version. Sends no request.
    ///
    /// # Errors
    /// [`RetryWatcherError::Start`] for `""` and `"0"`.
    pub fn new(
        source: Arc<dyn ListWatch>,
        resource_version: impl Into<String>,
    ) -> Result<Self, RetryWatcherError> {
        let resource_version = resource_version.into();
        if matches!(&*resource_version, "" | "0") {
            return Err(RetryWatcherError::Start(resource_version));
        }
        Ok(Self {
            source,
            rng: rng(seed::from_entropy()),
            resource_version,
            watch: None,
            has_bookmarks: false,
            next_try: None,
            is_over: false,
        })
    }

    /// Sets the seed of the random timeouts of watches. Default: from the operating system's
    /// entropy.
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = rng(seed);
        self
    }

    /// The version of the last change or bookmark, from which it continues.
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// The next change; `None` after an error. Cancel safe.
    ///
    /// # Errors
    /// If it cannot continue; see the [module's theory](self). It has ended then.
    pub async fn next(&mut self) -> Option<Result<Change, RetryWatcherError>> {
        loop {
            if self.is_over {
                return None;
            }
            let Some(watch) = &mut self.watch else {
                if let Err(error) = self.open().await {
                    return Some(self.end(error));
                }
                continue;
            };
            let quiet = self.has_bookmarks.then(|| watch.last_frame + WATCH_QUIET_TIMEOUT);
            let until = quiet.map_or(watch.deadline, |quiet| quiet.min(watch.deadline));
            let next = timeout_at(until, watch.frames.next()).await;
            watch.last_frame = Instant::now();
            match next {
                Ok(Some(Ok(frame))) => match self.take(frame) {
                    Ok(Some(change)) => return Some(Ok(change)),
                    Ok(None) => {}
                    Err(error) => return Some(self.end(error)),
                },
                Ok(Some(Err(error))) => {
                    if let Err(error) = self.failed(error) {
                        return Some(self.end(error));
                    }
                }
                // Closed, or the connection died silently.
                Ok(None) | Err(_) => self.watch = None,
            }
            tokio::task::coop::consume_budget().await;
        }
    }

    fn end(&mut self, error: RetryWatcherError) -> Result<Change, RetryWatcherError> {
        self.is_over = true;
        self.watch = None;
        Err(error)
    }

    /// Opens a watch at its time. After a temporary failure there is none.
    async fn open(&mut self) -> Result<(), RetryWatcherError> {
        if let Some(at) = self.next_try {
            sleep_until(at).await;
        }
        let min = WATCH_TIMEOUT_MIN.as_secs();
        let request = WatchRequest {
            resource_version: self.resource_version.clone(),
            timeout: Duration::from_secs(self.rng.random_range(min..2 * min)),
            send_initial_events: false,
        };
        let began = Instant::now();
        self.next_try = Some(began + RETRY_WAIT_MIN);
        let deadline = began + request.timeout + WATCH_GRACE;
        let answer = deadline.min(began + WATCH_QUIET_TIMEOUT);
        match timeout_at(answer, self.source.watch(request)).await {
            Ok(Ok(frames)) => {
                self.watch = Some(OpenWatch { frames, deadline, last_frame: Instant::now() });
            }
            Ok(Err(error)) => self.failed(error)?,
            Err(_) => {}
        }
        Ok(())
    }

    /// Handles a failure. After a temporary one there is no watch.
    fn failed(&mut self, error: SourceError) -> Result<(), RetryWatcherError> {
        self.watch = None;
        if error.is_expired() {
            let resource_version = self.resource_version.clone();
            return Err(RetryWatcherError::Expired { resource_version, source: error });
        }
        if matches!(error.code(), Some(401 | 403)) {
            return Err(RetryWatcherError::Denied(error));
        }
        tracing::info!("watch interrupted: {}", crate::failure::chain(&error));
        if let Some(retry_after) = error.retry_after() {
            let at = Instant::now() + retry_after.min(RETRY_AFTER_MAX);
            self.next_try = self.next_try.max(Some(at));
        }
        Ok(())
    }

    fn take(&mut self, frame: WatchFrame) -> Result<Option<Change>, RetryWatcherError> {
        let change = match frame {
            WatchFrame::Added(object) => Change::Added(object),
            WatchFrame::Modified(object) => Change::Modified(object),
            WatchFrame::Deleted(object) => Change::Deleted(object),
            WatchFrame::Bookmark(object) => {
                self.has_bookmarks = true;
                self.resource_version = version_of(&object)?;
                return Ok(None);
            }
            WatchFrame::Error(error) => {
                self.failed(error.into())?;
                return Ok(None);
            }
            WatchFrame::Unknown { verb, .. } => return Err(RetryWatcherError::UnknownEvent(verb)),
        };
        self.resource_version = version_of(change.object())?;
        Ok(Some(change))
    }
}

fn version_of(object: &[u8]) -> Result<String, RetryWatcherError> {
    match Skim::of(object) {
        Ok(skim) if !skim.resource_version.is_empty() => Ok(skim.resource_version.into_owned()),
        _ => Err(RetryWatcherError::NoVersion),
    }
}
