//! The explanation of one pass.

use std::{fmt, sync::Arc, time::Duration};

use setpoint_object::time::Timestamp;

use super::Writer;
use crate::{
    pass::{Cause, Note, PassOutcome, ReconcileId},
    request::Request,
};

/// Why one pass ran, and how it ended; from
/// [`ControllerHandle::explain`](crate::ControllerHandle::explain).
///
/// `Display` prints it in a few lines of text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The controller's name.
    pub controller: Arc<str>,
    /// The key's `Display` text.
    pub key: String,
    /// The id of the pass.
    pub reconcile_id: ReconcileId,

    /// Why the key was queued: of several additions, the one that set the time.
    pub cause: Cause,
    /// The resource whose event it was, if any.
    pub resource: Option<Arc<str>>,
    /// The object of the event, while the cache holds that version of it.
    pub object: Option<Request>,
    /// The writers of that version: the newest entries of the object's `managedFields`. Several if
    /// they wrote within one second; empty if the cache holds another version by now, or no
    /// `managedFields`, which it drops unless
    /// [`CacheOptions::keep_managed_fields`](crate::CacheOptions::keep_managed_fields) is set.
    pub writers: Vec<Writer>,
    /// How many additions of the key were merged into this pass.
    pub n_events: u32,
    /// How long the ready key waited for a worker.
    pub waited: Option<Duration>,
    /// The key's priority in the queue.
    pub priority: i32,
    /// How many passes over the key in a row had failed or asked for a requeue with back-off.
    pub attempt: u32,

    /// The start; `None` before the controller runs.
    pub began: Option<Timestamp>,
    /// The duration, without the time in the queue; `None` while it runs.
    pub took: Option<Duration>,
    /// The outcome; `None` while it runs.
    pub outcome: Option<PassOutcome>,
    /// Its reads and writes, ordered by the first of each.
    pub notes: Vec<Note>,
    /// How many reads and writes were beyond [`NOTES_MAX`](crate::client::NOTES_MAX).
    pub n_more_notes: u32,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, pass {}", self.controller, self.key, self.reconcile_id)?;
        if let Some(began) = self.began {
            write!(f, " at {}", began.rfc3339_micro())?;
        }
        write!(f, "\n  because {}", Why(self))?;
        if self.n_events > 1 {
            write!(f, "; {} additions became this pass", self.n_events)?;
        }
        write!(f, "\n  attempt {}", self.attempt.saturating_add(1))?;
        if let Some(waited) = self.waited {
            write!(f, " after {waited:?} in the queue")?;
        }
        if self.priority != 0 {
            write!(f, " at priority {}", self.priority)?;
        }
        for note in &self.notes {
            write!(f, "\n  {note}")?;
        }
        if self.n_more_notes > 0 {
            write!(f, "\n  and {} reads and writes more", self.n_more_notes)?;
        }
        match &self.outcome {
            None => f.write_str("\n  still running")?,
            Some(PassOutcome::Success) => f.write_str("\n  succeeded")?,
            Some(PassOutcome::RequeueAfter(delay)) => {
                write!(f, "\n  succeeded, requeued after {delay:?}")?;
            }
            Some(PassOutcome::Requeue) => f.write_str("\n  succeeded, requeued with back-off")?,
            Some(PassOutcome::Error(error)) => write!(f, "\n  failed: {error}")?,
            Some(PassOutcome::Terminal(error)) => {
                write!(f, "\n  failed, not retried before the next change: {error}")?
            }
            Some(PassOutcome::Panic(message)) => write!(f, "\n  panicked: {message}")?,
            Some(PassOutcome::Timeout) => f.write_str("\n  timed out")?,
            Some(PassOutcome::Dropped) => f.write_str("\n  dropped before it had ended")?,
        }
        match self.took {
            Some(took) => write!(f, "; it took {took:?}"),
            None => Ok(()),
        }
    }
}

/// The cause as a clause.
struct Why<'a>(&'a Explanation);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { cause, resource, object, writers, .. } = self.0;
        let what = match cause {
            Cause::External => return f.write_str("it was added from outside"),
            Cause::Retry => return f.write_str("the previous pass asked for a retry"),
            Cause::Timer => {
                return f.write_str("the previous pass asked for a requeue after a delay");
            }
            Cause::HandOver => return f.write_str("the key was handed over to this replica"),
            Cause::Created { .. } => "was created",
            Cause::Updated { .. } => "was updated",
            Cause::Deleted { .. } => "was deleted",
            Cause::Resync { .. } => "was resynced",
            Cause::InitialList { .. } => "was in the initial list",
        };
        match (resource, object) {
            (Some(resource), Some(object)) => write!(f, "{resource} {object} {what}")?,
            (Some(resource), None) => write!(f, "one of {resource} {what}")?,
            (None, _) => write!(f, "an object {what}")?,
        }
        if let Some(version) = cause.resource_version() {
            write!(f, " at version {version}")?;
        }
        for (n, writer) in writers.iter().enumerate() {
            write!(f, "{} {writer}", if n == 0 { ", written by" } else { " or" })?;
        }
        Ok(())
    }
}
