//! What readers see: the newest acknowledged state, and the newest part of history in memory.

use bytes::Bytes;
use parking_lot::Mutex;
use redb::ReadTransaction;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

use super::batch::Position;
use super::error::Fault;
use super::pack::Unpackers;
use super::read::Expiring;
use super::read_cache::ReadCache;
use crate::{contract::*, shape};

/// Maximum number of commits, and of their bytes, in memory for feeds that keep up. Commits that
/// are not in the file are always among them: [`unfiled`](super::unfiled) has their bounds.
const TAIL_COMMITS_MAX: usize = 10_000;
pub(super) const TAIL_BYTES_MAX: usize = 16 << 20;
/// Two laps of the journal, of a record or more for each commit.
const _: () = assert!(2 * super::unfiled::RECORDS_MAX <= TAIL_COMMITS_MAX);

/// State shared by the writer, which publishes, and all readers.
pub(super) struct Shared {
    published: Mutex<Published>,
    /// The newest revision. Feeds wait for it to change.
    pub(super) moved: watch::Sender<Revision>,
}

pub(super) struct Published {
    pub(super) position: Position,
    /// The revision of the file. The commits after it are in the journal, and in the tail.
    filed: u64,
    /// The file at that revision. `None` once the engine is closed or has failed.
    pub(super) snapshot: Option<Arc<ReadTransaction>>,
    pub(super) unpackers: Arc<Unpackers>,
    /// The store accepts no more calls.
    pub(super) is_closed: bool,
    tail: Tail,
    /// Current values that were read from the file and are not in the tail.
    read_cache: ReadCache,
    expiries: Expiries,
    /// The first damage that a read or a commit found.
    pub(super) damage_met: Option<String>,
    /// When to try again to delete expired values, after a failure.
    pub(super) expiry_retry_at: Option<Instant>,
}

/// The newest commits, one per revision without gaps, up to the published revision.
#[derive(Default)]
struct Tail {
    commits: VecDeque<Arc<[Change]>>,
    n_bytes: usize,
    /// The newest state of each key written in these commits.
    latest: HashMap<Bytes, (Revision, Option<KeyValue>)>,
}

/// When values expire: tokio time in this process, milliseconds since 1970 in the file.
#[derive(Default)]
struct Expiries {
    /// Values are revisions that must still be the key's last change.
    by_time: BTreeMap<(Instant, Bytes), Revision>,
    by_key: HashMap<Bytes, Instant>,
}

impl Shared {
    pub(super) fn new(position: Position, snapshot: ReadTransaction) -> Self {
        let published = Published {
            position,
            filed: position.revision,
            snapshot: Some(Arc::new(snapshot)),
            unpackers: Arc::default(),
            is_closed: false,
            tail: Tail::default(),
            read_cache: ReadCache::default(),
            expiries: Expiries::default(),
            damage_met: None,
            expiry_retry_at: None,
        };
        Self {
            published: Mutex::new(published),
            moved: watch::Sender::new(Revision(position.revision)),
        }
    }

    /// Converts a fault into the caller's error, and records damage.
    pub(super) fn fail(&self, fault: &Fault) -> StoreError {
        let error = fault.unavailable();
        if let StoreError::Damaged(what) = &error {
            self.with(|published| published.damage_met.get_or_insert_with(|| what.clone()).len());
        }
        error
    }

    /// Runs a short function on the newest state, under the lock.
    pub(super) fn with<T>(&self, run: impl FnOnce(&mut Published) -> T) -> T {
        run(&mut self.published.lock())
    }

    /// Publishes commits that are in the journal, and wakes the feeds.
    pub(super) fn publish_journaled(
        &self,
        position: Position,
        commits: impl Iterator<Item = (Arc<[Change]>, Option<Instant>)>,
    ) {
        self.with(|published| {
            published.push(commits);
            published.position = position;
        });
        self.wake(position);
    }

    /// Publishes the file again, after it was opened again and is as it was.
    pub(super) fn publish_file(&self, snapshot: ReadTransaction) {
        let old = self.with(|published| published.snapshot.replace(Arc::new(snapshot)));
        drop(old);
    }

    /// Publishes the file, at a position, after a lap of the journal was moved to it. Later commits
    /// are in the journal.
    pub(super) fn publish_lap(&self, file: Position, snapshot: ReadTransaction) {
        let old = self.with(|published| {
            published.position = Position { revision: published.position.revision, ..file };
            published.filed = file.revision;
            published.snapshot.replace(Arc::new(snapshot))
        });
        drop(old);
    }

    /// Publishes a batch's commits, and the file that has them, and wakes the feeds.
    pub(super) fn publish(
        &self,
        position: Position,
        snapshot: ReadTransaction,
        commits: impl Iterator<Item = (Arc<[Change]>, Option<Instant>)>,
    ) {
        self.publish_view(position, Arc::new(snapshot), commits);
    }

