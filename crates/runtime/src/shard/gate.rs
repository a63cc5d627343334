//! The gate before a sharded controller's workers.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::state::State;
use crate::{
    controller::{GatePass, KeyGate},
    request::RequestKey,
};

/// How many keys that were another replica's are remembered, in case they become this one's.
///
/// 65,536: with 1000 events a second, what comes within a minute. Of what is forgotten, a hand-over
/// still finds what is in the caches.
pub const REFUSED_KEYS_MAX: usize = 1 << 16;

/// The keys that were refused lately.
pub(crate) struct Refused<R> {
    state: Arc<State>,
    /// How long they are of interest: a pass that a crashed owner did not come to is older than its
    /// Lease by no more.
    patience: Duration,
    keys: Mutex<VecDeque<(Instant, R)>>,
}

impl<R: RequestKey> Refused<R> {
    pub(super) fn new(state: Arc<State>, patience: Duration) -> Self {
        Self { state, patience, keys: Mutex::default() }
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

impl<R: RequestKey> KeyGate<R> for Refused<R> {
    fn enter(&self, key: &R) -> Option<GatePass> {
        let Some(number) = self.state.begin(&key.to_string()) else {
            self.note(key.clone());
            return None;
        };
        let state = self.state.clone();
        let deadline = state.deadline.clone();
        Some(GatePass::until(Running { state, number }, deadline))
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
