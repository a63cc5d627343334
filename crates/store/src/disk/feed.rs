//! A feed over the disk engine: a position in its history.

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use tokio::{sync::watch, time::Instant};

use super::{Inner, published::Published};
use crate::contract::*;
use std::sync::Arc;

/// Maximum number of commits in one batch, so that one step of a slow reader stays short.
const BATCH_COMMITS_MAX: usize = 1000;

pub(super) struct DiskFeed {
    inner: Arc<Inner>,
    prefix: Bytes,
    moved: watch::Receiver<Revision>,
    /// Everything up to here has been delivered.
    after: Revision,
}

enum Taken {
    Batch(Batch),
    /// The next commits are only in the file.
    Behind,
    Nothing {
        next_expiry: Option<Instant>,
    },
}

impl DiskFeed {
    pub(super) fn new(inner: Arc<Inner>, prefix: Bytes, after: Revision) -> Self {
        let moved = inner.shared.moved.subscribe();
        Self { inner, prefix, moved, after }
    }

    /// The next commits in memory. Does not move the position.
    fn take(&self, published: &mut Published) -> Result<Taken, StoreError> {
        if published.is_closed {
            return Err(StoreError::Closed);
        }
        if published.position.revision <= self.after.0 {
            return Ok(Taken::Nothing { next_expiry: published.next_expiry() });
        }
        published.check_retained(self.after)?;
        let Some(commits) = published.commits_after(self.after.0, BATCH_COMMITS_MAX) else {
            return Ok(Taken::Behind);
        };
        let (mut changes, mut revision) = (Vec::new(), self.after);
        for commit in commits {
            revision.0 += 1;
            let wanted = commit.iter().filter(|change| change.key.starts_with(&self.prefix));
            changes.extend(wanted.cloned());
        }
        Ok(Taken::Batch(Batch { changes, revision }))
    }
}

impl ChangeFeed for DiskFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            loop {
                // Marked before `take`, so that a commit after `take` wakes the wait below.
                self.moved.mark_unchanged();
                let taken = self.inner.shared.with(|published| self.take(published))?;
                let batch = match taken {
                    Taken::Batch(batch) => batch,
                    Taken::Behind => {
                        let (prefix, after) = (self.prefix.clone(), self.after.0);
                        let read = self.inner.read(move |view| {
                            view.changes(&prefix, after, BATCH_COMMITS_MAX as u64)
                        });
                        // Cancel safe: the position has not moved.
                        read.await?.value
                    }
                    Taken::Nothing { next_expiry } => {
                        let next_expiry = async {
                            match next_expiry {
                                Some(at) => tokio::time::sleep_until(at).await,
                                None => std::future::pending().await,
                            }
                        };
                        tokio::select! {
                            biased;
                            // Cancel safe: a dropped `changed` has marked nothing as seen.
                            moved = self.moved.changed() => moved.map_err(|_| StoreError::Closed)?,
                            // Cancel safe: each round recomputes the time.
                            () = next_expiry => self.inner.expire().await?,
                        }
                        continue;
                    }
                };
                self.after = batch.revision;
                return Ok(batch);
            }
        }
        .boxed()
    }
}
