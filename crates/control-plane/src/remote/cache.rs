//! Answers of a remote server that are still valid.

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of answers that are kept.
pub const ANSWERS_MAX: usize = 8192;
/// Maximum size in bytes of a question whose answer is kept, so that a user cannot fill the memory
/// with long ones: 10,000, as kube-apiserver's.
pub const QUESTION_BYTES_MAX: usize = 10_000;

/// The digest of a question, so that no token is kept.
type Key = [u8; 32];

/// Answers by question. The one that ends first makes room.
#[derive(Debug)]
pub(super) struct Answers<T> {
    kept: Mutex<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    by_key: HashMap<Key, (T, Instant, u64)>,
    /// By end, with a number that makes it unique.
    by_end: BTreeMap<(Instant, u64), Key>,
    n: u64,
}

impl<T: Clone> Answers<T> {
    pub(super) fn new() -> Self {
        let kept = Kept { by_key: HashMap::new(), by_end: BTreeMap::new(), n: 0 };
        Self { kept: Mutex::new(kept) }
    }

    pub(super) fn get(&self, question: &[u8]) -> Option<T> {
        let key: Key = Sha256::digest(question).into();
        let mut kept = self.kept.lock();
        kept.drop_ended(Instant::now());
        kept.by_key.get(&key).map(|(answer, ..)| answer.clone())
    }

    /// Keeps an answer for `ttl`, unless its question is too long or `ttl` is zero.
    pub(super) fn keep(&self, question: &[u8], answer: T, ttl: Duration) {
        if question.len() > QUESTION_BYTES_MAX || ttl.is_zero() {
            return;
        }
        let key: Key = Sha256::digest(question).into();
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.drop_ended(now);
        kept.n += 1;
        let (end, n) = (now + ttl, kept.n);
        if let Some((_, former, m)) = kept.by_key.insert(key, (answer, end, n)) {
            kept.by_end.remove(&(former, m));
        }
        kept.by_end.insert((end, n), key);
        while kept.by_key.len() > ANSWERS_MAX {
            let Some((_, key)) = kept.by_end.pop_first() else { break };
            kept.by_key.remove(&key);
        }
    }
}

impl<T> Kept<T> {
    fn drop_ended(&mut self, now: Instant) {
        while let Some(first) = self.by_end.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            self.by_key.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_end_and_are_bounded() {
        let answers = Answers::new();
        let second = Duration::from_secs(1);
        answers.keep(b"a", 1, second);
        answers.keep(b"b", 2, 3 * second);
        answers.keep(b"none", 3, Duration::ZERO);
        answers.keep(&[b'x'; QUESTION_BYTES_MAX + 1], 4, second);
        assert_eq!(
            (answers.get(b"a"), answers.get(b"b"), answers.get(b"none")),
            (Some(1), Some(2), None)
        );
        assert_eq!(answers.get(&[b'x'; QUESTION_BYTES_MAX + 1]), None);
        // Asked again in between: the new end counts.
        answers.keep(b"a", 5, 2 * second);
        tokio::time::advance(second).await;
        assert_eq!(answers.get(b"a"), Some(5));
        tokio::time::advance(second).await;
        assert_eq!((answers.get(b"a"), answers.get(b"b")), (None, Some(2)));
        for n in 0..ANSWERS_MAX {
            answers.keep(&n.to_be_bytes(), 0, 60 * second);
        }
        assert_eq!(answers.get(b"b"), None);
        let kept = answers.kept.lock();
        assert_eq!((kept.by_key.len(), kept.by_end.len()), (ANSWERS_MAX, ANSWERS_MAX));
    }
}
