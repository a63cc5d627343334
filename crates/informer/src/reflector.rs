//! The reflector: feeds a delta queue from a server.
//!
//! # Theory
//!
//! A round is a list and then watches, until something goes wrong; between rounds the reflector
//! waits with back-off. It never gives up (REF-33). Between requests it remembers one
//! resourceVersion and two flags:
//!
//! | state               | set by                                    | means for the next list             |
//! |---------------------|-------------------------------------------|-------------------------------------|
//! | no version          | the start                                 | any state (`"0"`)                   |
//! | a version           | a list, an event, a bookmark              | not older than that                 |
//! | version unavailable | 410 or "too large" at a list or stream    | the most recent state (`""`)        |
//! | paged               | a first list that came in several pages   | request pages again                |
//!
//! A list enters the queue as one delta once it is complete, so no reader ever sees half of one.
//! The version moves after the queue has accepted the delta, so a crash between the two repeats
//! work and loses nothing.

mod arriving;
mod initial;
mod live;
mod round;

pub use live::{WATCH_GRACE, WATCH_QUIET_TIMEOUT};
pub use round::{ReflectorState, Resync, WATCH_TIMEOUT_MIN};

use crate::backoff::{BACKOFF_MAX, BACKOFF_MIN, Backoff, SPAN_MAX};
use crate::delta::{DeltaQueue, Keyed};
use crate::intake::{Intake, ObjectError};
use crate::object::DecodeError;
use crate::resource_type::ResourceType;
use crate::source::{ListWatch, SourceError};
use crate::transform::TransformError;
use rand::rngs::SmallRng;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a streamed list may bring no further object before the reflector falls back to pages
/// (REF-13).
///
/// 2 min: a server that ignores `sendInitialEvents` would otherwise keep the cache empty until the
/// watch times out. Only initial objects count, not bookmarks and changes.
pub const INITIAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest time of a streamed list before the reflector falls back to pages (REF-13).
///
/// 10 min, the longest default timeout of a watch: a correct server has closed the stream by then.
/// At a slow 2 MiB/s this is enough for a gigabyte of objects.
pub const INITIAL_EVENTS_TOTAL: Duration = Duration::from_secs(600);

/// How long a request for a page of a list may receive nothing.
///
/// 2 min, twice the time in which kube-apiserver answers any list (`--request-timeout`, 60 s).
pub const LIST_QUIET_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest time of a request for a page of a list: 10 min, as for a streamed list. client-go
/// has no limit here, and waits for ever on a connection that died silently.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(600);

/// The longest wait by `Retry-After`: 5 min. A longer one counts as that.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// The largest number of objects that one poll reads from a list or a watch. Then other tasks have
/// their turn, even if more objects have arrived.
pub const EVENTS_PER_POLL_MAX: usize = 64;

/// The reason why a round ended, or a request is repeated.
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
    /// A watch was closed within a second without an event (2.1).
    #[error("very short watch of {resource}: it was closed at once without an event")]
    VeryShortWatch {
        /// The resource.
        resource: String,
    },
    /// A streamed list did not end (REF-13).
    #[error("the initial events of {resource} did not end within {timeout:?}")]
    InitialEvents {
        /// The resource.
        resource: String,
        /// The timeout, for another object or for the whole list.
        timeout: Duration,
    },
    /// A page of a list did not arrive in time ([`LIST_QUIET_TIMEOUT`], [`LIST_TIMEOUT`]).
    #[error("no list of {resource} within {timeout:?}")]
    ListTimeout {
        /// The resource.
        resource: String,
        /// The timeout.
        timeout: Duration,
    },
    /// An object of a list could not be transformed, so the list was rejected (FIFO-24).
    #[error("failed to transform the list of {resource}")]
    Transform {
        /// The resource.
        resource: String,
        /// Why.
        #[source]
        source: TransformError,
    },
    /// An object was not stored; everything else goes on (REF-24, IDX-5).
    #[error("skipped an object of {resource}")]
    Object {
        /// The resource.
        resource: String,
        /// Why.
        #[source]
        source: ObjectError,
    },
    /// An object was stored, but has no values in an index: it does not fit the type of the
    /// index's function.
    #[error("an object of {resource} has no values in the index {index:?}")]
    Unindexed {
        /// The resource.
        resource: String,
        /// The index.
        index: Arc<str>,
        /// Why.
        #[source]
        source: DecodeError,
    },
}

