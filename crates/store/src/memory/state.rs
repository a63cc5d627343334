//! The state under the lock: `&mut State` is holding it.

use super::{FORGOTTEN_MAX, KEYFRAME_REVISIONS, MemoryOptions, SLICE};
use crate::{contract::*, shape};
use bytes::Bytes;
use imbl::{OrdMap, Vector};
use std::ops::Bound;
use std::sync::Arc;
use tokio::time::Instant;

pub(super) type Map = OrdMap<Bytes, KeyValue>;

/// One revision of history.
#[derive(Clone)]
struct Commit {
    changes: Arc<[Change]>,
    at: Instant,
}

#[derive(Clone)]
pub(super) struct State {
    // Limits.
    options: MemoryOptions,
    // Newest state.
    pub(super) revision: Revision,
    pub(super) current: Map,
    /// Expiry times of values, each with the revision that must still be the key's last change.
    expiries: OrdMap<(Instant, Bytes), Revision>,
    // History.
    pub(super) oldest: Revision,
    history: Vector<Commit>,
    history_bytes: usize,
    keyframes: OrdMap<u64, Map>,
}

impl State {
    pub(super) fn new(options: MemoryOptions) -> Self {
        let first = options.first_revision;
        Self {
            options,
            revision: first,
            current: Map::new(),
            expiries: OrdMap::new(),
            oldest: first,
            history: Vector::new(),
            history_bytes: 0,
            keyframes: OrdMap::new(),
        }
    }

    // Reads.

    pub(super) fn get(&self, key: &[u8], at: At) -> Result<Snapshot<Option<KeyValue>>, StoreError> {
        let value = match at {
            At::Latest => self.current.get(key).cloned(),
            At::Exactly(asked) => {
                let (base, map) = self.nearest(asked)?;
                let mut value = map.get(key).cloned();
                for change in self.commits_down(base, asked).flat_map(|commit| commit.iter()) {
                    if change.key == key {
                        value.clone_from(&change.previous);
                    }
                }
                value
            }
        };
        Ok(Snapshot { revision: self.revision, value })
    }

    /// The whole map at a revision. Shares its nodes with the newest state.
    pub(super) fn view(&self, at: At) -> Result<Map, StoreError> {
        let At::Exactly(asked) = at else { return Ok(self.current.clone()) };
        let (base, map) = self.nearest(asked)?;
        let mut map = map.clone();
        for change in self.commits_down(base, asked).flat_map(|commit| commit.iter()) {
            match &change.previous {
                Some(previous) => map.insert(change.key.clone(), previous.clone()),
                None => map.remove(&change.key),
            };
        }
        Ok(map)
    }

    /// The map from which a read at a past revision starts, and the map's revision (at or after
    /// `asked`).
    fn nearest(&self, asked: Revision) -> Result<(Revision, &Map), StoreError> {
        self.check_retained(asked)?;
        if asked > self.revision {
            return Err(StoreError::Future { asked, current: self.revision });
        }
        Ok(match self.keyframes.get_next(&asked.0) {
            Some((revision, map)) => (Revision(*revision), map),
            None => (self.revision, &self.current),
        })
    }

    /// The commits after `to`, from `from` downwards.
    fn commits_down(&self, from: Revision, to: Revision) -> impl Iterator<Item = &Arc<[Change]>> {
        (to.0 + 1..=from.0).rev().filter_map(|revision| self.commit_of(Revision(revision)))
    }

    pub(super) fn commit_of(&self, revision: Revision) -> Option<&Arc<[Change]>> {
        let index = revision.0.checked_sub(self.oldest.0 + 1)?;
        Some(&self.history.get(usize::try_from(index).ok()?)?.changes)
    }

    pub(super) fn check_retained(&self, asked: Revision) -> Result<(), StoreError> {
        if asked < self.oldest {
            Err(StoreError::Compacted { asked, oldest: self.oldest })
        } else {
            Ok(())
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.get_min().map(|((due, _), _)| *due)
    }

    // Writes.

    pub(super) fn commit(&mut self, txn: Txn) -> Result<Committed, StoreError> {
        shape::check(&txn)?;
        if !txn.compares.iter().all(|compare| self.holds(compare)) {
            let found = txn
                .compares
                .iter()
                .map(|compare| self.current.get(compare.key()).cloned())
                .collect();
            return Ok(Committed::Refused { revision: self.revision, found });
        }
        let due = txn.ttl.map(|ttl| shape::expiry(Instant::now(), ttl));
        Ok(Committed::Done(self.write(txn.ops, due)))
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent(key) => !self.current.contains_key(key),
            Compare::Modified(key, revision) => {
                self.current.get(key).is_some_and(|found| found.modified == *revision)
            }
        }
    }

