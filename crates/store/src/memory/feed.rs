//! A feed over the memory engine: a position in its history.

use super::MemoryStore;
use crate::contract::*;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};

/// Maximum number of commits in one batch, so that one poll of a slow reader stays short.
const BATCH_COMMITS_MAX: u64 = 1000;

pub(super) struct MemoryFeed {
    store: MemoryStore,
    prefix: Bytes,
    /// Everything up to here has been delivered.
    after: Revision,
}

impl MemoryFeed {
    pub(super) fn new(store: MemoryStore, prefix: Bytes, after: Revision) -> Self {
        Self { store, prefix, after }
    }

    /// The next batch if the store has new revisions, else the time at which the next value
    /// expires.
    fn take(&mut self) -> Result<Taken, StoreError> {
        self.store.step(|state| {
            if state.revision <= self.after {
                return Ok(Taken::Nothing { next_expiry: state.next_expiry() });
            }
            state.check_retained(self.after)?;
            let revision = Revision(state.revision.0.min(self.after.0 + BATCH_COMMITS_MAX));
            let changes = (self.after.0 + 1..=revision.0)
                .filter_map(|revision| state.commit_of(Revision(revision)))
                .flat_map(|commit| commit.iter())
                .filter(|change| change.key.starts_with(&self.prefix))
                .cloned()
                .collect();
            self.after = revision;
            Ok(Taken::Batch(Batch { changes, revision }))
        })
    }
}

enum Taken {
    Batch(Batch),
    Nothing { next_expiry: Option<tokio::time::Instant> },
}

impl ChangeFeed for MemoryFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            let store = self.store.clone();
            loop {
                // A commit from here on ends the wait below, also one before it.
                let changed = store.committed.notified();
                match self.take()? {
                    Taken::Batch(batch) => return Ok(batch),
                    Taken::Nothing { next_expiry: None } => changed.await,
                    Taken::Nothing { next_expiry: Some(due) } => tokio::select! {
                        biased;
                        // Cancel safe: the next call looks at the state first.
                        () = changed => {}
                        // Cancel safe: each round recomputes the time.
                        () = tokio::time::sleep_until(due) => {}
                    },
                }
            }
        }
        .boxed()
    }
}