impl ReflectorError {
    /// The error of the source, if it is one.
    pub fn source_error(&self) -> Option<&SourceError> {
        match self {
            Self::List { source, .. } | Self::Watch { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Receives the events of a reflector. Must return fast; cannot influence the reflector (REF-32).
pub trait ReflectorObserver: Send + Sync + 'static {
    /// A list or the start of a watch failed; another round follows.
    fn failed(&self, error: Arc<ReflectorError>);
    /// An ordinary failure: a watch broke, or the server is down or busy. The request is repeated.
    fn retrying(&self, error: Arc<ReflectorError>);
    /// One object was skipped.
    fn skipped(&self, error: Arc<ReflectorError>);
    /// A watch is open, so the cache is kept up to date.
    fn watching(&self);
    /// A list or an event at this resourceVersion was queued.
    fn reached(&self, resource_version: &str);
    /// A complete list, in pages or streamed, was queued.
    fn listed(&self, took: Duration, n_items: usize) {
        let _ = (took, n_items);
    }
    /// A watch was closed or broke after `n_events`. `is_short`: within a second and without events
    /// (2.1).
    fn watched(&self, took: Duration, n_events: u64, is_short: bool) {
        let _ = (took, n_events, is_short);
    }
}

/// Options of a reflector. The defaults are client-go's.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// The first wait between failures.
    pub backoff_min: Duration,
    /// The longest wait between failures, before jitter.
    pub backoff_max: Duration,
    /// Objects per page, always (REF-1 d). `None`: pages of
    /// [`PAGE_SIZE`](crate::source::PAGE_SIZE), unless that forces the server to read past its
    /// cache.
    pub page_size: Option<u32>,
    /// Whether to try streamed lists, if the source supports them.
    pub stream_list: bool,
    /// The shortest timeout of a watch; ignored unless longer than [`WATCH_TIMEOUT_MIN`].
    pub watch_timeout_min: Duration,
    /// How long a watch may bring nothing before another one is opened, and how long a request for
    /// a watch may wait for its answer: see [`WATCH_QUIET_TIMEOUT`]. `None`: until its own timeout.
    /// Detected at most a quarter later.
    pub watch_quiet_timeout: Option<Duration>,
    /// How long a streamed list may bring no object before the fallback to pages.
    pub initial_events_timeout: Duration,
    /// How long a streamed list may take before the fallback to pages.
    pub initial_events_total: Duration,
    /// How long a request for a page may receive nothing.
    pub list_quiet_timeout: Duration,
    /// How long a request for a page may take.
    pub list_timeout: Duration,
    /// For how long after the first internal error (500) of a watch to open another watch at once;
    /// zero is never (REF-30 f).
    pub internal_error_budget: Duration,
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
        }
    }
}

impl ReflectorOptions {
    fn capped(mut self) -> Self {
        for period in [
            &mut self.watch_timeout_min,
            &mut self.initial_events_timeout,
            &mut self.initial_events_total,
            &mut self.list_quiet_timeout,
            &mut self.list_timeout,
            &mut self.internal_error_budget,
        ] {
            *period = (*period).min(SPAN_MAX);
        }
        self.watch_quiet_timeout = self.watch_quiet_timeout.map(|timeout| timeout.min(SPAN_MAX));
        self
    }
}

/// Feeds a delta queue from a server. See the [module's theory](self).
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
    /// The version of the object that is being queued. A field, so that its memory is reused.
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
    /// A reflector from `source` through `intake` into `queue`. Does nothing until it is run. `rng`
    /// draws its jitter and watch timeouts.
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
        let options = options.capped();
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

    /// Enables resyncs.
    pub fn resync(mut self, resync: Resync) -> Self {
        self.resync = (!resync.period.is_zero()).then(|| Arc::new(resync));
        self
    }
}
