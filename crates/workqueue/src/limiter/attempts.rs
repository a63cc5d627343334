//! State of a limiter per key, with expiry.

use std::{hash::Hash, mem, time::Duration};

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// A value per key, which may expire.
///
/// Two generations: a key that is used moves to the young one. Each time the idle time has passed,
/// the old generation is dropped and the young one becomes the old. So a key lives for at least the
/// idle time after its last use and at most twice that. This needs no memory per key, and a
/// generation is dropped at once, without the lock. The clock is checked only on use: without use
/// nothing grows.
#[derive(Debug)]
pub(super) struct Attempts<K, V> {
    idle: Option<Duration>,
    state: Mutex<State<K, V>>,
}

#[derive(Debug)]
struct State<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    turned: Option<Instant>,
}

impl<K, V> Default for Attempts<K, V> {
    fn default() -> Self {
        let state = State { young: HashMap::new(), old: HashMap::new(), turned: None };
        Self { idle: None, state: Mutex::new(state) }
    }
}

impl<K: Clone + Eq + Hash, V: Default> Attempts<K, V> {
    /// Forgets keys that were not used for `idle`.
    pub(super) fn expire(&mut self, idle: Duration) {
        self.idle = Some(idle);
    }

    /// Uses the value of `key`.
    pub(super) fn with<T>(&self, key: &K, now: Instant, step: impl FnOnce(&mut V) -> T) -> T {
        let mut state = self.state.lock();
        if let Some(expired) = self.idle.and_then(|idle| state.turn(idle, now)) {
            // Keys of the user's type, and maybe many.
            MutexGuard::unlocked(&mut state, || drop(expired));
        }
        let State { young, old, .. } = &mut *state;
        if let Some(value) = young.get_mut(key) {
            return step(value);
        }
        let value = if old.is_empty() { None } else { old.remove(key) };
        step(young.entry_ref(key).or_insert(value.unwrap_or_default()))
    }

    /// Reads the value of `key` without counting as use.
    pub(super) fn peek<T>(&self, key: &K, look: impl FnOnce(&V) -> T) -> Option<T> {
        let state = self.state.lock();
        state.young.get(key).or_else(|| state.old.get(key)).map(look)
    }

    pub(super) fn forget(&self, key: &K) {
        let mut state = self.state.lock();
        let State { young, old, .. } = &mut *state;
        // Usually nothing has failed, and the key need not be hashed.
        let is_young = !young.is_empty() && young.remove(key).is_some();
        if !is_young && !old.is_empty() {
            old.remove(key);
        }
    }

    pub(super) fn len(&self) -> usize {
        let state = self.state.lock();
        state.young.len() + state.old.len()
    }
}

impl<K, V> State<K, V> {
    /// Returns what has expired.
    fn turn(&mut self, idle: Duration, now: Instant) -> Option<[HashMap<K, V>; 2]> {
        let turned = *self.turned.get_or_insert(now);
        let passed = now.saturating_duration_since(turned);
        if passed < idle {
            return None;
        }
        self.turned = Some(now);
        let young = mem::take(&mut self.young);
        // Nothing was used since, so the young generation is too old as well.
        if passed >= idle.saturating_mul(2) {
            return Some([mem::take(&mut self.old), young]);
        }
        Some([mem::replace(&mut self.old, young), HashMap::new()])
    }
}
