//! What a member and its controller's workers share.

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

use super::{promise::Members, standing::Standing};
use crate::fence::{Deadline, Fence, SuspendClock};

/// Whether passes may begin, and which run.
pub(crate) struct State {
    pub(super) deadline: Arc<Deadline>,
    inner: Mutex<Inner>,
    /// A pass has ended, while somebody waits for that.
    pub(super) ended: Notify,
    is_awaited: AtomicBool,
    /// A key was refused because the deadline had passed.
    is_missed: AtomicBool,
    /// The members as last acknowledged: for views.
    pub(super) members: watch::Sender<Vec<Arc<str>>>,
}

#[derive(Default)]
struct Inner {
    standing: Arc<Standing>,
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

    pub(super) fn standing(&self) -> Arc<Standing> {
        self.inner.lock().standing.clone()
    }

    /// Begins a pass over a key, if it may be. The number is to be given back when the pass has
    /// ended.
    pub(super) fn begin(&self, key: &str) -> Option<u64> {
        if self.deadline.check().is_err() {
            self.is_missed.store(true, Ordering::Relaxed);
            return None;
        }
        let mut standing = self.standing();
        loop {
            // Decided without the lock, and again if it was decided by what is over.
            if !standing.owns(key) {
                return None;
            }
            let mut inner = self.inner.lock();
            if Arc::ptr_eq(&inner.standing, &standing) {
                let number = inner.next;
                inner.next += 1;
                inner.running.insert(number, key.into());
                return Some(number);
            }
            standing = inner.standing.clone();
        }
    }

    pub(super) fn end(&self, number: u64) {
        self.inner.lock().running.remove(&number);
        // Who awaits an end says so before it looks whether passes run, under the lock: so either
        // it saw none, or is seen here.
        if self.is_awaited.load(Ordering::Relaxed) {
            self.ended.notify_one();
        }
    }

    /// Whether ends of passes are to be told from now on.
    pub(super) fn await_ends(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    /// Changes what may begin from now on; gives what was before.
    pub(super) fn set(&self, standing: Standing) -> Arc<Standing> {
        std::mem::replace(&mut self.inner.lock().standing, Arc::new(standing))
    }

    /// Whether a pass runs over a key that `me` does not win among these.
    pub(super) fn runs_others(&self, me: &Arc<str>, members: &Members) -> bool {
        let inner = self.inner.lock();
        inner.running.values().any(|key| members.winner(key) != Some(me))
    }

    /// Whether a pass runs.
    pub(super) fn runs_any(&self) -> bool {
        !self.inner.lock().running.is_empty()
    }

    /// Whether keys were refused because the deadline had passed, since this was last asked.
    pub(super) fn take_missed(&self) -> bool {
        self.is_missed.swap(false, Ordering::Relaxed)
    }
}

/// A view of one replica's membership: for probes, metrics and tests. Cheap to clone; outlives the
/// controller.
#[derive(Clone)]
pub struct ShardView {
    pub(super) state: Arc<State>,
}

impl ShardView {
    /// Whether a pass over this key may begin here now; the key as it displays.
    pub fn owns(&self, key: &str) -> bool {
        self.state.deadline.check().is_ok() && self.state.standing().owns(key)
    }

    /// The members that this replica has acknowledged last, sorted; none while it is none itself.
    pub fn members(&self) -> Vec<Arc<str>> {
        self.state.members.borrow().clone()
    }

    /// The members, to be told of changes.
    pub fn watch(&self) -> watch::Receiver<Vec<Arc<str>>> {
        self.state.members.subscribe()
    }

    /// Whether this replica knows of nothing that is still changing hands: it has acknowledged the
    /// members that it sees, and their promises leave it what it wins.
    pub fn is_settled(&self) -> bool {
        let standing = self.state.standing();
        self.state.deadline.check().is_ok() && standing.own.len() == 1 && standing.claims.is_empty()
    }

    /// Lets writes pass while the replica's Lease is held.
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
