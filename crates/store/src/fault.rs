//! An engine that fails on a schedule, to test code that uses a store.
//!
//! # Theory
//!
//! Before each call a random number is drawn from the seed. It decides whether the call passes,
//! fails before anything happened ([`StoreError::Unavailable`]), or happens but loses its response
//! ([`StoreError::Unknown`], commits only). A feed may break: it then returns only errors and must
//! be opened again. The same seed and the same calls give the same faults.

use crate::contract::*;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

/// How often each fault happens, as a probability from 0.0 to 1.0. All zero by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// A call is refused before anything happened.
    pub unavailable: f64,
    /// A commit happens and its answer is lost.
    pub answer_lost: f64,
    /// A feed breaks at a batch.
    pub feed_broken: f64,
}

/// A store that passes calls to another one, or fails them.
#[derive(Debug, Clone)]
pub struct FaultStore<S> {
    inner: S,
    dice: Arc<Dice>,
}

#[derive(Debug)]
struct Dice {
    rng: Mutex<SmallRng>,
    faults: Mutex<Faults>,
}

impl Dice {
    fn falls(&self, of: impl Fn(&Faults) -> f64) -> bool {
        let chance = of(&self.faults.lock());
        // Thrown even when nothing can fail, so that switching faults off does not shift the rest
        // of the sequence.
        self.rng.lock().random::<f64>() < chance
    }

    fn refuse(&self) -> Result<(), StoreError> {
        if self.falls(|faults| faults.unavailable) {
            Err(StoreError::Unavailable("injected".into()))
        } else {
            Ok(())
        }
    }
}

impl<S> FaultStore<S> {
    /// Wraps a store. `faults` are probabilities; `seed` gives the sequence.
    pub fn new(inner: S, faults: Faults, seed: u64) -> Self {
        let dice =
            Dice { rng: Mutex::new(SmallRng::seed_from_u64(seed)), faults: Mutex::new(faults) };
        Self { inner, dice: Arc::new(dice) }
    }

    /// Changes the faults from the next call on; `Faults::default()` heals the store.
    pub fn set_faults(&self, faults: Faults) {
        *self.dice.faults.lock() = faults;
    }

    /// The store behind, which never fails by itself.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store> Store for FaultStore<S> {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async { self.dice.refuse().map(|()| self.inner.revision())?.await }.boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move { self.dice.refuse().map(|()| self.inner.get(key, at))?.await }.boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move { self.dice.refuse().map(|()| self.inner.range(request))?.await }.boxed()
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            self.dice.refuse()?;
            let lost = self.dice.falls(|faults| faults.answer_lost);
            let committed = self.inner.commit(txn).await?;
            if lost {
                Err(StoreError::Unknown("injected: the answer was lost".into()))
            } else {
                Ok(committed)
            }
        }
        .boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            self.dice.refuse()?;
            let feed = self.inner.changes(prefix, after).await?;
            Ok(Box::new(FaultFeed { feed: Some(feed), dice: self.dice.clone() })
                as Box<dyn ChangeFeed>)
        }
        .boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        async move { self.dice.refuse().map(|()| self.inner.compact(revision))?.await }.boxed()
    }

    fn divide<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
        part_keys: usize,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, StoreError>> {
        async move { self.dice.refuse().map(|()| self.inner.divide(start, end, part_keys))?.await }
            .boxed()
    }

    fn size_bytes(&self) -> Option<u64> {
        self.inner.size_bytes()
    }

    fn keeps_history(&self) -> bool {
        self.inner.keeps_history()
    }

    fn rewrite_due<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move { self.dice.refuse().map(|()| self.inner.rewrite_due(key))?.await }.boxed()
    }
}

struct FaultFeed {
    /// `None` once broken.
    feed: Option<Box<dyn ChangeFeed>>,
    dice: Arc<Dice>,
}

impl ChangeFeed for FaultFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            if self.dice.falls(|faults| faults.feed_broken) {
                self.feed = None;
            }
            match &mut self.feed {
                Some(feed) => feed.next().await,
                None => Err(StoreError::Unavailable("injected: the feed is broken".into())),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    async fn trace(seed: u64) -> (String, Revision) {
        let faults = Faults { unavailable: 0.3, answer_lost: 0.3, feed_broken: 0.0 };
        let store = FaultStore::new(MemoryStore::default(), faults, seed);
        let mut trace = String::new();
        for i in 0..40 {
            let ops = vec![Op::Put("/a".into(), i.to_string().into())];
            trace.push(match store.commit(Txn { ops, ..Txn::default() }).await {
                Ok(_) => '.',
                Err(StoreError::Unavailable(_)) => 'u',
                Err(StoreError::Unknown(_)) => '?',
                Err(error) => panic!("{error}"),
            });
        }
        (trace, store.inner().revision().await.unwrap())
    }

    #[tokio::test]
    async fn one_seed_gives_one_sequence_of_faults() {
        assert_eq!(trace(7).await, trace(7).await);
        assert_ne!(trace(7).await.0, trace(8).await.0);
    }

    #[tokio::test]
    async fn refused_commit_did_not_happen_and_lost_answer_did() {
        let (trace, revision) = trace(7).await;
        let happened = trace.chars().filter(|c| *c != 'u').count() as u64;
        assert!(trace.contains('u') && trace.contains('?'));
        assert_eq!(revision.0, 1 + happened);
    }

    #[tokio::test]
    async fn broken_feed_stays_broken() {
        let store = FaultStore::new(
            MemoryStore::default(),
            Faults { feed_broken: 1.0, ..Default::default() },
            1,
        );
        let mut feed = store.changes("/".into(), Revision(1)).await.unwrap();
        assert!(feed.next().await.is_err());
        store.set_faults(Faults::default());
        assert!(feed.next().await.is_err());
    }
}
