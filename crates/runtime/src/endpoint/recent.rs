//! Answers that hold for a while.

use std::{hash::Hash, time::Duration};

use hashbrown::HashMap;
use tokio::time::Instant;

/// At most so many answers, each until its time is over.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    answers: HashMap<K, (Instant, V)>,
    max: usize,
}

impl<K: Eq + Hash + Clone, V: Clone> Recent<K, V> {
    pub(super) fn new(max: usize) -> Self {
        Self { answers: HashMap::new(), max }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let (until, answer) = self.answers.get(key)?;
        (*until > Instant::now()).then(|| answer.clone())
    }

    pub(super) fn put(&mut self, key: K, answer: V, lasts: Duration) {
        let now = Instant::now();
        if self.answers.len() >= self.max && !self.answers.contains_key(&key) {
            self.answers.retain(|_, (until, _)| *until > now);
        }
        // Full of answers that hold: the one that is over first makes room.
        if self.answers.len() >= self.max && !self.answers.contains_key(&key) {
            let first = self.answers.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                self.answers.remove(&first);
            }
        }
        self.answers.insert(key, (now + lasts, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_hold_for_their_time_and_are_bounded() {
        let secs = Duration::from_secs;
        let mut recent = Recent::new(2);
        recent.put("a", 1, secs(10));
        recent.put("b", 2, secs(5));
        recent.put("c", 3, secs(20));
        assert_eq!(
            (recent.get(&"a"), recent.get(&"b"), recent.get(&"c")),
            (Some(1), None, Some(3))
        );
        tokio::time::advance(secs(10)).await;
        assert_eq!((recent.get(&"a"), recent.get(&"c")), (None, Some(3)));
    }
}
