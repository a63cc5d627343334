//! Failures shared by several stages: an informer that has stopped, and panics of user functions.

use crate::key::Key;
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

/// Catches, logs and reports panics of the user's functions.
#[derive(Clone, Default)]
pub(crate) struct Panics(Option<Report>);

/// The receiver of the text of each panic.
type Report = Arc<dyn Fn(Arc<str>) + Send + Sync>;

impl Panics {
    pub(crate) fn new(report: impl Fn(Arc<str>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
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
        if let Some(report) = &self.0 {
            report(Arc::from(format!("{what} panicked for {key}: {message}")));
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
