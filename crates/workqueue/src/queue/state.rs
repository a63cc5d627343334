//! What the lock guards: every key's state, and the transitions between them.
//!
//! Keys live in slots; the table finds a key's slot by hash, everything else speaks of slots. So `get` and `done` hash
//! nothing, and an add hashes once, before it takes the lock.

use std::{
    collections::{BTreeSet, VecDeque},
    hash::Hash,
    time::Duration,
};

use hashbrown::HashTable;
use tokio::time::Instant;

use super::{Change, Patience};
use crate::Stats;

/// Where in [`State::slots`] a key is.
pub(super) type SlotIdx = u32;

/// What a `take` found.
pub(super) enum Taken<K> {
    /// A key, its slot, and how long it was queued if somebody measures.
    Key(K, SlotIdx, Option<Duration>),
    /// No key now; `wake` is the earliest due time.
    Nothing { wake: Option<Instant> },
    /// No key, and never again.
    ShutDown,
}

/// A key that is not absent.
struct Slot<K> {
    key: K,
    hash: u64,
    stage: Stage,
    /// When it became wanted (queued, dirty) or was handed out (in flight, returning), if somebody measures.
    since: Option<Instant>,
    /// When it became wanted while it was held, if somebody measures.
    wanted_since: Option<Instant>,
}

/// A key's state, as in the table of the crate page; *absent* is having no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting(Due),
    Queued,
    InFlight,
    Returning(Due),
    Dirty,
}

/// A due time, told apart from equal ones by the order of their adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    seq: u64,
}

pub(super) struct State<K> {
    // The keys.
    slots: Vec<Option<Slot<K>>>,
    free: Vec<SlotIdx>,
    by_hash: HashTable<SlotIdx>,

    // The order of service.
    queue: VecDeque<SlotIdx>,
    due: BTreeSet<(Due, SlotIdx)>,
    due_seq: u64,
    fired: Fired,

    // Counts.
    n_in_flight: usize,
    n_dirty: usize,

    // The waiters.
    n_waiters: usize,
    timekeeper: bool,
    shutdown: Shutdown,
    n_drains: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    No,
    /// Drains up to this number end at once.
    Yes {
        released: u64,
    },
}

/// What has fallen due since the waiters were last told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fired {
    /// How many of those who wait are to look.
    pub(super) ready: usize,
    /// Keys that became queued or dirty.
    pub(super) wanted: usize,
}

