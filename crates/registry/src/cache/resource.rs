//! One resource's index and window.
//!
//! | a watcher's position is | it gets |
//! |---|---|
//! | before its bucket's chain | the later changes of the window, in order |
//! | in the chain, or at its end | the later changes of the chain, in order |
//! | after all changes | nothing yet; the next change in its bucket wakes it |
//! | before a change that was dropped | the end of the watch: it was too slow |
//!
//! A watcher without changes in its bucket is never too slow, however far the window moves. When
//! all watches must end, each gets its remaining changes first.
//!
//! A watch that begins with all objects has a [`Snapshot`] until it has sent them. A client that
//! does not read may keep it for as long as its connection lives, and it holds every object that
//! was replaced since. As long as the watcher's position is in the window, the window holds the
//! same objects. After that the snapshot is dropped here, and the watch ends.
use super::fanout::{Fanout, Placement, Woken};
use super::field_values::FieldValues;
use super::item::LONG_BYTES_MIN;
use super::window::{WINDOW_CHANGES_MIN, Window};
use super::{Change, Index, Interest, Item};
use crate::threads::Threads;
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::ApiError;
use setpoint_store::is_sealed;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of changes that a watcher takes at once, and therefore holds.
pub(crate) const TAKE_MAX: usize = 16;

/// Snapshots that are remembered before those that are not used any more are looked for.
const SNAPSHOTS_MIN: usize = 64;

/// Identifies a watcher of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatcherId(pub(super) u64);

/// The cache of one resource.
#[derive(Debug)]
pub(crate) struct ResourceCache {
    state: Mutex<State>,
    /// Wakes those who wait for a first object.
    has_changed: Notify,
}
#[derive(Debug)]
struct State {
    // The present state.
    index: Index,
    /// The revision of the newest change, or of the last fill.
    newest: u64,
    /// The keys in the index whose values could not be decrypted.
    sealed: BTreeSet<Bytes>,
    // The history.
    window: Window,
    // The watchers.
    fanout: Fanout,
    /// Increases when every watch must end.
    epoch: u64,
    /// The sequence number up to which watches of earlier epochs still get changes before they end.
    closed_at: u64,
    /// The error that ended the last epoch, if it was a failure.
    failure: Option<ApiError>,
    /// The sequence number of the first change after the window's last start. Earlier changes are
    /// not delivered any more, and some may be missing.
    begun_at: u64,
    is_stopped: bool,
    n_watchers: u64,
    /// The snapshots of watchers, in the order of their positions. Some are not used any more.
    snapshots: VecDeque<(u64, Weak<Snapshot>)>,
    /// The number of snapshots at which those that are not used are forgotten.
    snapshots_max: usize,
}

/// The objects that a watch begins with, until it is too slow.
#[derive(Debug)]
pub(crate) struct Snapshot(Mutex<Option<Index>>);
impl Snapshot {
    /// The objects. `None`: the changes after them have left the window.
    pub(crate) fn get(&self) -> Option<Index> {
        self.0.lock().clone()
    }
}

/// A watcher's position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watcher {
    id: WatcherId,
    /// The sequence number of the next change to take. No earlier change concerns the watcher.
    next: u64,
    epoch: u64,
    placement: Placement,
}
/// The start of a watch.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) watcher: Watcher,
    /// The objects at `newest`.
    pub(crate) index: Index,
    /// The revision of the newest change in `index`.
    pub(crate) newest: u64,
}
/// The result of taking changes.
#[derive(Debug, PartialEq)]
pub(crate) enum Taken {
    /// Changes were appended; there may be more.
    Some,
    /// None; the waker will be called.
    Nothing,
    /// The watch has ended.
    Ended,
    /// The watch has ended with an error.
    Failed(ApiError),
}

