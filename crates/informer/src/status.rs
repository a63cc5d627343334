//! The state of an informer, which any number of tasks may await.
use crate::failure::chain;
use crate::reflector::ReflectorError;
use std::fmt;
use std::sync::Arc;
use tokio::time::Instant;

/// The state of one informer at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct InformerStatus {
    /// Whether the first list is in the cache and all its objects are readable (FIFO-22, SHI-9).
    /// Never reverts.
    pub has_synced: bool,
    /// Whether the worker has ended. Nothing changes afterwards.
    pub has_stopped: bool,
    /// Whether the informer stopped by itself because the server refused the type for too long
    /// ([`give_up_after`](crate::SharedInformerBuilder::give_up_after)); `degraded` has the reason.
    pub has_given_up: bool,
    /// Set while the cache is not kept up to date: since the first failure after which no watch was
    /// opened.
    pub degraded: Option<Degraded>,
    /// How often an index function or the transform has panicked. The object is stored
    /// nevertheless: without values in that index, or untransformed.
    pub panics: u64,
    /// The last of these panics: the function, the object and the message.
    pub last_panic: Option<Arc<str>>,
    /// How often an object did not fit the type of an index function. It is stored nevertheless,
    /// without values in that index: reads by the index miss it.
    pub unindexed: u64,
    /// The last of these: the index, the object and the error.
    pub last_unindexed: Option<Arc<str>>,
}

/// Why a cache is not up to date. An informer does not give up by default (REF-33), so this is how
/// its owner detects a missing permission or a missing type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Degraded {
    /// When the first failure in a row happened, tokio time.
    pub since: Instant,
    /// How many failures in a row.
    pub failures: u32,
    /// The latest failure.
    pub error: Arc<ReflectorError>,
    /// Since when all failures are 403 or 404: the type may not be read or is not served. `None` if
    /// the latest failure is another one.
    pub refused_since: Option<Instant>,
}

/// The latest failure with its causes, on one line.
impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(&*self.error))
    }
}
