//! The reflector: keeps a delta queue in step with a server.
//!
//! # Theory
//!
//! A round is a list and then watches, until something goes wrong; between rounds the reflector
//! waits with back-off. It never gives up (REF-33). What it must remember between requests is one
//! resourceVersion and two flags:
//!
//! | state               | set by                                    | means for the next list             |
//! |---------------------|-------------------------------------------|-------------------------------------|
//! | no version          | the start                                 | any state will do (`"0"`)           |
//! | a version           | a list, an event, a bookmark              | not older than that                 |
//! | version unavailable | 410 or "too large" at a list or stream    | the most recent state (`""`)        |
//! | paged               | a first list that came in several pages   | keep asking in pages                |
//!
//! A list reaches the queue as one delta and only when it is whole: no reader ever sees half of
//! one. The version moves after the queue has taken the delta, so that a crash between the two
//! repeats work and loses none.

mod arriving;
mod initial;
mod live;
mod resync;
mod round;

pub(crate) use initial::end_marker;
pub use initial::{INITIAL_EVENTS_END, LIST_OBJECTS_MAX, LIST_PAGES_MAX};
pub use live::{WATCH_GRACE, WATCH_QUIET_TIMEOUT};
pub use resync::Resync;
pub use round::{ReflectorState, WATCH_TIMEOUT_MIN};

use crate::backoff::{BACKOFF_MAX, BACKOFF_MIN, Backoff};
use crate::broken::Broken;
use crate::delta::{DeltaQueue, Keyed};
use crate::intake::Intake;
use crate::record::RecordError;
use crate::resource_type::ResourceType;
use crate::source::{ListWatch, SourceError};
use crate::transform::TransformError;
use rand::rngs::SmallRng;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How many objects a page has: 500, as client-go's pager (REF-1).
pub const PAGE_SIZE: u32 = 500;

/// How long a streamed list may bring no further object before the reflector falls back to pages
/// (REF-13).
///
/// 2 min: a server that ignores `sendInitialEvents` would otherwise keep the cache empty until the
/// watch times out. Only initial objects count: bookmarks and changes say nothing of an end.
pub const INITIAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a streamed list may take in all before the reflector falls back to pages (REF-13).
///
/// 10 min, the longest watch that is asked for by default: a server that keeps to what it was asked
/// has closed the stream by then. At a slow 2 MiB/s it is time for a gigabyte of objects.
pub const INITIAL_EVENTS_TOTAL: Duration = Duration::from_secs(600);

/// How long a request for a page of a list may go without anything arriving.
///
/// 2 min, twice the time in which kube-apiserver answers any list (`--request-timeout`, 60 s).
pub const LIST_QUIET_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a request for a page of a list may take in all: 10 min, as a streamed list. client-go
/// has no limit here, and waits for ever on a connection that died in silence.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(600);

/// The longest wait that a server may ask for by `Retry-After`: 5 min. A longer one counts as that.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// How many events of a watch, or initial events, are taken in by one poll; then others have their
/// turn, however many more are at hand.
pub const EVENTS_PER_POLL_MAX: usize = 64;

/// Why a round ended, or a request had to be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReflectorError {
    /// A list failed.
    #[error("failed to list {resource}")]
    List {
        /// The resource.
        resource: String,
        /// Why.
        #[source]
        source: SourceError,
    },
    /// A watch could not be opened, or broke.
    #[error("failed to watch {resource}")]
    Watch {
        /// The resource.
        resource: String,
        /// Why.
        #[source]
        source: SourceError,
    },
    /// A watch was closed within a second without having delivered anything (2.1).
    #[error("very short watch of {resource}: it was closed at once without an event")]
    VeryShortWatch {
        /// The resource.
        resource: String,
    },
    /// A streamed list did not end (REF-13).
    #[error("the initial events of {resource} did not end: {timeout:?} went by")]
    InitialEvents {
        /// The resource.
        resource: String,
        /// How long was waited, for another object or in all.
        timeout: Duration,
    },
    /// A page of a list did not arrive in time ([`LIST_QUIET_TIMEOUT`], [`LIST_TIMEOUT`]).
    #[error("no list of {resource} within {timeout:?}")]
    ListTimeout {
        /// The resource.
        resource: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// An object of a list could not be transformed, and the list was not taken in (FIFO-24).
    #[error("failed to take in the list of {resource}")]
    Transform {
        /// The resource.
        resource: String,
        /// Why.
        #[source]
        source: TransformError,
    },
    /// An object was not taken in; everything else goes on (REF-24, IDX-5).
    #[error("skipped an object of {resource}")]
    Object {
        /// The resource.
        resource: String,
        /// Why.
        #[source]
        source: ObjectError,
    },
}

/// Why one object was not taken in.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// It is malformed, nameless or of another type.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The transform failed for it.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// An index function failed for it.
    #[error(transparent)]
    Index(#[from] crate::indexer::IndexError),
}