impl ResourceCache {
    /// The cache of the objects whose keys have a prefix of `prefix_len` bytes. It keeps changes
    /// for `history`.
    pub(super) fn new(
        prefix_len: usize,
        history: Duration,
        filled_at: u64,
        is_stopped: bool,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                index: Index::default(),
                newest: filled_at,
                sealed: BTreeSet::new(),
                window: Window::new(filled_at, history),
                fanout: Fanout::new(prefix_len),
                epoch: 0,
                closed_at: 0,
                failure: None,
                begun_at: 0,
                is_stopped,
                n_watchers: 0,
                snapshots: VecDeque::new(),
                snapshots_max: SNAPSHOTS_MIN,
            }),
            has_changed: Notify::new(),
        }
    }
    /// Waits until there is an object. Cancel safe.
    pub(crate) async fn any(&self) {
        loop {
            // Before the look, so that no change is missed.
            let changed = self.has_changed.notified();
            if !self.state.lock().index.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// A watcher of everything, and the objects at its position: after the changes up to `after`,
    /// or after the newest change if `after` was dropped, is in the future, or is more than
    /// `changes_max` changes ago.
    pub(super) fn begin_back(&self, after: u64, changes_max: usize) -> Begin {
        let (mut begin, later) = {
            let mut state = self.state.lock();
            let (first, end) = (state.window.after(after), state.window.end());
            let is_kept = after >= state.window.oldest() && after < state.newest;
            if !is_kept || end - first > changes_max as u64 {
                return state.begin(&Interest::default(), end);
            }
            let later: Vec<_> = (first..end).filter_map(|n| state.window.get(n).cloned()).collect();
            (state.begin(&Interest::default(), first), later)
        };
        for change in later.iter().rev() {
            match &change.before {
                Some(before) => _ = begin.index.insert(before.clone()),
                None => _ = begin.index.remove(change.key()),
            }
        }
        begin.newest = after;
        begin
    }
    /// The revision of the newest change, or of the last fill.
    pub(crate) fn newest(&self) -> u64 {
        self.state.lock().newest
    }
    /// Whether no more changes follow.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }
    /// The keys of values that could not be decrypted.
    pub(super) fn all_sealed(&self) -> BTreeSet<Bytes> {
        self.state.lock().sealed.clone()
    }
    /// The present objects, and the revision of the newest change among them.
    pub(crate) fn snapshot(&self) -> (Index, u64) {
        let state = self.state.lock();
        (state.index.clone(), state.newest)
    }

    /// The object under a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Item>> {
        self.state.lock().index.get(key).cloned()
    }

    /// The first keys in `[start, end)` (empty: no end) whose values could not be decrypted, at
    /// most `limit`. Lists and watches of the range fail.
    pub(crate) fn sealed(&self, start: &Bytes, end: &Bytes, limit: usize) -> Vec<Bytes> {
        let state = self.state.lock();
        let all = state.sealed.range::<Bytes, _>(start..);
        all.take_while(|key| end.is_empty() || *key < end).take(limit).cloned().collect()
    }

    /// A new watcher that starts after the newest change.
    pub(crate) fn begin(&self, interest: &Interest) -> Begin {
        let mut state = self.state.lock();
        let end = state.window.end();
        state.begin(interest, end)
    }
    /// The same, with a snapshot of the objects that is dropped when the watcher is too slow.
    pub(crate) fn begin_with_objects(&self, interest: &Interest) -> (Begin, Arc<Snapshot>) {
        let mut state = self.state.lock();
        let end = state.window.end();
        let begin = state.begin(interest, end);
        let snapshot = Arc::new(Snapshot(Mutex::new(Some(begin.index.clone()))));
        state.remember(end, &snapshot);
        (begin, snapshot)
    }
    /// The number of snapshots that are remembered.
    #[cfg(test)]
    pub(super) fn n_snapshots(&self) -> usize {
        self.state.lock().snapshots.len()
    }
    /// The oldest revision that a watch can start from.
    pub(crate) fn oldest(&self) -> u64 {
        self.state.lock().window.oldest()
    }
    /// A new watcher that starts after the changes up to `after`. The error is the oldest possible
    /// revision, if `after` was dropped.
    pub(crate) fn begin_after(&self, interest: &Interest, after: u64) -> Result<Begin, u64> {
        let mut state = self.state.lock();
        if after < state.window.oldest() {
            return Err(state.window.oldest());
        }
        let next = state.window.after(after);
        Ok(state.begin(interest, next))
    }
    /// Takes changes after a watcher's position, at most [`TAKE_MAX`], or registers a waker.
    ///
    /// Changes that it takes may concern the watcher; those that it skips do not.
    pub(crate) fn take(
        &self,
        watcher: &mut Watcher,
        out: &mut VecDeque<Arc<Change>>,
        waker: &Waker,
    ) -> Taken {
        self.state.lock().take(watcher, out, waker)
    }
    /// Removes a watcher.
    pub(crate) fn end(&self, watcher: &Watcher) {
        self.state.lock().fanout.leave(watcher.id, &watcher.placement);
    }

    /// What the application of changes needs and that takes long.
    pub(super) async fn field_values(
        &self,
        changes: &[setpoint_store::Change],
        threads: &Threads,
    ) -> FieldValues {
        let long = changes.iter().filter_map(|change| {
            let value = change.value.as_ref().filter(|value| value.len() > LONG_BYTES_MIN)?;
            Some(Arc::new(Item::new(change.key.clone(), change.revision.0, value.clone())))
        });
        let long: Vec<_> = long.collect();
        let read = {
            let state = self.state.lock();
            state.fanout.has_fields().then(|| {
                let takes_long = |value: &[u8], revision| {
                    value.len() > LONG_BYTES_MIN || state.fanout.converts(value, revision)
                };
                let mut items = Vec::new();
                for change in changes {
                    let (key, revision) = (&change.key, change.revision.0);
                    let now = change.value.iter().filter(|now| takes_long(now, revision));
                    let item = |now: &Bytes| Item::new(key.clone(), revision, now.clone());
                    items.extend(now.map(|now| Arc::new(item(now))));
                    let before = state.index.get(key).cloned();
                    let before = before.or_else(|| Some(Arc::new(change.previous.clone()?.into())));
                    items.extend(before.filter(|one| takes_long(&one.value, one.revision)));
                }
                (items, state.fanout.numbered_fields())
            })
        };
        let values = match read {
            Some((items, fields)) if !items.is_empty() => {
                FieldValues::read(items, fields, threads).await
            }
            _ => FieldValues::default(),
        };
        if long.is_empty() { values } else { values.with_long(long, threads).await }
    }
    /// Applies changes in order.
    pub(super) fn apply(&self, changes: Vec<setpoint_store::Change>, values: &FieldValues) {
        let now = Instant::now();
        let mut woken = Woken::new();
        let released = {
            let mut state = self.state.lock();
            for change in changes {
                state.apply(now, change, values, &mut woken);
            }
            state.release()
        };
        // Outside the lock: there may be many.
        drop(released);
        self.has_changed.notify_waiters();
        wake(woken);
    }
    /// Applies converted objects in order: `(revision, key, the object now)`.
    pub(super) fn apply_converted(&self, changes: Vec<(u64, Bytes, Option<Arc<Item>>)>) {
        let now = Instant::now();
        let mut woken = Woken::new();
        let released = {
            let mut state = self.state.lock();
            for (revision, key, item) in changes {
                let before = match &item {
                    Some(item) => state.index.insert(item.clone()),
                    None => state.index.remove(&key),
                };
                state.newest = revision;
                state.push(now, item, before, &FieldValues::default(), &mut woken);
            }
            state.release()
        };
        drop(released);
        self.has_changed.notify_waiters();
        wake(woken);
    }
    /// Replaces all contents: the window starts over, and every watch ends. `sealed` are the keys
    /// of values that could not be decrypted.
    pub(super) fn fill(&self, revision: u64, index: Index, sealed: BTreeSet<Bytes>) {
        let (old, woken) = {
            let mut state = self.state.lock();
            let old = std::mem::replace(&mut state.index, index);
            state.sealed = sealed;
            state.newest = revision;
            let woken = state.restart();
            ((old, state.release()), woken)
        };
        // Outside the lock: there may be many.
        drop(old);
        self.has_changed.notify_waiters();
        wake(woken);
    }
    /// Whether there are no objects and no changes.
    pub(super) fn is_blank(&self) -> bool {
        let state = self.state.lock();
        state.index.is_empty() && state.sealed.is_empty() && state.window.is_empty()
    }
    /// Drops history that is too old.
    pub(super) fn trim(&self, now: Instant) {
        let released = {
            let mut state = self.state.lock();
            let n_kept = if state.index.is_empty() { 0 } else { WINDOW_CHANGES_MIN };
            state.window.trim(now, n_kept);
            state.release()
        };
        drop(released);
    }
    /// Ends every watch with an error, after its remaining changes.
    pub(super) fn fail(&self, error: ApiError) {
        let woken = {
            let mut state = self.state.lock();
            let woken = state.close();
            state.failure = Some(error);
            woken
        };
        wake(woken);
    }
    /// Ends every watch, and drops encoded events: rows that are no longer served do not need them.
    pub(super) fn close_watches(&self) {
        let woken = {
            let mut state = self.state.lock();
            state.window.iter().for_each(|change| change.forget_events());
            state.close()
        };
        wake(woken);
    }
    pub(super) fn stop(&self) {
        let woken = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            state.fanout.take_waiting()
        };
        wake(woken);
    }
}

