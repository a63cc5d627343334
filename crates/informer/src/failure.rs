//! Failures shared by several stages: an informer that has stopped, and panics of user functions.

use crate::key::Key;
use crate::object::DecodeError;
pub(crate) use setpoint_object::error::chain;
use setpoint_object::panic;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The informer's worker has ended, so it does nothing more (SHI-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the informer has stopped")]
pub struct Stopped;

/// Catches, logs and reports failures of the user's functions.
#[derive(Clone, Default)]
pub(crate) struct Failures(Option<Arc<dyn FailureObserver>>);

/// Receives the failures of the user's functions.
pub(crate) trait FailureObserver: Send + Sync {
    /// A function panicked.
    fn panicked(&self, text: Arc<str>);
    /// An object has no values in an index, because it does not fit the type of its function.
    fn unindexed(&self, index: &Arc<str>, error: DecodeError);
}

impl Failures {
    pub(crate) fn new(observer: Arc<dyn FailureObserver>) -> Self {
        Self(Some(observer))
    }

    /// Runs a function of the user. `None` if it panicked.
    pub(crate) fn catch<T>(
        &self,
        what: impl fmt::Display,
        key: &Key,
        f: impl FnOnce() -> T,
    ) -> Option<T> {
        catch_unwind(AssertUnwindSafe(f)).map_err(|panic| self.note(what, key, &*panic)).ok()
    }

    fn note(&self, what: impl fmt::Display, key: &Key, panic: &(dyn Any + Send)) {
        let message = panic::message(panic);
        tracing::error!(%key, "{what} panicked: {message}");
        if let Some(observer) = &self.0 {
            observer.panicked(Arc::from(format!("{what} panicked for {key}: {message}")));
        }
    }

    /// Reports an object that does not fit the type of an index function.
    pub(crate) fn unindexed(&self, index: &Arc<str>, error: DecodeError) {
        match &self.0 {
            Some(observer) => observer.unindexed(index, error),
            None => tracing::error!("no values in the index {index:?}: {}", chain(&error)),
        }
    }
}

/// Passes a panic of a task on to this one.
pub(crate) fn pass_on_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
