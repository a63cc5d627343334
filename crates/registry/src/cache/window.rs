//! The recent changes of one resource, for watchers.
//!
//! # Theory
//!
//! Changes are appended with the next sequence number and dropped at the start. A change is dropped
//! if
//!
//! - there are more than [`WINDOW_CHANGES_MAX`], or
//! - all changes take more than [`WINDOW_BYTES_MAX`]: states that are no longer current, and
//!   encoded events; or
//! - it is older than the window's period, unless it is among the newest [`WINDOW_CHANGES_MIN`] and
//!   the resource has objects.
//!
//! The encoded events of a change are dropped some seconds later, when the watchers that keep up
//! have them.
//!
//! The period is by default [`HISTORY_PERIOD`](crate::HISTORY_PERIOD), the same as that of the
//! store's history, so that a client that returns within it continues where it stopped.
//! kube-apiserver keeps at least 75 s. A window covers its period if the limits allow. A resource
//! that changes rarely keeps its last hundred changes for longer; one without objects does not,
//! because its definition may be gone.
use super::{Change, Meter};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of changes in a window: as in kube-apiserver's watch cache of one resource.
pub(crate) const WINDOW_CHANGES_MAX: usize = 102_400;
/// Number of changes that a window keeps whatever their age, as kube-apiserver's smallest watch
/// cache.
pub(crate) const WINDOW_CHANGES_MIN: usize = 100;
/// Maximum memory of a window beyond the present state, in bytes.
///
/// 64 MiB hold 75 s of 200 changes a second of objects of 2 KiB, with one encoded event each.
pub(crate) const WINDOW_BYTES_MAX: usize = 64 << 20;
/// How long the encoded events of a change are cached. Later watchers encode them again.
///
/// Watchers that keep up get them within milliseconds.
const EVENTS_PERIOD: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Window {
    /// How long a change stays.
    period: Duration,
    changes: VecDeque<(Instant, Arc<Change>)>,
    /// The sequence number of the first change.
    first: u64,
    /// Every change after this revision is in the window.
    oldest: u64,
    /// The size of the previous states, in bytes.
    n_bytes: usize,
    /// Counts the bytes of the events.
    meter: Meter,
    /// The events of the changes before this sequence number were dropped.
    forgotten: u64,
}
impl Window {
    pub(super) fn new(oldest: u64, period: Duration) -> Self {
        let (changes, meter) = (VecDeque::new(), Meter::default());
        Self { period, changes, first: 0, oldest, n_bytes: 0, meter, forgotten: 0 }
    }
    /// The sequence number of the first change.
    pub(super) fn first(&self) -> u64 {
        self.first
    }
    /// The sequence number after the last change.
    pub(super) fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }
    /// Whether there is no change.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
    /// Every change after this revision is in the window.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }
    /// Counts the bytes of the events made from its changes.
    pub(super) fn meter(&self) -> Meter {
        self.meter.clone()
    }
    /// The sequence number of the first change after a revision.
    pub(super) fn after(&self, revision: u64) -> u64 {
        self.first + self.changes.partition_point(|(_, change)| change.revision <= revision) as u64
    }
    /// A change by its sequence number.
    pub(super) fn get(&self, sequence: u64) -> Option<&Arc<Change>> {
        self.at(sequence).map(|(_, change)| change)
    }
    fn at(&self, sequence: u64) -> Option<&(Instant, Arc<Change>)> {
        self.changes.get(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Change>> {
        self.changes.iter().map(|(_, change)| change)
    }

    pub(super) fn push(&mut self, now: Instant, change: Arc<Change>) {
        self.n_bytes += change.weight();
        self.changes.push_back((now, change));
        self.trim(now, WINDOW_CHANGES_MIN);
    }
    /// Drops changes that exceed the limits, and encoded events that are too old. Keeps the newest
    /// `n_kept` changes whatever their age.
    pub(super) fn trim(&mut self, now: Instant, n_kept: usize) {
        self.forgotten = self.forgotten.max(self.first);
        while let Some((_, change)) = self
            .at(self.forgotten)
            .filter(|(since, _)| now.saturating_duration_since(*since) > EVENTS_PERIOD)
        {
            change.forget_events();
            self.forgotten += 1;
        }
        while let Some((since, change)) = self.changes.front() {
            let is_old =
                self.changes.len() > n_kept && now.saturating_duration_since(*since) > self.period;
            let is_over = self.changes.len() > WINDOW_CHANGES_MAX
                || self.n_bytes > WINDOW_BYTES_MAX
                // Watchers may still hold events that they are sending; those must not empty the
                // window.
                || self.changes.len() > WINDOW_CHANGES_MIN
                    && self.n_bytes + self.meter.bytes() > WINDOW_BYTES_MAX;
            if !is_old && !is_over {
                return;
            }
            self.n_bytes -= change.weight();
            self.oldest = change.revision;
            self.first += 1;
            self.changes.pop_front();
        }
    }
    /// Starts over: history up to a revision is dropped.
    pub(super) fn restart(&mut self, revision: u64) {
        // One more, so that positions at the end of the old window are before the new one.
        self.first = self.end() + 1;
        self.changes.clear();
        self.n_bytes = 0;
        self.oldest = revision;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HISTORY_PERIOD;
    use crate::bootstrap;
    use crate::cache::field_values::FieldValues;
    use crate::cache::{Index, Interest, Item, ResourceCache};
    use crate::watch::EventKind;
    use bytes::Bytes;
    use setpoint_store::Revision;

    fn change(window: &Window, revision: u64, n_bytes: usize) -> Arc<Change> {
        let value = format!(r#"{{"apiVersion":"v1","x":"{}"}}"#, "x".repeat(n_bytes));
        let item =
            |value: String| Arc::new(Item::new("/registry/pods/a".into(), revision, value.into()));
        let before = Some(item(value.clone()));
        Arc::new(Change::new(revision, Some(item(value)), before, window.meter()))
    }

    #[tokio::test(start_paused = true)]
    async fn states_and_events_count_while_they_exist() {
        let pods = bootstrap::catalog().get("", "v1", "pods").unwrap().clone();
        let mut window = Window::new(0, HISTORY_PERIOD);
        let n_fit = WINDOW_BYTES_MAX / (64 << 10);
        for revision in 1..=2 * n_fit as u64 {
            let change = change(&window, revision, 64 << 10);
            window.push(Instant::now(), change);
        }
        let n_kept = window.changes.len();
        assert!((n_fit * 9 / 10..=n_fit).contains(&n_kept), "{n_kept}");
        assert_eq!(window.oldest(), 2 * n_fit as u64 - n_kept as u64);
        // One event of each takes as much again.
        window.iter().for_each(|change| {
            let event = change.event(&pods, EventKind::Modified).unwrap().unwrap();
            assert!(event.frame().len() > 64 << 10);
            assert!(Arc::ptr_eq(
                &event,
                &change.event(&pods, EventKind::Modified).unwrap().unwrap()
            ));
        });
        assert!(window.meter.bytes() > WINDOW_BYTES_MAX * 9 / 10);
        window.trim(Instant::now(), WINDOW_CHANGES_MIN);
        assert!((n_kept * 4 / 10..=n_kept * 6 / 10).contains(&window.changes.len()));
        assert!(window.n_bytes + window.meter.bytes() <= WINDOW_BYTES_MAX);
        // Soon the events are not needed any more; the history stays.
        let (n_kept, n_bytes) = (window.changes.len(), window.n_bytes);
        tokio::time::advance(EVENTS_PERIOD + Duration::from_secs(1)).await;
        window.trim(Instant::now(), WINDOW_CHANGES_MIN);
        assert_eq!((window.changes.len(), window.n_bytes), (n_kept, n_bytes));
        assert_eq!(window.meter.bytes(), 0);
        window.restart(9);
        assert_eq!((window.meter.bytes(), window.n_bytes, window.oldest()), (0, 0, 9));
    }

    #[tokio::test(start_paused = true)]
    async fn old_changes_are_dropped_except_the_newest() {
        let mut window = Window::new(0, Duration::from_secs(10));
        let push = |window: &mut Window, revision: u64| {
            let change = Arc::new(Change::new(revision, None, None, window.meter()));
            window.push(Instant::now(), change);
        };
        (1..=3 * WINDOW_CHANGES_MIN as u64).for_each(|revision| push(&mut window, revision));
        tokio::time::advance(Duration::from_secs(10)).await;
        push(&mut window, 301);
        assert_eq!((window.first(), window.oldest()), (0, 0));
        tokio::time::advance(Duration::from_secs(1)).await;
        window.trim(Instant::now(), WINDOW_CHANGES_MIN);
        assert_eq!((window.first(), window.oldest(), window.changes.len()), (201, 201, 100));
    }

    /// The last changes of the objects of a deleted definition stayed in memory for good.
    #[tokio::test(start_paused = true)]
    async fn a_resource_without_objects_keeps_no_old_changes() {
        let period = Duration::from_secs(10);
        let prefix = "/registry/ex.io/foos/";
        let cache = ResourceCache::new(prefix.len(), period, 1, false);
        let apply = |revision, value: Option<&'static str>| {
            let (key, value) = (format!("{prefix}n/a").into(), value.map(Bytes::from));
            let revision = Revision(revision);
            cache.apply(
                vec![setpoint_store::Change { revision, key, value, previous: None }],
                &FieldValues::default(),
            );
        };
        let pass = async || {
            tokio::time::advance(period + Duration::from_secs(1)).await;
            cache.trim(Instant::now());
        };
        let is_kept_after = |revision| cache.begin_after(&Interest::default(), revision).is_ok();
        apply(2, Some("{}"));
        pass().await;
        assert!(is_kept_after(1), "a resource that changes rarely");
        apply(3, None);
        cache.trim(Instant::now());
        assert!(is_kept_after(2), "a recent change");
        pass().await;
        assert!(!is_kept_after(2) && is_kept_after(3));
    }

    /// A client that did not read kept the objects that its watch began with, in any number of
    /// copies, for as long as its connection lived.
    #[tokio::test(start_paused = true)]
    async fn objects_of_a_watch_that_is_not_read_are_dropped_with_the_window() {
        let period = Duration::from_secs(10);
        let prefix = "/registry/configmaps/";
        let cache = ResourceCache::new(prefix.len(), period, 1, false);
        let apply = |revision| {
            let key: Bytes = format!("{prefix}n/a").into();
            let (revision, value) = (Revision(revision), Some("{}".into()));
            cache.apply(
                vec![setpoint_store::Change { revision, key, value, previous: None }],
                &FieldValues::default(),
            );
        };
        let first = |index: Index| {
            let key = format!("{prefix}n/a");
            index.get(key.as_bytes()).map(Arc::downgrade).unwrap()
        };
        apply(2);
        let (begin, unread) = cache.begin_with_objects(&Interest::default());
        let item = first(begin.index);
        let (_, read) = cache.begin_with_objects(&Interest::default());
        drop(read);
        (3..=2 + WINDOW_CHANGES_MIN as u64).for_each(apply);
        tokio::time::advance(period + Duration::from_secs(1)).await;
        cache.trim(Instant::now());
        assert!(unread.get().is_some() && item.upgrade().is_some(), "the window has it too");
        apply(3 + WINDOW_CHANGES_MIN as u64);
        assert!(unread.get().is_none() && item.upgrade().is_none());
        // Without changes, those that were read are forgotten.
        for _ in 0..10_000 {
            cache.begin_with_objects(&Interest::default());
        }
        assert!(cache.n_snapshots() <= 2 * 64, "{}", cache.n_snapshots());
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_counted_too() {
        let mut window = Window::new(0, HISTORY_PERIOD);
        for revision in 1..=WINDOW_CHANGES_MAX as u64 + 7 {
            let change = Arc::new(Change::new(revision, None, None, window.meter()));
            window.push(Instant::now(), change);
        }
        assert_eq!((window.first(), window.oldest()), (7, 7));
        assert_eq!(window.get(window.end() - 1).unwrap().revision, WINDOW_CHANGES_MAX as u64 + 7);
        assert!(window.get(6).is_none() && window.get(window.end()).is_none());
        assert_eq!(window.get(window.after(9)).unwrap().revision, 10);
    }
}
