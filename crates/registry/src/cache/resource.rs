//! One resource's index and window.
//!
//! | a watcher's position is | it gets                         |
//! |-------------------------|---------------------------------|
//! | in the window           | what is behind it, in order     |
//! | at its end              | nothing yet; it is woken        |
//! | before its start        | the end: it was too slow        |
//!
//! When all watches are to end, each gets what is still behind it first.
use super::{Change, Item};
use bytes::Bytes;
use imbl::OrdMap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

/// How many changes a window holds: the most that kube-apiserver's watch cache keeps of one resource.
pub(crate) const WINDOW_CHANGES_MAX: usize = 102_400;
/// How many bytes of states that are no longer current a window keeps in memory.
///
/// 64 MiB hold the window of ten thousand Pods of 6 KiB, each changed once.
pub(crate) const WINDOW_BYTES_MAX: usize = 64 << 20;
/// How many changes a watcher takes at once, which is also the most it holds on to itself.
pub(crate) const TAKE_MAX: usize = 64;

/// The ordered index of one resource: its objects by key.
pub(crate) type Index = OrdMap<Bytes, Arc<Item>>;

/// Names a watcher to its resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatcherId(u64);

/// The cache of one resource.
#[derive(Debug)]
pub(crate) struct ResourceCache {
    state: Mutex<State>,
}
#[derive(Debug)]
struct State {
    // The present.
    index: Index,
    /// The revision of the newest change, or of the last fill.
    newest: u64,
    // The past.
    window: VecDeque<Arc<Change>>,
    window_bytes: usize,
    /// The sequence number of the window's first change.
    first: u64,
    /// Every change after this revision is in the window.
    oldest: u64,
    // The watchers.
    /// Grows when every watch must end.
    epoch: u64,
    /// The sequence number up to which the watches of earlier epochs still get changes before they end.
    closed_at: u64,
    is_stopped: bool,
    n_watchers: u64,
    wakers: BTreeMap<WatcherId, Waker>,
}

/// A watcher's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// The sequence number of the next change to take.
    next: u64,
    epoch: u64,
}
/// Where a watch begins.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) id: WatcherId,
    pub(crate) position: Position,
    /// The objects at `newest`.
    pub(crate) index: Index,
    /// The revision of the newest change in `index`.
    pub(crate) newest: u64,
}
/// What a watcher finds behind its position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Some changes were appended; there may be more.
    Some,
    /// Nothing; the waker will be called.
    Nothing,
    /// The watch is over.
    Ended,
}

impl ResourceCache {
    pub(super) fn new(filled_at: u64, is_stopped: bool) -> Self {
        Self {
            state: Mutex::new(State {
                index: Index::new(),
                newest: filled_at,
                window: VecDeque::new(),
                window_bytes: 0,
                first: 0,
                oldest: filled_at,
                epoch: 0,
                closed_at: 0,
                is_stopped,
                n_watchers: 0,
                wakers: BTreeMap::new(),
            }),
        }
    }

    /// The objects now, and the revision of the newest change among them.
    pub(crate) fn snapshot(&self) -> (Index, u64) {
        let state = self.state.lock();
        (state.index.clone(), state.newest)
    }

    /// A new watcher, placed behind the newest change.
    pub(crate) fn begin(&self) -> Begin {
        self.state.lock().begin(|state| state.first + state.window.len() as u64)
    }
    /// A new watcher, placed behind the changes up to `after`; the oldest revision to ask for when that is gone.
    pub(crate) fn begin_after(&self, after: u64) -> Result<Begin, u64> {
        let mut state = self.state.lock();
        if after < state.oldest {
            return Err(state.oldest);
        }
        let n_before = state.window.partition_point(|change| change.revision <= after) as u64;
        Ok(state.begin(|state| state.first + n_before))
    }
    /// Takes what is behind a position, [`TAKE_MAX`] at most, or leaves a waker.
    pub(crate) fn take(
        &self,
        id: WatcherId,
        position: &mut Position,
        out: &mut VecDeque<Arc<Change>>,
        waker: &Waker,
    ) -> Taken {
        self.state.lock().take(id, position, out, waker)
    }
    /// Forgets a watcher.
    pub(crate) fn end(&self, id: WatcherId) {
        self.state.lock().wakers.remove(&id);
    }

