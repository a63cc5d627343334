//! How a handler adds keys.

use std::{fmt, hash::Hash, time::Duration};

use setpoint_informer::Event;
use setpoint_workqueue::{AddOptions, Tag, WorkQueue};

use crate::pass::Cause;

/// The way from one event into a controller's queue.
///
/// It knows the event's priority, so that no handler need think of it (PQ-40 to PQ-43, PQ-45,
/// PQ-47):
///
/// | event                                              | priority                                          |
/// |----------------------------------------------------|---------------------------------------------------|
/// | added, and it was there when the handler began     | the controller's low priority, -100 by default    |
/// | updated, and both sides are the same version: a resync, or a relist of what is known | the same        |
/// | everything else                                    | 0                                                 |
///
/// [`add_with`](Self::add_with) may say another one.
pub struct Enqueue<'a, R> {
    queue: &'a WorkQueue<R>,
    priority: i32,
    cause: Cause,
    /// Other keys are left out.
    only: Option<&'a dyn Fn(&R) -> bool>,
}

impl<'a, R: Clone + Eq + Hash + Send + 'static> Enqueue<'a, R> {
    pub(crate) fn new(
        queue: &'a WorkQueue<R>,
        priority: i32,
        cause: Cause,
        only: Option<&'a dyn Fn(&R) -> bool>,
    ) -> Self {
        Self { queue, priority, cause, only }
    }

    /// Wants a pass over `key`.
    pub fn add(&self, key: R) {
        self.add_with(key, AddOptions::default());
    }

    /// Wants a pass over `key` in `delay`; an earlier one that is wanted already stays.
    pub fn add_after(&self, key: R, delay: Duration) {
        self.add_with(key, AddOptions::default().after(delay));
    }

    /// Wants a pass over `key` as `options` say; a priority that they leave open is the event's.
    pub fn add_with(&self, key: R, mut options: AddOptions) {
        if self.only.is_some_and(|only| !only(&key)) {
            return;
        }
        options.priority.get_or_insert(self.priority);
        if options.tag == Tag::NONE {
            options.tag = self.cause.tag();
        }
        self.queue.add_with(key, options);
    }

    /// Why: what the passes that this leads to will be said to be for.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The priority that the event gives to what is added.
    pub fn priority(&self) -> i32 {
        self.priority
    }
}

impl<R> fmt::Debug for Enqueue<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue")
            .field("priority", &self.priority)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

/// The priority of what an event leads to: the table at [`Enqueue`].
pub(crate) fn priority_of<K>(event: &Event<K>, low: i32) -> i32 {
    if event.in_initial_list() || event.is_sync() { low } else { 0 }
}