    pub(super) fn publish_view(
        &self,
        position: Position,
        snapshot: Arc<ReadTransaction>,
        commits: impl Iterator<Item = (Arc<[Change]>, Option<Instant>)>,
    ) {
        let old = self.with(|published| {
            published.push(commits);
            published.position = position;
            published.filed = position.revision;
            published.snapshot.replace(snapshot)
        });
        // Dropped outside the lock: dropping the last reference to a snapshot frees its pages.
        drop(old);
        self.wake(position);
    }

    /// Wakes the feeds.
    fn wake(&self, position: Position) {
        let revision = Revision(position.revision);
        self.moved.send_if_modified(|seen| std::mem::replace(seen, revision) != revision);
    }
}

impl Published {
    fn push(&mut self, commits: impl Iterator<Item = (Arc<[Change]>, Option<Instant>)>) {
        for (commit, expires) in commits {
            for change in commit.iter() {
                let expires = expires.filter(|_| change.value.is_some());
                self.expiries.set(&change.key, expires, change.revision);
                self.read_cache.forget(&change.key);
            }
            self.tail.push(commit);
        }
    }

    /// The position of the file.
    pub(super) fn file(&self) -> Position {
        Position { revision: self.filed, ..self.position }
    }

    /// The commits that are not in the file. `None` if they are not in memory.
    pub(super) fn unfiled(&self) -> Option<Vec<Arc<[Change]>>> {
        Some(self.commits_after(self.filed, usize::MAX)?.cloned().collect())
    }

    /// A key's current state if it was recently written or read. `Some(None)` if it was deleted.
    pub(super) fn recent(&mut self, key: &[u8]) -> Option<Option<KeyValue>> {
        match self.tail.latest.get(key) {
            Some((_, entry)) => Some(entry.clone()),
            None => self.read_cache.get(key).map(Some),
        }
    }

    /// The value that a key got at a revision, if it is the key's newest and was recently written
    /// or read.
    pub(super) fn written_at(&mut self, key: &[u8], revision: Revision) -> Option<KeyValue> {
        self.recent(key)?.filter(|entry| entry.modified == revision)
    }

    /// Caches a value that was read at a revision, unless the key may have changed since.
    pub(super) fn keep(&mut self, entry: &KeyValue, read_at: Revision) {
        let n_since = self.position.revision.checked_sub(read_at.0);
        let is_known = n_since.is_some_and(|n| n <= self.tail.commits.len() as u64);
        if is_known && !self.tail.latest.contains_key(&entry.key) {
            self.read_cache.insert(entry.clone());
        }
    }

    /// Up to `n` commits after a revision. `None` if they are not in memory.
    pub(super) fn commits_after(
        &self,
        after: u64,
        n: usize,
    ) -> Option<impl Iterator<Item = &Arc<[Change]>>> {
        let first = self.position.revision + 1 - self.tail.commits.len() as u64;
        let skipped = usize::try_from((after + 1).checked_sub(first)?).ok()?;
        Some(self.tail.commits.iter().skip(skipped).take(n))
    }

    pub(super) fn check_retained(&self, asked: Revision) -> Result<(), StoreError> {
        let oldest = Revision(self.position.oldest);
        if asked < oldest {
            return Err(StoreError::Compacted { asked, oldest });
        }
        Ok(())
    }

    /// Clears the tail and the read cache, and takes expiry times from the file. A known value
    /// keeps its expiry in tokio time; for the others it is computed from the file's.
    pub(super) fn restart(&mut self, expiring: Vec<Expiring>, now: (Instant, u64)) {
        self.tail = Tail::default();
        self.read_cache = ReadCache::default();
        let old = std::mem::take(&mut self.expiries);
        for Expiring { key, expires_ms, written } in expiring {
            let known = old.by_key.get(&key).copied();
            let known = known.filter(|at| old.by_time.get(&(*at, key.clone())) == Some(&written));
            let at = known.unwrap_or_else(|| {
                shape::expiry(now.0, Duration::from_millis(expires_ms.saturating_sub(now.1)))
            });
            self.expiries.set(&key, Some(at), written);
        }
        self.expiry_retry_at = None;
    }

    /// Forgets the expiry of keys that were deleted, unless they were written again.
    pub(super) fn forget_expired(&mut self, keys: &[(Bytes, Revision)], now: Instant) {
        for (key, written) in keys {
            let Some(&at) = self.expiries.by_key.get(key).filter(|at| **at <= now) else {
                continue;
            };
            if self.expiries.by_time.get(&(at, key.clone())) == Some(written) {
                self.expiries.set(key, None, *written);
            }
        }
    }

    /// When the next value expires, or its deletion is tried again.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let ((at, _), _) = self.expiries.by_time.first_key_value()?;
        Some(self.expiry_retry_at.map_or(*at, |tried| tried.max(*at)))
    }

    /// Up to `n` expired keys, each with the revision that must still be its last change.
    pub(super) fn expired(&self, now: Instant, n: usize) -> Vec<(Bytes, Revision)> {
        if self.expiry_retry_at.is_some_and(|tried| tried > now) {
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
            let entry = super::read::entry_of(change);
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

/// Bytes that a change occupies in memory.
pub(super) fn size(change: &Change) -> usize {
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
