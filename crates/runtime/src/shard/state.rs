//! The state that a member shares with its controller's workers.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::{ownership::Ownership, promise::Members};
use crate::fence::{Deadline, Fence, SuspendClock};

/// Whether passes may begin, and the running ones.
pub(crate) struct State {
    pub(super) deadline: Arc<Deadline>,
    inner: Mutex<Inner>,
    /// Notified when a pass has ended, while `is_awaited`.
    pub(super) ended: Notify,
    is_awaited: AtomicBool,
    /// A key was refused because the deadline had passed.
    is_missed: AtomicBool,
    /// The acknowledged members, for views.
    pub(super) members: watch::Sender<Vec<Arc<str>>>,
}

#[derive(Default)]
struct Inner {
    ownership: Arc<Ownership>,
    running: HashMap<u64, Arc<str>>,
    next: u64,
}

impl State {
    pub(super) fn new(suspend_clock: Option<SuspendClock>) -> Self {
        Self {
            deadline: Arc::new(Deadline::new(suspend_clock)),
            inner: Mutex::default(),
            ended: Notify::new(),
            is_awaited: AtomicBool::new(false),
            is_missed: AtomicBool::new(false),
            members: watch::Sender::default(),
        }
    }

    pub(super) fn ownership(&self) -> Arc<Ownership> {
        self.inner.lock().ownership.clone()
    }

    /// Starts a pass over a key if permitted. Pass the returned number to [`end`](Self::end).
    pub(super) fn begin(&self, key: &str) -> Option<u64> {
        if self.deadline.check().is_err() {
            self.is_missed.store(true, Ordering::Relaxed);
            return None;
        }
        let mut ownership = self.ownership();
        loop {
            // Decided without the lock; decided again if the ownership changed meanwhile.
            if !ownership.owns(key) {
                return None;
            }
            let mut inner = self.inner.lock();
            if Arc::ptr_eq(&inner.ownership, &ownership) {
                let number = inner.next;
                inner.next += 1;
                inner.running.insert(number, key.into());
                return Some(number);
            }
            ownership = inner.ownership.clone();
        }
    }

    pub(super) fn end(&self, number: u64) {
        self.inner.lock().running.remove(&number);
        // The waiter sets `is_awaited` before it checks, under the lock, whether passes run. So
        // either it saw this pass ended, or it is notified here.
        if self.is_awaited.load(Ordering::Relaxed) {
            self.ended.notify_one();
        }
    }

    /// Turns notifications of ended passes on or off.
    pub(super) fn await_ends(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    /// Replaces the ownership; returns the previous one.
    pub(super) fn set(&self, ownership: Ownership) -> Arc<Ownership> {
        std::mem::replace(&mut self.inner.lock().ownership, Arc::new(ownership))
    }

    /// Whether a pass runs over a key that `me` does not win among these members.
    pub(super) fn runs_others(&self, me: &Arc<str>, members: &Members) -> bool {
        let inner = self.inner.lock();
        inner.running.values().any(|key| members.winner(key) != Some(me))
    }

    /// Whether a pass runs.
    pub(super) fn runs_any(&self) -> bool {
        !self.inner.lock().running.is_empty()
    }

    /// Whether keys were refused since the last call because the deadline had passed.
    pub(super) fn take_missed(&self) -> bool {
        self.is_missed.swap(false, Ordering::Relaxed)
    }
}

/// A view of a replica's membership: for health checks, metrics and tests. Cheap to clone; outlives
/// the controller.
#[derive(Clone)]
pub struct ShardView {
    pub(super) state: Arc<State>,
}

impl ShardView {
    /// Whether a pass over this key may begin here now. Takes the key's `Display` text.
    pub fn owns(&self, key: &str) -> bool {
        self.state.deadline.check().is_ok() && self.state.ownership().owns(key)
    }

    /// The members that this replica last acknowledged, sorted; empty while it is not a member.
    pub fn members(&self) -> Vec<Arc<str>> {
        self.state.members.borrow().clone()
    }

    /// The members, as a channel to watch for changes.
    pub fn watch(&self) -> watch::Receiver<Vec<Arc<str>>> {
        self.state.members.subscribe()
    }

    /// Whether no keys are moving from or to this replica: it has acknowledged the members that it
    /// sees, and no other promise claims the keys it wins.
    pub fn is_settled(&self) -> bool {
        let ownership = self.state.ownership();
        self.state.deadline.check().is_ok()
            && ownership.own.len() == 1
            && ownership.claims.is_empty()
    }

    /// A fence that lets writes pass while the replica's Lease is held.
    pub fn fence(&self) -> Arc<dyn Fence> {
        self.state.deadline.clone()
    }
}

impl fmt::Debug for ShardView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardView")
            .field("members", &self.members())
            .field("is_settled", &self.is_settled())
            .finish_non_exhaustive()
    }
}
