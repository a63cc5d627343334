//! The gate before a sharded controller's workers.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::state::State;
use crate::{
    fence::{Deadline, Fence, Fenced},
    request::RequestKey,
};

/// How many keys that were another replica's are remembered, in case they become this one's.
///
/// 65,536: with 1000 events a second, what comes within a minute. Of what is forgotten, a hand-over
/// still finds what is in the caches.
pub const REFUSED_KEYS_MAX: usize = 1 << 16;

/// Says which keys this process may reconcile, at each pass anew, and remembers those that it
/// refused.
pub(crate) struct Gate<R> {
    state: Arc<State>,
    /// How long they are of interest: a pass that a crashed owner did not come to is older than its
    /// Lease by no more.
    patience: Duration,
    keys: Mutex<VecDeque<(Instant, R)>>,
}

impl<R: RequestKey> Gate<R> {
    pub(super) fn new(state: Arc<State>, patience: Duration) -> Self {
        Self { state, patience, keys: Mutex::default() }
    }

    /// Whether a pass over `key` may begin now. A key that may not is left without a pass.
    pub(crate) fn enter(&self, key: &R) -> Option<GatePass> {
        let Some(number) = self.state.begin(&key.to_string()) else {
            self.note(key.clone());
            return None;
        };
        let state = self.state.clone();
        let deadline = state.deadline.clone();
        Some(GatePass { _running: Running { state, number }, deadline })
    }

    fn note(&self, key: R) {
        let now = Instant::now();
        let mut keys = self.keys.lock();
        while keys.front().is_some_and(|(at, _)| now.duration_since(*at) > self.patience)
            || keys.len() >= REFUSED_KEYS_MAX
        {
            keys.pop_front();
        }
        keys.push_back((now, key));
    }

    /// Takes out those that `is_wanted`.
    pub(crate) fn take(&self, is_wanted: &dyn Fn(&R) -> bool) -> Vec<R> {
        let mut keys = self.keys.lock();
        let (wanted, rest) =
            std::mem::take(&mut *keys).into_iter().partition(|(_, key)| is_wanted(key));
        *keys = rest;
        let wanted: VecDeque<(Instant, R)> = wanted;
        wanted.into_iter().map(|(_, key)| key).collect()
    }
}

/// The leave to reconcile one key. Dropped when the pass has ended and all its requests have been
/// answered or dropped, before the key may be handed out again.
pub(crate) struct GatePass {
    _running: Running,
    deadline: Arc<Deadline>,
}

impl GatePass {
    /// Waits until the pass is to be dropped where it is. Cancel safe.
    pub(crate) async fn revoked(&self) -> Fenced {
        self.deadline.passed().await;
        self.deadline.check().err().unwrap_or(Fenced::NotHeld)
    }
}

/// A pass that runs.
struct Running {
    state: Arc<State>,
    number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.end(self.number);
    }
}
