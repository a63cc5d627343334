//! What readers see: the newest acknowledged state, and the end of history in memory.

use bytes::Bytes;
use parking_lot::Mutex;
use redb::ReadTransaction;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

use super::batch::Standing;
use super::error::Fault;
use super::kept::Kept;
use super::pack::Unpackers;
use super::read::Mortal;
use crate::{contract::*, shape};

/// How many commits, and how many bytes of them, are kept in memory for feeds that follow closely.
const TAIL_COMMITS_MAX: usize = 10_000;
const TAIL_BYTES_MAX: usize = 16 << 20;

/// Shared by the writer, who publishes, and all readers.
pub(super) struct Shared {
    published: Mutex<Published>,
    /// The newest revision: what feeds wait on.
    pub(super) moved: watch::Sender<Revision>,
}

pub(super) struct Published {
    pub(super) standing: Standing,
    /// The file as it was at that revision; `None` once the engine is closed or has failed.
    pub(super) snapshot: Option<Arc<ReadTransaction>>,
    pub(super) unpackers: Arc<Unpackers>,
    /// Nothing is taken in any more.
    pub(super) is_closed: bool,
    tail: Tail,
    /// What was read of what is not in the tail; all of it as it is now.
    kept: Kept,
    expiries: Expiries,
    /// Damage that a read or a commit has met.
    pub(super) damage_met: Option<String>,
    /// Until when nobody tries again to remove values whose time is over, after it failed.
    pub(super) deaths_tried: Option<Instant>,
}

/// The newest commits, one entry a revision without gaps, ending at the published one.
#[derive(Default)]
struct Tail {
    commits: VecDeque<Arc<[Change]>>,
    n_bytes: usize,
    /// What each key written in these commits has become.
    latest: HashMap<Bytes, (Revision, Option<KeyValue>)>,
}

/// When values die: tokio's time in this process, milliseconds since 1970 in the file.
#[derive(Default)]
struct Expiries {
    /// With the revision that must still be the key's last change.
    by_time: BTreeMap<(Instant, Bytes), Revision>,
    by_key: HashMap<Bytes, Instant>,
}

impl Shared {
    pub(super) fn new(standing: Standing, snapshot: ReadTransaction) -> Self {
        let published = Published {
            standing,
            snapshot: Some(Arc::new(snapshot)),
            unpackers: Arc::default(),
            is_closed: false,
            tail: Tail::default(),
            kept: Kept::default(),
            expiries: Expiries::default(),
            damage_met: None,
            deaths_tried: None,
        };
        Self {
            published: Mutex::new(published),
            moved: watch::Sender::new(Revision(standing.revision)),
        }
    }

    /// As a caller sees it; damage is noted.
    pub(super) fn fail(&self, fault: &Fault) -> StoreError {
        let error = fault.unavailable();
        if let StoreError::Damaged(what) = &error {
            self.look(|published| published.damage_met.get_or_insert_with(|| what.clone()).len());
        }
        error
    }

    /// Looks at the newest state; for moments only.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Published) -> T) -> T {
        look(&mut self.published.lock())
    }

    /// Makes a batch's commits visible, and wakes the feeds.
    pub(super) fn publish(
        &self,
        standing: Standing,
        snapshot: ReadTransaction,
        commits: impl Iterator<Item = (Arc<[Change]>, Option<Instant>)>,
    ) {
        self.publish_view(standing, Arc::new(snapshot), commits);
    }

    pub(super) fn publish_view(
        &self,
        standing: Standing,
        snapshot: Arc<ReadTransaction>,
        commits: impl Iterator<Item = (Arc<[Change]>, Option<Instant>)>,
    ) {
        let old = self.look(|published| {
            for (commit, dies) in commits {
                for change in commit.iter() {
                    let dies = dies.filter(|_| change.value.is_some());
                    published.expiries.set(&change.key, dies, change.revision);
                    published.kept.forget(&change.key);
                }
                published.tail.push(commit);
            }
            published.standing = standing;
            published.snapshot.replace(snapshot)
        });
        // Not under the lock: the last reader of a snapshot gives its pages back.
        drop(old);
        let revision = Revision(standing.revision);
        self.moved.send_if_modified(|seen| std::mem::replace(seen, revision) != revision);
    }
}

impl Published {
    /// A key's present state if it was written or read lately: `Some(None)` when it was deleted.
    pub(super) fn lately(&mut self, key: &[u8]) -> Option<Option<KeyValue>> {
        match self.tail.latest.get(key) {
            Some((_, entry)) => Some(entry.clone()),
            None => self.kept.get(key).map(Some),
        }
    }

    /// The value that a key got at a revision, if that is its newest and was written or read
    /// lately.
    pub(super) fn written_at(&mut self, key: &[u8], revision: Revision) -> Option<KeyValue> {
        self.lately(key)?.filter(|entry| entry.modified == revision)
    }