impl<K> State<K> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_hash: HashTable::new(),
            queue: VecDeque::new(),
            due: BTreeSet::new(),
            due_seq: 0,
            fired: Fired::default(),
            n_in_flight: 0,
            n_dirty: 0,
            n_waiters: 0,
            timekeeper: false,
            shutdown: Shutdown::No,
            n_drains: 0,
        }
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutdown != Shutdown::No
    }

    pub(super) fn waiting(&mut self) -> usize {
        self.fire();
        self.due.len()
    }

    /// Takes the timekeeper's post if it is free.
    pub(super) fn take_post(&mut self) -> bool {
        !std::mem::replace(&mut self.timekeeper, true)
    }

    /// A waiter leaves, and the post with it if it had that; says whether another one is to take the post.
    pub(super) fn leave(&mut self, post: bool) -> bool {
        self.n_waiters -= 1;
        if post {
            self.timekeeper = false;
        }
        !self.timekeeper && self.n_waiters > 0 && !self.due.is_empty()
    }

    pub(super) fn shut_down(&mut self) {
        self.close();
        self.shutdown = Shutdown::Yes { released: self.n_drains };
    }

    /// Shuts down; the number is for [`is_drained`](Self::is_drained).
    pub(super) fn drain(&mut self) -> u64 {
        self.close();
        self.n_drains += 1;
        self.n_drains
    }

    pub(super) fn is_drained(&self, drain: u64) -> bool {
        let released = matches!(self.shutdown, Shutdown::Yes { released } if released >= drain);
        released || self.is_idle()
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.n_in_flight == 0
    }

    /// Drops what waits and refuses what comes.
    fn close(&mut self) {
        if self.is_shutting_down() {
            return;
        }
        self.shutdown = Shutdown::Yes { released: 0 };
        for (_, idx) in std::mem::take(&mut self.due) {
            match self.slot(idx).stage {
                Stage::Waiting(_) => self.remove(idx),
                Stage::Returning(_) => self.slot_mut(idx).stage = Stage::InFlight,
                Stage::Queued | Stage::InFlight | Stage::Dirty => {
                    unreachable!("only waiting keys have a due time")
                }
            }
        }
    }

    fn slot(&self, idx: SlotIdx) -> &Slot<K> {
        match &self.slots[idx as usize] {
            Some(slot) => slot,
            None => unreachable!("a slot is referred to only while its key is not absent"),
        }
    }

    fn slot_mut(&mut self, idx: SlotIdx) -> &mut Slot<K> {
        match &mut self.slots[idx as usize] {
            Some(slot) => slot,
            None => unreachable!("a slot is referred to only while its key is not absent"),
        }
    }

    /// Makes a key absent.
    fn remove(&mut self, idx: SlotIdx) {
        let hash = self.slot(idx).hash;
        match self.by_hash.find_entry(hash, |&at| at == idx) {
            Ok(entry) => _ = entry.remove(),
            Err(_) => unreachable!("every slot is in the table"),
        }
        self.slots[idx as usize] = None;
        self.free.push(idx);
    }

    /// Queues a waiting or a given-back key.
    fn enqueue(&mut self, idx: SlotIdx, since: Option<Instant>) {
        let slot = self.slot_mut(idx);
        slot.stage = Stage::Queued;
        slot.since = since;
        self.queue.push_back(idx);
    }

    /// Marks a held key as wanted again.
    fn soil(&mut self, idx: SlotIdx, since: Option<Instant>) {
        let slot = self.slot_mut(idx);
        slot.stage = Stage::Dirty;
        slot.wanted_since = since;
        self.n_dirty += 1;
    }

    /// Moves every key whose time has come.
    fn fire(&mut self) {
        if self.due.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(&(due, idx)) = self.due.first()
            && due.at <= now
        {
            self.due.pop_first();
            self.fired.wanted += 1;
            match self.slot(idx).stage {
                Stage::Waiting(_) => {
                    self.fired.ready += 1;
                    self.enqueue(idx, Some(now));
                }
                Stage::Returning(_) => self.soil(idx, Some(now)),
                Stage::Queued | Stage::InFlight | Stage::Dirty => {
                    unreachable!("only waiting keys have a due time")
                }
            }
        }
    }

    /// What has fallen due since this was last asked.
    pub(super) fn take_fired(&mut self) -> Fired {
        let fired = std::mem::take(&mut self.fired);
        Fired { ready: fired.ready.min(self.n_waiters), ..fired }
    }

    fn next_due(&mut self, at: Instant) -> Due {
        self.due_seq += 1;
        Due { at, seq: self.due_seq }
    }

    /// Enters a key into the due set; says who must hear of it.
    fn await_due(&mut self, due: Due, idx: SlotIdx) -> Change {
        let sooner = self.due.first().is_none_or(|(first, _)| due < *first);
        self.due.insert((due, idx));
        // The timekeeper sleeps too long now; where there is none, one who waits takes the post.
        Change {
            sooner: sooner && self.timekeeper,
            ready: sooner && !self.timekeeper && self.n_waiters > 0,
            ..Change::default()
        }
    }

    pub(super) fn len(&mut self) -> usize {
        self.fire();
        self.queue.len()
    }

    pub(super) fn stats(&mut self, now: Option<Instant>) -> Stats {
        self.fire();
        let mut stats = Stats {
            queued: self.queue.len(),
            waiting: self.due.len(),
            in_flight: self.n_in_flight,
            dirty: self.n_dirty,
            ..Stats::default()
        };
        let Some(now) = now else { return stats };
        for slot in self.slots.iter().flatten() {
            let Some(since) = slot.since else { continue };
            let age = now.saturating_duration_since(since);
            match slot.stage {
                Stage::Waiting(_) => {}
                Stage::Queued => stats.oldest_queued = stats.oldest_queued.max(age),
                Stage::InFlight | Stage::Returning(_) | Stage::Dirty => {
                    stats.unfinished += age;
                    stats.longest_running = stats.longest_running.max(age);
                }
            }
        }
        stats
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn find(&self, key: &K, hash: u64) -> Option<SlotIdx> {
        self.by_hash.find(hash, |&idx| self.slot(idx).key == *key).copied()
    }

    fn insert(&mut self, key: K, hash: u64, stage: Stage, since: Option<Instant>) -> SlotIdx {
        let slot = Some(Slot { key, hash, stage, since, wanted_since: None });
        let idx = match self.free.pop() {
            Some(idx) => {
                self.slots[idx as usize] = slot;
                idx
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as SlotIdx
            }
        };
        let slots = &self.slots;
        self.by_hash.insert_unique(hash, idx, |&at| {
            slots[at as usize].as_ref().map_or(0, |slot| slot.hash)
        });
        idx
    }

    pub(super) fn add(&mut self, key: K, hash: u64, since: Option<Instant>) -> Change {
        if self.is_shutting_down() {
            return Change::default();
        }
        let Some(idx) = self.find(&key, hash) else {
            let idx = self.insert(key, hash, Stage::Queued, since);
            self.queue.push_back(idx);
            return Change { wanted: true, ready: self.n_waiters > 0, ..Change::default() };
        };
        match self.slot(idx).stage {
            Stage::Queued | Stage::Dirty => Change::default(),
            Stage::Waiting(due) => {
                self.due.remove(&(due, idx));
                self.enqueue(idx, since);
                Change { wanted: true, ready: self.n_waiters > 0, ..Change::default() }
            }
            Stage::Returning(due) => {
                self.due.remove(&(due, idx));
                self.soil(idx, since);
                Change { wanted: true, ..Change::default() }
            }
            Stage::InFlight => {
                self.soil(idx, since);
                Change { wanted: true, ..Change::default() }
            }
        }
    }

    pub(super) fn add_at(&mut self, key: K, hash: u64, at: Instant) -> Change {
        if self.is_shutting_down() {
            return Change::default();
        }
        let due = self.next_due(at);
        let Some(idx) = self.find(&key, hash) else {
            let idx = self.insert(key, hash, Stage::Waiting(due), None);
            return self.await_due(due, idx);
        };
        let stage = match self.slot(idx).stage {
            Stage::Queued | Stage::Dirty => return Change::default(),
            Stage::Waiting(old) | Stage::Returning(old) if old.at <= at => {
                return Change::default();
            }
            Stage::Waiting(old) => {
                self.due.remove(&(old, idx));
                Stage::Waiting(due)
            }
            Stage::Returning(old) => {
                self.due.remove(&(old, idx));
                Stage::Returning(due)
            }
            Stage::InFlight => Stage::Returning(due),
        };
        self.slot_mut(idx).stage = stage;
        self.await_due(due, idx)
    }

    pub(super) fn cancel_delayed(&mut self, key: &K, hash: u64) -> bool {
        // What is due already has left the wait, whether or not somebody has looked since.
        self.fire();
        let Some(idx) = self.find(key, hash) else { return false };
        match self.slot(idx).stage {
            Stage::Waiting(due) => {
                self.due.remove(&(due, idx));
                self.remove(idx);
                true
            }
            Stage::Returning(due) => {
                self.due.remove(&(due, idx));
                self.slot_mut(idx).stage = Stage::InFlight;
                true
            }
            Stage::Queued | Stage::InFlight | Stage::Dirty => false,
        }
    }

    pub(super) fn take(&mut self, now: Option<Instant>, patience: Patience) -> Taken<K> {
        self.fire();
        let Some(idx) = self.queue.pop_front() else {
            // A dirty key is still to come: to the worker that holds it, who calls `done` and then `get`.
            if self.is_shutting_down() {
                return Taken::ShutDown;
            }
            if patience == Patience::New {
                self.n_waiters += 1;
            }
            return Taken::Nothing { wake: self.due.first().map(|(due, _)| due.at) };
        };
        let slot = self.slot_mut(idx);
        assert_eq!(slot.stage, Stage::Queued, "only queued keys are in the queue");
        slot.stage = Stage::InFlight;
        let queued_for =
            now.zip(slot.since).map(|(now, since)| now.saturating_duration_since(since));
        slot.since = now;
        let key = slot.key.clone();
        self.n_in_flight += 1;
        Taken::Key(key, idx, queued_for)
    }
}

impl<K> State<K> {
    pub(super) fn done(
        &mut self,
        idx: SlotIdx,
        now: Option<Instant>,
    ) -> (Change, Option<Duration>) {
        self.n_in_flight -= 1;
        let slot = self.slot_mut(idx);
        let worked_for =
            now.zip(slot.since).map(|(now, since)| now.saturating_duration_since(since));
        let mut change = Change::default();
        match slot.stage {
            Stage::InFlight => self.remove(idx),
            Stage::Returning(due) => slot.stage = Stage::Waiting(due),
            Stage::Dirty => {
                let wanted_since = slot.wanted_since.take();
                self.n_dirty -= 1;
                self.enqueue(idx, wanted_since);
                change.ready = self.n_waiters > 0;
            }
            Stage::Waiting(_) | Stage::Queued => unreachable!("only a held key is done"),
        }
        change.drained = self.is_shutting_down() && self.is_idle();
        (change, worked_for)
    }
}
