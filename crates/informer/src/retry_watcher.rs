//! A watch that goes on when its connection does not, without a cache.
//!
//! # Theory
//!
//! A [`RetryWatcher`] starts at a version that its caller has, for instance of an object that it
//! has just written, and gives every change behind it, in order, each once per watch that shows it
//! (FAC-8). It never lists, so what it cannot find out by watching alone ends it:
//!
//! | what happens                                            | then                                                        |
//! |---------------------------------------------------------|-------------------------------------------------------------|
//! | a change                                                | it is given out, and its version is where to go on          |
//! | a bookmark                                              | its version is where to go on; it is not given out          |
//! | the watch closes, breaks, is refused, or fails by 429, 5xx and the like | again from there, [`RETRY_WAIT_MIN`] after the last try, and after what the server asked for (`Retry-After`) |
//! | 410                                                     | the end: what happened meanwhile is lost. List again        |
//! | 401, 403                                                | the end: more tries need other credentials                  |
//! | an object without a version, a verb that is not known   | the end: where to go on is not known                        |
//!
//! The `until` functions wait for something to become true: [`until`] over a retry watcher,
//! [`until_with_sync`] over an informer of its own, which survives a 410 because it lists again.
//! Both wait for ever; put a timeout around them. Dropping them stops them.

mod until;

pub use until::{until, until_with_sync};

use crate::backoff;
use crate::reflector::{WATCH_GRACE, WATCH_QUIET_TIMEOUT, WATCH_TIMEOUT_MIN};
use crate::source::{ListWatch, SourceError, WatchFrame, WatchRequest, WatchStream};
use bytes::Bytes;
use futures::StreamExt;
use rand::Rng;
use rand::rngs::SmallRng;
use setpoint_object::Skim;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The least time between the beginnings of two watches: 1 s, as client-go's, so that a server that
/// closes them at once is not asked without pause.
pub const RETRY_WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest wait that a server may ask for, 5 min: the shortest watch. A slip of a server must
/// not end a watcher in silence.
pub const RETRY_AFTER_MAX: Duration = WATCH_TIMEOUT_MIN;

/// One change of one object, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It came to be, or came to match.
    Added(Bytes),
    /// It is another now.
    Modified(Bytes),
    /// It is gone; this is how it was last.
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

/// Why a [`RetryWatcher`] cannot begin, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetryWatcherError {
    /// `""` and `"0"` are no place to start: a watch from there begins with what exists, in no
    /// order.
    #[error("a watch cannot be resumed from resourceVersion {0:?}")]
    Start(String),
    /// 410: the version is gone, and with it what happened since. List again.
    #[error("the watch can no longer be resumed from resourceVersion {resource_version}")]
    Expired {
        /// The version.
        resource_version: String,
        /// What the server says.
        #[source]
        source: SourceError,
    },
    /// 401 or 403.
    #[error("the watch is not allowed")]
    Denied(#[source] SourceError),
    /// An object came without a version.
    #[error("an object without a resourceVersion")]
    NoVersion,
    /// A verb came that this version does not know.
    #[error("a watch event of unknown type {0:?}")]
    UnknownEvent(String),
    /// It had ended before, and has told why.
    #[error("the watch has ended")]
    Ended,
}

/// A watch that goes on when its connection does not. See the module's theory.
pub struct RetryWatcher {
    // Inputs.
    source: Arc<dyn ListWatch>,
    rng: SmallRng,
    // State.
    resource_version: String,
    watch: Option<OpenWatch>,
    /// The server has sent a bookmark: a watch that is quiet for long is dead.
    has_bookmarks: bool,
    /// Not before then is a watch begun.
    next_try: Option<Instant>,
    is_over: bool,
}

struct OpenWatch {
    frames: WatchStream,
    deadline: Instant,
    /// When the last frame came.
    heard: Instant,
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
    /// A watch of what changes behind a version. `seed` draws the lengths of its watches. Nothing
    /// is asked yet.
    ///
    /// # Errors
    /// [`RetryWatcherError::Start`] for `""` and `"0"`.
    pub fn new(
        source: Arc<dyn ListWatch>,
        resource_version: impl Into<String>,
        seed: u64,
    ) -> Result<Self, RetryWatcherError> {
        let resource_version = resource_version.into();
        if matches!(&*resource_version, "" | "0") {
            return Err(RetryWatcherError::Start(resource_version));
        }
        let rng = backoff::rng(seed, 11);
        Ok(Self {
            source,
            rng,
            resource_version,
            watch: None,
            has_bookmarks: false,
            next_try: None,
            is_over: false,
        })
    }

    /// Where it would go on: the version of the last change or bookmark.
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// The next change; `None` behind an error. Cancel safe: a dropped call has taken nothing.
    ///
    /// # Errors
    /// When it cannot go on; see the module's theory. It is over then.
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
            let quiet = self.has_bookmarks.then(|| watch.heard + WATCH_QUIET_TIMEOUT);
            let until = quiet.map_or(watch.deadline, |quiet| quiet.min(watch.deadline));
            let next = timeout_at(until, watch.frames.next()).await;
            watch.heard = Instant::now();
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
                // Closed, or the connection died in silence.
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

    /// Opens a watch, when its time has come. A failure that passes leaves none.
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
                self.watch = Some(OpenWatch { frames, deadline, heard: Instant::now() });
            }
            Ok(Err(error)) => self.failed(error)?,
            Err(_) => {}
        }
        Ok(())
    }

    /// Sorts a failure: those that pass leave no watch.
    fn failed(&mut self, error: SourceError) -> Result<(), RetryWatcherError> {
        self.watch = None;
        if error.is_expired() {
            let resource_version = self.resource_version.clone();
            return Err(RetryWatcherError::Expired { resource_version, source: error });
        }
        if matches!(error.code(), Some(401 | 403)) {
            return Err(RetryWatcherError::Denied(error));
        }
        tracing::info!("watch interrupted: {}", crate::status::chain(&error));
        if let Some(asked) = error.retry_after() {
            let at = Instant::now() + asked.min(RETRY_AFTER_MAX);
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
