//! The way of a source that is no watch into a controller's queue.

use std::{fmt, hash::Hash, time::Duration};

use setpoint_workqueue::{AddOptions, Tag, WorkQueue};

use crate::pass::Cause;

/// The way into a controller's queue, for a [`Source`](super::Source). Cheap to clone; outlives the
/// controller, and then does nothing.
///
/// Adding never waits: the queue holds each key once.
pub struct KeySink<R> {
    queue: WorkQueue<R>,
    low_priority: i32,
}

impl<R: Clone + Eq + Hash + Send + 'static> KeySink<R> {
    pub(crate) fn new(queue: WorkQueue<R>, low_priority: i32) -> Self {
        Self { queue, low_priority }
    }

    /// Wants a pass over `key`, at priority 0 (PQ-43).
    pub fn add(&self, key: R) {
        self.add_with(key, AddOptions::default());
    }

    /// Wants a pass over `key` in `delay`; an earlier one that is wanted already stays.
    pub fn add_after(&self, key: R, delay: Duration) {
        self.add_with(key, AddOptions::default().after(delay));
    }

    /// Wants a pass over `key` as `options` say.
    pub fn add_with(&self, key: R, mut options: AddOptions) {
        if options.tag == Tag::NONE {
            options.tag = Cause::External.tag();
        }
        self.queue.add_with(key, options);
    }

    /// The controller's priority of what is not urgent: for what was there already when the source
    /// began (PQ-40).
    pub fn low_priority(&self) -> i32 {
        self.low_priority
    }

    /// Whether the controller takes no keys any more.
    pub fn is_closed(&self) -> bool {
        self.queue.is_shutting_down()
    }
}

impl<R> Clone for KeySink<R> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), low_priority: self.low_priority }
    }
}

impl<R> fmt::Debug for KeySink<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySink").field("low_priority", &self.low_priority).finish_non_exhaustive()
    }
}
