//! Answers of a remote server that are still valid.

use parking_lot::Mutex;
use setpoint_object::bounded::Expiring;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of answers that are kept.
pub const ANSWERS_MAX: usize = 8192;
/// Maximum size in bytes of a question whose answer is kept, so that a user cannot fill the memory
/// with long ones: 10,000, as kube-apiserver's.
pub const QUESTION_BYTES_MAX: usize = 10_000;

/// Maximum size in bytes of an answer that is kept: 32 KiB, a user in five hundred groups. All of
/// them take at most 256 MiB.
pub const KEPT_BYTES_MAX: usize = 32 << 10;

/// What the size of an answer depends on.
pub(super) trait Answer: Clone {
    /// About how many bytes of memory it takes.
    fn n_bytes(&self) -> usize;
}

/// The digest of a question, so that no token is kept.
type Key = [u8; 32];

/// Answers by question.
#[derive(Debug)]
pub(super) struct Answers<T>(Mutex<Expiring<Key, T, Instant>>);

impl<T: Answer> Answers<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Expiring::new(ANSWERS_MAX)))
    }

    pub(super) fn get(&self, question: &[u8]) -> Option<T> {
        let key: Key = Sha256::digest(question).into();
        self.0.lock().get(&key, Instant::now()).cloned()
    }

    /// Keeps an answer for `ttl`, unless it or its question is too long, or `ttl` is zero.
    pub(super) fn keep(&self, question: &[u8], answer: T, ttl: Duration) {
        let is_long = question.len() > QUESTION_BYTES_MAX || answer.n_bytes() > KEPT_BYTES_MAX;
        if is_long || ttl.is_zero() {
            return;
        }
        let key: Key = Sha256::digest(question).into();
        self.0.lock().put(key, answer, Instant::now() + ttl);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Answer for usize {
        fn n_bytes(&self) -> usize {
            *self
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_answer_is_not_kept() {
        let answers = Answers::new();
        answers.keep(b"short", KEPT_BYTES_MAX, Duration::from_secs(1));
        answers.keep(b"long", KEPT_BYTES_MAX + 1, Duration::from_secs(1));
        assert_eq!((answers.get(b"short").is_some(), answers.get(b"long")), (true, None));
    }

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
        // The question was asked again in between: the new end applies.
        answers.keep(b"a", 5, 2 * second);
        tokio::time::advance(second).await;
        assert_eq!(answers.get(b"a"), Some(5));
        tokio::time::advance(second).await;
        assert_eq!((answers.get(b"a"), answers.get(b"b")), (None, Some(2)));
        for n in 0..ANSWERS_MAX {
            answers.keep(&n.to_be_bytes(), 0, 60 * second);
        }
        assert_eq!(answers.get(b"b"), None);
        assert_eq!(answers.0.lock().len(), ANSWERS_MAX);
    }
}