impl ReflectorError {
    /// The failure of the source, when it is one.
    pub fn source_error(&self) -> Option<&SourceError> {
        match self {
            Self::List { source, .. } | Self::Watch { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Somebody who is told how a reflector is doing. Must return fast, and cannot change what it does
/// (REF-32).
pub trait ReflectorObserver: Send + Sync + 'static {
    /// A list, or the opening of a watch, failed; there will be another round.
    fn failed(&self, error: Arc<ReflectorError>);
    /// Something broke that breaks now and then: a watch, or a server that is down or busy. It is
    /// repeated.
    fn retrying(&self, error: Arc<ReflectorError>);
    /// One object was skipped.
    fn skipped(&self, error: Arc<ReflectorError>);
    /// A watch is open: the cache is being kept up to date.
    fn watching(&self);
    /// A list or an event at this resourceVersion was handed on.
    fn reached(&self, resource_version: &str);
    /// A list, in pages or streamed, was handed on as a whole.
    fn listed(&self, took: Duration, n_items: usize) {
        let _ = (took, n_items);
    }
    /// A watch was closed or broke, after so many events; a short one within a second without any
    /// (2.1).
    fn watched(&self, took: Duration, n_events: u64, is_short: bool) {
        let _ = (took, n_events, is_short);
    }
}

/// How a reflector behaves. The defaults are client-go's.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// The first wait between failures.
    pub backoff_min: Duration,
    /// The longest wait between failures, before jitter.
    pub backoff_max: Duration,
    /// Objects per page, always (REF-1 d); `None` pages by [`PAGE_SIZE`] where that does not force
    /// the server past its cache.
    pub page_size: Option<u32>,
    /// Whether to try lists as streams, if the source can.
    pub stream_list: bool,
    /// The shortest watch asked for; longer than [`WATCH_TIMEOUT_MIN`], or it is ignored.
    pub watch_timeout_min: Duration,
    /// How long a watch may bring nothing before another is opened, and how long a request for one
    /// may wait for its answer: see [`WATCH_QUIET_TIMEOUT`]. `None` is until its own timeout.
    /// Noticed at most a quarter later.
    pub watch_quiet_timeout: Option<Duration>,
    /// How long the initial events may bring no object before pages are tried.
    pub initial_events_timeout: Duration,
    /// How long the initial events may take in all before pages are tried.
    pub initial_events_total: Duration,
    /// How long a request for a page may go without anything arriving.
    pub list_quiet_timeout: Duration,
    /// How long a request for a page may take in all.
    pub list_timeout: Duration,
    /// How long internal errors (500) during a watch are answered by watching again at once; zero
    /// is never (REF-30 f).
    pub internal_error_budget: Duration,
    pub(crate) broken: Broken,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            backoff_min: BACKOFF_MIN,
            backoff_max: BACKOFF_MAX,
            page_size: None,
            stream_list: true,
            watch_timeout_min: WATCH_TIMEOUT_MIN,
            watch_quiet_timeout: Some(WATCH_QUIET_TIMEOUT),
            initial_events_timeout: INITIAL_EVENTS_TIMEOUT,
            initial_events_total: INITIAL_EVENTS_TOTAL,
            list_quiet_timeout: LIST_QUIET_TIMEOUT,
            list_timeout: LIST_TIMEOUT,
            internal_error_budget: Duration::ZERO,
            broken: Broken::default(),
        }
    }
}

/// Keeps a delta queue in step with a server. See the module's theory.
pub struct Reflector<T> {
    // Helpers.
    source: Arc<dyn ListWatch>,
    observer: Arc<dyn ReflectorObserver>,
    resync: Option<Arc<Resync>>,
    intake: Box<dyn Intake<T>>,
    rng: SmallRng,
    // Inputs.
    resource_type: ResourceType,
    options: ReflectorOptions,
    // Outputs.
    queue: Arc<dyn DeltaQueue<T>>,
    // State.
    backoff: Backoff,
    state: ReflectorState,
    /// The version of what is being queued: a place to keep it that is not made anew for each
    /// event.
    next_version: String,
}

impl<T> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("resource", &self.resource_type.to_string())
            .field("options", &self.options)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<T: Keyed> Reflector<T> {
    /// A reflector of `source` into `queue`, by way of `intake`. It does nothing until it is run.
    /// `rng` draws its jitter and watch timeouts.
    pub fn new(
        source: Arc<dyn ListWatch>,
        resource_type: ResourceType,
        intake: Box<dyn Intake<T>>,
        queue: Arc<dyn DeltaQueue<T>>,
        observer: Arc<dyn ReflectorObserver>,
        options: ReflectorOptions,
        mut rng: SmallRng,
    ) -> Self {
        use rand::SeedableRng;
        let backoff =
            Backoff::new(options.backoff_min, options.backoff_max, SmallRng::from_rng(&mut rng));
        Self {
            source,
            observer,
            resync: None,
            intake,
            rng,
            resource_type,
            options,
            queue,
            backoff,
            state: ReflectorState::default(),
            next_version: String::new(),
        }
    }

    /// Asks for resyncs.
    pub fn resync(mut self, resync: Resync) -> Self {
        self.resync = (!resync.period.is_zero()).then(|| Arc::new(resync));
        self
    }
}