    /// Applies the operations at the next revision. Returns the current revision if nothing
    /// changed.
    fn write(&mut self, ops: Vec<Op>, due: Option<Instant>) -> Revision {
        let revision = Revision(self.revision.0 + 1);
        let mut changes = Vec::with_capacity(ops.len());
        for op in ops {
            match op {
                Op::Put(key, value) => {
                    let created = self.current.get(&key).map_or(revision, |found| found.created);
                    let entry = KeyValue {
                        key: key.clone(),
                        value: value.clone(),
                        modified: revision,
                        created,
                    };
                    let previous = self.current.insert(key.clone(), entry);
                    if let Some(due) = due {
                        self.expiries.insert((due, key.clone()), revision);
                    }
                    changes.push(Change { revision, key, value: Some(value), previous });
                }
                Op::Delete(key) => {
                    if let Some(previous) = self.current.remove(&key) {
                        changes.push(Change {
                            revision,
                            key,
                            value: None,
                            previous: Some(previous),
                        });
                    }
                }
            }
        }
        if changes.is_empty() {
            return self.revision;
        }
        self.revision = revision;
        self.history_bytes += bytes_of(&changes);
        let now = Instant::now();
        self.history.push_back(Commit { changes: changes.into(), at: now });
        if revision.0.is_multiple_of(KEYFRAME_REVISIONS) {
            self.keyframes.insert(revision.0, self.current.clone());
        }
        while self.history.len() > self.options.history_revisions_max
            || self.history_bytes > self.options.history_bytes_max && !self.history.is_empty()
        {
            self.forget_oldest();
        }
        for _ in 0..FORGOTTEN_MAX {
            let is_old = |commit: &Commit| now - commit.at > self.options.history_age_max;
            if !self.history.front().is_some_and(is_old) {
                break;
            }
            self.forget_oldest();
        }
        revision
    }

    /// Deletes, with one commit, every expired value that was not written again.
    pub(super) fn expire(&mut self) {
        if self.expiries.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut ops = Vec::new();
        while let Some(((due, key), written)) = self.expiries.get_min().cloned() {
            if due > now {
                break;
            }
            self.expiries.remove(&(due, key.clone()));
            if self.current.get(&key).is_some_and(|found| found.modified == written) {
                ops.push(Op::Delete(key));
            }
        }
        self.write(ops, None);
    }

    // History.

    pub(super) fn check_compaction(&self, revision: Revision) -> Result<(), StoreError> {
        if revision > self.revision {
            return Err(StoreError::Future { asked: revision, current: self.revision });
        }
        self.check_retained(revision)
    }

    /// Drops history before a revision that exists, a bounded part of it. Returns whether more is
    /// left.
    pub(super) fn compact(&mut self, revision: Revision) -> bool {
        for _ in 0..SLICE {
            if self.oldest >= revision {
                return false;
            }
            self.forget_oldest();
        }
        self.oldest < revision
    }

    fn forget_oldest(&mut self) {
        if let Some(commit) = self.history.pop_front() {
            self.history_bytes -= bytes_of(&commit.changes);
            self.oldest.0 += 1;
            self.keyframes.remove(&(self.oldest.0 - 1));
        }
    }
}

/// The entries of one range of a map. Yields in between.
pub(super) async fn walk(map: &Map, request: &RangeRequest) -> Range {
    let end = if request.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&request.end) };
    if matches!(end, Bound::Excluded(end) if *end <= request.start) {
        return Range::default();
    }
    let mut range = Range::default();
    for (_, entry) in map.range::<_, Bytes>((Bound::Included(&request.start), end)) {
        range.count += 1;
        if range.count.is_multiple_of(SLICE) {
            // Cancel safe: the map is a copy.
            tokio::task::yield_now().await;
        }
        if request.limit == 0 || range.entries.len() < request.limit {
            range.entries.push(entry.clone());
        }
    }
    range
}

/// Every `part_keys`-th key of a range of a map, without the first key.
pub(super) fn divide(map: &Map, start: &[u8], end: &[u8], part_keys: usize) -> Vec<Bytes> {
    let upper = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
    if matches!(upper, Bound::Excluded(end) if end <= start) {
        return Vec::new();
    }
    let keys = map.range::<_, [u8]>((Bound::Included(start), upper)).map(|(key, _)| key);
    keys.step_by(part_keys.max(1)).skip(1).cloned().collect()
}

/// Bytes that a commit in history retains beyond the newest state.
fn bytes_of(changes: &[Change]) -> usize {
    changes
        .iter()
        .map(|change| {
            change.key.len() + change.previous.as_ref().map_or(0, |previous| previous.value.len())
        })
        .sum()
}
