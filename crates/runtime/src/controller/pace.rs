//! The least time between two passes over one key.

use std::{hash::Hash, mem, time::Duration};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Remembers when the last pass over each key began, for as long as that matters.
///
/// Two generations: each time the interval has passed, the old one is dropped and the young one
/// becomes the old. So a key is remembered for at least the interval and at most twice that, and
/// what is kept is bounded by the passes of two intervals.
pub(super) struct Pace<R> {
    interval: Duration,
    began: Mutex<Began<R>>,
}

struct Began<R> {
    young: HashMap<R, Instant>,
    old: HashMap<R, Instant>,
    turned: Option<Instant>,
}

impl<R: Clone + Eq + Hash> Pace<R> {
    /// Begins of passes over one key are `interval` apart at least.
    pub(super) fn new(interval: Duration) -> Self {
        let began = Began { young: HashMap::new(), old: HashMap::new(), turned: None };
        Self { interval, began: Mutex::new(began) }
    }

    /// How long a pass over `key` has to wait yet. If it need not, it begins now.
    pub(super) fn wait(&self, key: &R, now: Instant) -> Option<Duration> {
        let mut began = self.began.lock();
        began.turn(self.interval, now);
        let last = began.young.get(key).or_else(|| began.old.get(key));
        let due = last.map(|last| *last + self.interval).filter(|due| *due > now);
        if due.is_none() {
            began.young.insert(key.clone(), now);
        }
        due.map(|due| due - now)
    }
}

impl<R> Began<R> {
    fn turn(&mut self, interval: Duration, now: Instant) {
        let turned = *self.turned.get_or_insert(now);
        let passed = now.saturating_duration_since(turned);
        if passed < interval {
            return;
        }
        self.turned = Some(now);
        self.old = mem::take(&mut self.young);
        // No pass began since: what would be old by now is forgotten.
        if passed >= interval.saturating_mul(2) {
            self.old = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn passes_over_one_key_are_the_interval_apart_and_others_go_on() {
        let pace = Pace::new(Duration::from_secs(10));
        let start = Instant::now();
        let wait = |key, at: u64| pace.wait(&key, start + Duration::from_secs(at));
        assert_eq!(wait("a", 0), None);
        assert_eq!(wait("a", 4), Some(Duration::from_secs(6)));
        assert_eq!(wait("b", 4), None);
        assert_eq!(wait("a", 9), Some(Duration::from_secs(1)), "asking is not beginning");
        assert_eq!(wait("a", 10), None);
        assert_eq!(wait("b", 12), Some(Duration::from_secs(2)), "it is in the old generation");
        assert_eq!(wait("a", 19), Some(Duration::from_secs(1)));
        assert_eq!(wait("b", 14), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_matter_any_more_is_forgotten() {
        let pace = Pace::new(Duration::from_secs(10));
        let start = Instant::now();
        for n in 0..1000_u64 {
            assert_eq!(pace.wait(&n, start + Duration::from_secs(n)), None);
            let began = pace.began.lock();
            assert!(began.young.len() + began.old.len() <= 20);
        }
        assert_eq!(pace.wait(&0, start + Duration::from_secs(5000)), None);
        let began = pace.began.lock();
        assert_eq!((began.young.len(), began.old.len()), (1, 0));
    }
}