    /// Keeps what was read of the file as it was at a revision, unless the key may have changed
    /// since.
    pub(super) fn keep(&mut self, entry: &KeyValue, read_at: Revision) {
        let n_since = self.standing.revision.checked_sub(read_at.0);
        let is_known = n_since.is_some_and(|n| n <= self.tail.commits.len() as u64);
        if is_known && !self.tail.latest.contains_key(&entry.key) {
            self.kept.insert(entry.clone());
        }
    }

    /// The commits after a revision, at most `n`, if memory has them.
    pub(super) fn commits_after(
        &self,
        after: u64,
        n: usize,
    ) -> Option<impl Iterator<Item = &Arc<[Change]>>> {
        let first = self.standing.revision + 1 - self.tail.commits.len() as u64;
        let skipped = usize::try_from((after + 1).checked_sub(first)?).ok()?;
        Some(self.tail.commits.iter().skip(skipped).take(n))
    }

    pub(super) fn check_retained(&self, asked: Revision) -> Result<(), StoreError> {
        let oldest = Revision(self.standing.oldest);
        if asked < oldest {
            return Err(StoreError::Compacted { asked, oldest });
        }
        Ok(())
    }

    /// Forgets what is in memory of the end of history, and takes times to live from the file: one
    /// that is known keeps its moment of tokio's time, the others get it from what is left of the
    /// file's.
    pub(super) fn restart(&mut self, mortals: Vec<Mortal>, now: (Instant, u64)) {
        self.tail = Tail::default();
        self.kept = Kept::default();
        let old = std::mem::take(&mut self.expiries);
        for Mortal { key, dies_ms, written } in mortals {
            let known = old.by_key.get(&key).copied();
            let known = known.filter(|at| old.by_time.get(&(*at, key.clone())) == Some(&written));
            let at = known.unwrap_or_else(|| {
                shape::death(now.0, Duration::from_millis(dies_ms.saturating_sub(now.1)))
            });
            self.expiries.set(&key, Some(at), written);
        }
        self.deaths_tried = None;
    }

    /// Forgets deaths that have been tried: what was written again has a moment of its own.
    pub(super) fn died(&mut self, keys: &[(Bytes, Revision)], now: Instant) {
        for (key, written) in keys {
            let Some(&at) = self.expiries.by_key.get(key).filter(|at| **at <= now) else {
                continue;
            };
            if self.expiries.by_time.get(&(at, key.clone())) == Some(written) {
                self.expiries.set(key, None, *written);
            }
        }
    }

    /// When the next value dies, or its death is tried again.
    pub(super) fn next_death(&self) -> Option<Instant> {
        let ((at, _), _) = self.expiries.by_time.first_key_value()?;
        Some(self.deaths_tried.map_or(*at, |tried| tried.max(*at)))
    }

    /// The keys whose time is over, with the revisions that must still be their last changes; at
    /// most `n`.
    pub(super) fn dead(&self, now: Instant, n: usize) -> Vec<(Bytes, Revision)> {
        if self.deaths_tried.is_some_and(|tried| tried > now) {
            return Vec::new();
        }
        let dead = self.expiries.by_time.iter().take_while(|((at, _), _)| *at <= now);
        dead.take(n).map(|((_, key), written)| (key.clone(), *written)).collect()
    }
}

impl Tail {
    fn push(&mut self, commit: Arc<[Change]>) {
        for change in commit.iter() {
            self.n_bytes += size(change);
            let entry = change.value.as_ref().map(|value| KeyValue {
                key: change.key.clone(),
                value: value.clone(),
                modified: change.revision,
                created: change
                    .previous
                    .as_ref()
                    .map_or(change.revision, |previous| previous.created),
            });
            self.latest.insert(change.key.clone(), (change.revision, entry));
        }
        self.commits.push_back(commit);
        while self.commits.len() > TAIL_COMMITS_MAX
            || (self.n_bytes > TAIL_BYTES_MAX && self.commits.len() > 1)
        {
            let Some(old) = self.commits.pop_front() else { return };
            for change in old.iter() {
                self.n_bytes -= size(change);
                if self.latest.get(&change.key).is_some_and(|(at, _)| *at == change.revision) {
                    self.latest.remove(&change.key);
                }
            }
        }
    }
}

/// What a change keeps in memory.
fn size(change: &Change) -> usize {
    let previous = change.previous.as_ref().map_or(0, |previous| previous.value.len());
    change.key.len() + change.value.as_ref().map_or(0, Bytes::len) + previous
}

impl Expiries {
    fn set(&mut self, key: &Bytes, at: Option<Instant>, written: Revision) {
        if self.by_key.is_empty() && at.is_none() {
            return;
        }
        if let Some(before) = self.by_key.remove(key) {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.by_key.insert(key.clone(), at);
            self.by_time.insert((at, key.clone()), written);
        }
    }
}
