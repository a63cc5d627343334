//! How an informer is doing, as a state that any number of tasks may await.
use crate::key::Key;
use crate::reflector::ReflectorError;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// The state of one informer at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct InformerStatus {
    /// Whether the first list is in the cache, every object of it readable (FIFO-22, SHI-9). Never
    /// reverts.
    pub has_synced: bool,
    /// Whether the worker has ended. Nothing changes after that.
    pub has_stopped: bool,
    /// Whether it stopped by itself, after the server had refused the type for as long as it was
    /// told to bear that; `degraded` says why.
    pub has_given_up: bool,
    /// Set while the cache is not being kept up to date: since the first failure after which no
    /// watch was opened.
    pub degraded: Option<Degraded>,
    /// How often an index function or the transform has panicked. The object is in the cache
    /// nevertheless: not in that index, and as it came.
    pub panics: u64,
    /// The last of these panics: what panicked, for which object, and what it said.
    pub last_panic: Option<Arc<str>>,
}

/// Where panics of functions of the user are counted: in an informer's status.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panics(watch::Sender<InformerStatus>);

impl Panics {
    pub(crate) fn of(status: &watch::Sender<InformerStatus>) -> Self {
        Self(status.clone())
    }

    /// Runs a function of the user; `None` if it panicked, which is counted and logged.
    pub(crate) fn catch<T>(
        &self,
        what: impl fmt::Display,
        key: &Key,
        f: impl FnOnce() -> T,
    ) -> Option<T> {
        catch_unwind(AssertUnwindSafe(f)).map_err(|panic| self.note(what, key, &*panic)).ok()
    }

    fn note(&self, what: impl fmt::Display, key: &Key, panic: &(dyn Any + Send)) {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("something that is no text");
        tracing::error!(%key, "{what} panicked: {said}");
        let last = Arc::from(format!("{what} panicked for {key}: {said}"));
        self.0.send_modify(|status| {
            status.panics += 1;
            status.last_panic = Some(last);
        });
    }
}

/// Why a cache is falling behind. The informer never gives up by itself (REF-33): this is how its
/// owner learns of a missing permission or a missing type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Degraded {
    /// The first failure in a row, tokio time.
    pub since: Instant,
    /// How many failures in a row.
    pub failures: u32,
    /// The latest failure.
    pub error: Arc<ReflectorError>,
    /// Since when every failure says that the type may not be read (403) or is not served (404);
    /// `None` when the latest does not.
    pub refused_since: Option<Instant>,
}

/// The latest failure with its causes, on one line.
impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(&*self.error))
    }
}

/// What is asked of an informer whose worker has ended (SHI-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the informer has stopped")]
pub struct Stopped;

/// An error and its causes, joined as a sentence. A cause that was said already, because the error
/// above it prints its causes itself, is not said again.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