/// Outside the lock: a waker may poll its task at once.
fn wake(woken: Woken) {
    woken.into_values().for_each(Waker::wake);
}

impl State {
    fn begin(&mut self, interest: &Interest, next: u64) -> Begin {
        self.n_watchers += 1;
        let placement = self.fanout.join(interest, self.window.end());
        let watcher =
            Watcher { id: WatcherId(self.n_watchers), next, epoch: self.epoch, placement };
        Begin { watcher, index: self.index.clone(), newest: self.newest }
    }
    /// Remembers a snapshot of a watcher at this position.
    fn remember(&mut self, position: u64, snapshot: &Arc<Snapshot>) {
        if self.snapshots.len() >= self.snapshots_max {
            self.snapshots.retain(|(_, snapshot)| snapshot.strong_count() > 0);
            self.snapshots_max = SNAPSHOTS_MIN.max(2 * self.snapshots.len());
        }
        self.snapshots.push_back((position, Arc::downgrade(snapshot)));
    }
    /// Takes the snapshots of watchers whose position has left the window.
    fn release(&mut self) -> Vec<Index> {
        let first = self.window.first();
        let n_gone = self.snapshots.partition_point(|(position, _)| *position < first);
        let gone = self.snapshots.drain(..n_gone);
        gone.filter_map(|(_, snapshot)| snapshot.upgrade()?.0.lock().take()).collect()
    }

