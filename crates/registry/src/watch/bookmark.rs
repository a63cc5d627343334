//! The timer and the form of bookmarks.
use super::{Event, EventKind};
use crate::catalog::Resource;
use rand::Rng;
use serde_json::json;
use setpoint_schema::encode::to_bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// When a watch ends whose own timeout is beyond all time.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// Period of bookmarks; a random part of up to a quarter is added. One minute, as in
/// kube-apiserver.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long before its end a watch gets a last bookmark, so that a client resumes from a fresh
/// revision.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// The timer of a stream: its end, and the bookmarks before.
#[derive(Debug)]
pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// When the stream ends.
    deadline: Instant,
    /// `None`: no bookmarks.
    period: Option<Duration>,
    /// A bookmark may be sent once everything before it is delivered.
    pub(super) is_bookmark_due: bool,
}
impl Timer {
    /// Without a timeout, the stream ends after `min` and a random part of up to the same length.
    pub(super) fn new(
        timeout: Option<Duration>,
        min: Duration,
        allow_bookmarks: bool,
        rng: &mut impl Rng,
    ) -> Self {
        // Both are drawn whatever the options, so that one watcher's options do not change the
        // times of the next watcher.
        let random_timeout = match min.is_zero() {
            true => min,
            false => min.saturating_add(rng.random_range(Duration::ZERO..min)),
        };
        let period = BOOKMARK_PERIOD + rng.random_range(Duration::ZERO..BOOKMARK_PERIOD / 4);
        let now = Instant::now();
        let timeout = timeout.unwrap_or(random_timeout);
        let deadline = now.checked_add(timeout).unwrap_or(now + TIMEOUT_MAX);
        let period = allow_bookmarks.then_some(period);
        let mut timer = Self {
            sleep: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
            period,
            is_bookmark_due: false,
        };
        timer.set(now);
        timer
    }
    /// Sets the timer to the next event.
    fn set(&mut self, now: Instant) {
        let last = self.deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
        let next = self.period.map(|period| now + period);
        let next = match (next, last) {
            (Some(next), Some(last)) => next.min(last),
            _ => self.deadline,
        };
        self.sleep.as_mut().reset(next.min(self.deadline));
    }
    /// Whether the stream has timed out. Wakes the task when that, or a bookmark, is due.
    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        while let Poll::Ready(()) = self.sleep.as_mut().poll(cx) {
            let now = Instant::now();
            if now >= self.deadline {
                return true;
            }
            self.is_bookmark_due = true;
            self.set(now);
        }
        false
    }
}

/// A bookmark: an empty object of the kind at a revision.
pub(super) fn event(resource: &Resource, revision: u64, ends_initial: bool) -> Arc<Event> {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if ends_initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object = to_bytes(&json!({
        "apiVersion": resource.group_version().to_string(),
        "kind": &*resource.gvk.kind,
        "metadata": metadata,
    }));
    Arc::new(Event::new(EventKind::Bookmark, object, revision))
}