    /// Takes changes in, in order.
    pub(super) fn apply(&self, changes: Vec<setpoint_store::Change>) {
        let wakers = {
            let mut state = self.state.lock();
            for change in changes {
                state.apply(change);
            }
            state.take_wakers()
        };
        wake(wakers);
    }
    /// Replaces everything: the window starts over, and every watch ends.
    pub(super) fn fill(&self, revision: u64, items: Vec<Arc<Item>>) {
        let wakers = {
            let mut state = self.state.lock();
            state.index = items.into_iter().map(|item| (item.key.clone(), item)).collect();
            // One more, so that positions at the end of the old window are before the new one.
            state.first += state.window.len() as u64 + 1;
            state.window.clear();
            state.window_bytes = 0;
            (state.newest, state.oldest) = (revision, revision);
            state.close()
        };
        wake(wakers);
    }
    /// Ends every watch, and forgets encodings: nobody asks for those of rows that are no longer served.
    pub(super) fn close_watches(&self) {
        let wakers = {
            let mut state = self.state.lock();
            state.index.values().for_each(|item| item.forget_forms());
            state.window.iter().for_each(|change| change.forget_forms());
            state.close()
        };
        wake(wakers);
    }
    pub(super) fn stop(&self) {
        let wakers = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            state.take_wakers()
        };
        wake(wakers);
    }
}

/// Outside the lock: a waker may poll its task at once.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

impl State {
    fn begin(&mut self, next: impl FnOnce(&Self) -> u64) -> Begin {
        let position = Position { next: next(self), epoch: self.epoch };
        self.n_watchers += 1;
        let (id, index) = (WatcherId(self.n_watchers), self.index.clone());
        Begin { id, position, index, newest: self.newest }
    }

    fn take(
        &mut self,
        id: WatcherId,
        position: &mut Position,
        out: &mut VecDeque<Arc<Change>>,
        waker: &Waker,
    ) -> Taken {
        // Before the window: too slow.
        let Some(at) = position.next.checked_sub(self.first) else { return Taken::Ended };
        // Watches that are to end see what came before that.
        let is_closed = position.epoch != self.epoch;
        let end = if is_closed { self.closed_at } else { self.first + self.window.len() as u64 };
        let n_left = end.saturating_sub(position.next);
        let n_taken = usize::try_from(n_left).unwrap_or(usize::MAX).min(TAKE_MAX);
        if n_taken > 0 {
            let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.window.len());
            out.extend(self.window.range(at..).take(n_taken).cloned());
            position.next += n_taken as u64;
            return Taken::Some;
        }
        if is_closed || self.is_stopped {
            return Taken::Ended;
        }
        match self.wakers.get_mut(&id) {
            Some(known) => known.clone_from(waker),
            None => _ = self.wakers.insert(id, waker.clone()),
        }
        Taken::Nothing
    }

    fn apply(&mut self, change: setpoint_store::Change) {
        let revision = change.revision.0;
        debug_assert!(revision >= self.newest, "the feed goes forwards");
        let now =
            change.value.map(|value| Arc::new(Item::new(change.key.clone(), revision, value)));
        let known = match &now {
            Some(item) => self.index.insert(change.key, item.clone()),
            None => self.index.remove(&change.key),
        };
        let before = known.or_else(|| change.previous.map(|kv| Arc::new(Item::from(kv))));
        self.newest = revision;
        let change = Arc::new(Change::new(revision, now, before));
        self.window_bytes += change.weight();
        self.window.push_back(change);
        while self.window.len() > WINDOW_CHANGES_MAX || self.window_bytes > WINDOW_BYTES_MAX {
            let Some(dropped) = self.window.pop_front() else { break };
            self.window_bytes -= dropped.weight();
            self.first += 1;
            self.oldest = dropped.revision;
        }
    }

    fn close(&mut self) -> Vec<Waker> {
        self.epoch += 1;
        self.closed_at = self.first + self.window.len() as u64;
        self.take_wakers()
    }
    fn take_wakers(&mut self) -> Vec<Waker> {
        // In the order they came, so that a run is a function of its seed.
        std::mem::take(&mut self.wakers).into_values().collect()
    }
}