    fn take(
        &mut self,
        watcher: &mut Watcher,
        out: &mut VecDeque<Arc<Change>>,
        waker: &Waker,
    ) -> Taken {
        if watcher.next < self.begun_at {
            return Taken::Ended;
        }
        // Watches that must end get the earlier changes first.
        let is_closed = watcher.epoch != self.epoch;
        let end = if is_closed { self.closed_at } else { self.window.end() };
        let since = self.fanout.since(&watcher.placement);
        let is_in_front = watcher.next < since.min(end);
        if !is_in_front && self.fanout.gone(&watcher.placement) > watcher.next {
            return Taken::Ended;
        }
        for n_taken in 0..TAKE_MAX {
            let next = match is_in_front {
                true => Some(watcher.next).filter(|next| *next < since),
                false => self.fanout.next(&watcher.placement, watcher.next),
            };
            let Some(next) = next.filter(|next| *next < end) else {
                if n_taken > 0 {
                    break;
                }
                // No change up to there concerns it.
                watcher.next = watcher.next.max(end);
                if is_closed || self.is_stopped {
                    let failure = self.failure.clone().filter(|_| is_closed);
                    return failure.map_or(Taken::Ended, Taken::Failed);
                }
                self.fanout.wait(watcher.id, &watcher.placement, waker, end, self.window.first());
                return Taken::Nothing;
            };
            // The change has left the window: the watcher is too slow.
            let Some(change) = self.window.get(next) else { return Taken::Ended };
            out.push_back(change.clone());
            watcher.next = next + 1;
        }
        Taken::Some
    }

    fn apply(
        &mut self,
        now: Instant,
        change: setpoint_store::Change,
        values: &FieldValues,
        woken: &mut Woken,
    ) {
        let revision = change.revision.0;
        debug_assert!(revision >= self.newest, "the feed goes forwards");
        let key: &[u8] = &change.key;
        let (item, known) = match change.value {
            Some(value) => {
                let item = values.item(change.key, revision, value);
                let known = self.index.insert(item.clone());
                (Some(item), known)
            }
            None => (None, self.index.remove(key)),
        };
        let previous = || change.previous.map(|kv| Arc::new(Item::from(kv)));
        let before = known.or_else(previous);
        self.newest = revision;
        let only_sealed = |item: &Option<Arc<Item>>| item.clone().filter(|i| is_sealed(&i.value));
        match (only_sealed(&item), only_sealed(&before)) {
            (None, None) => {}
            (now, before) => return woken.extend(self.take_sealed(now, before)),
        }
        self.push(now, item, before, values, woken);
    }
    /// Adds the change at the newest revision to the window.
    fn push(
        &mut self,
        now: Instant,
        item: Option<Arc<Item>>,
        before: Option<Arc<Item>>,
        values: &FieldValues,
        woken: &mut Woken,
    ) {
        let change = Arc::new(Change::new(self.newest, item, before, self.window.meter()));
        let sequence = self.window.end();
        self.fanout.add(sequence, &change, values, self.window.first(), woken);
        self.window.push(now, change);
    }

    /// A change that cannot be delivered to watchers: history starts after it, and watchers
    /// restart.
    fn take_sealed(&mut self, now: Option<Arc<Item>>, before: Option<Arc<Item>>) -> Woken {
        if let Some(before) = before {
            self.sealed.remove(&before.key);
        }
        self.sealed.extend(now.map(|item| item.key.clone()));
        self.restart()
    }
    /// Drops the history: watchers that have not taken all of it end.
    fn restart(&mut self) -> Woken {
        self.window.restart(self.newest);
        self.begun_at = self.window.first();
        self.close()
    }
    fn close(&mut self) -> Woken {
        self.epoch += 1;
        self.failure = None;
        self.closed_at = self.window.end();
        self.fanout.take_waiting()
    }
}
