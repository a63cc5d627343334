//! Keys with all their versions since the last compaction, and the history of changes.

use crate::grpc::Status;
use crate::lease::Leases;
use crate::proto::{KeyValue, RangeRequest, RangeResponse};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Approximate overhead of a version, without its key and value.
const VERSION_BYTES: usize = 200;

/// The state of a key from a revision on; `None`: it is deleted.
#[derive(Debug)]
struct Version {
    revision: i64,
    kv: Option<KeyValue>,
}

/// A change of one key. Several may have the same revision.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The new state; of a deleted key only key and revision.
    pub(crate) kv: KeyValue,
    pub(crate) previous: Option<KeyValue>,
    pub(crate) is_delete: bool,
}

/// Keys of a call: one, or a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    from: Bytes,
    to: Bound<Bytes>,
}

impl KeyRange {
    /// `end` as in the API: empty means only `key`, `\0` no upper bound.
    pub(crate) fn new(key: Bytes, end: Bytes) -> Self {
        let to = match &*end {
            [] => Bound::Included(key.clone()),
            [0] => Bound::Unbounded,
            _ => Bound::Excluded(end),
        };
        Self { from: key, to }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key
            && match &self.to {
                Bound::Included(to) => *key <= **to,
                Bound::Excluded(to) => *key < **to,
                Bound::Unbounded => true,
            }
    }

    /// Whether no key can be in it: its end is not behind its start.
    pub(crate) fn is_inverted(&self) -> bool {
        matches!(&self.to, Bound::Excluded(to) if *to <= self.from)
    }

    /// For ordered maps, which refuse inverted ranges.
    fn bounds(&self) -> Option<(Bound<&Bytes>, Bound<&Bytes>)> {
        (!self.is_inverted()).then_some((Bound::Included(&self.from), self.to.as_ref()))
    }
}

/// All data.
#[derive(Debug)]
pub(crate) struct Keyspace {
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
    keys: BTreeMap<Bytes, Vec<Version>>,
    history: VecDeque<Change>,
    pub(crate) leases: Leases,
    /// Of all versions.
    pub(crate) n_bytes: usize,
    quota_bytes: usize,
}

impl Keyspace {
    pub(crate) fn new(quota_bytes: usize) -> Self {
        Self {
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            history: VecDeque::new(),
            leases: Leases::default(),
            n_bytes: 0,
            quota_bytes,
        }
    }

    /// Whether so many bytes more fit.
    pub(crate) fn check_space(&self, n_bytes: usize) -> Result<(), Status> {
        match self.n_bytes.saturating_add(n_bytes) > self.quota_bytes {
            true => Err(Status::no_space()),
            false => Ok(()),
        }
    }

    /// The newest state of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&KeyValue> {
        self.keys.get(key)?.last()?.kv.as_ref()
    }

    /// The keys of a range at a revision, in order.
    fn at<'a>(
        &'a self,
        range: &'a KeyRange,
        revision: i64,
    ) -> impl Iterator<Item = &'a KeyValue> + 'a {
        let versions = range.bounds().map(|bounds| self.keys.range::<Bytes, _>(bounds));
        versions.into_iter().flatten().filter_map(move |(_, versions)| {
            let n = versions.partition_point(|version| version.revision <= revision);
            versions.get(n.checked_sub(1)?)?.kv.as_ref()
        })
    }

    /// The newest states of the keys of a range.
    pub(crate) fn newest<'a>(
        &'a self,
        range: &'a KeyRange,
    ) -> impl Iterator<Item = &'a KeyValue> + 'a {
        self.at(range, i64::MAX)
    }

    /// Whether a revision can be read.
    pub(crate) fn check_revision(&self, revision: i64) -> Result<(), Status> {
        if revision > self.revision {
            return Err(Status::future_revision());
        }
        if revision > 0 && revision < self.compacted {
            return Err(Status::compacted());
        }
        Ok(())
    }

    /// Answers a range. Includes writes of the transaction that is being applied.
    pub(crate) fn range(&self, call: &RangeRequest) -> Result<RangeResponse, Status> {
        self.check_revision(call.revision)?;
        let revision = if call.revision <= 0 { i64::MAX } else { call.revision };
        let range = KeyRange::new(call.key.clone(), call.range_end.clone());
        let mut answer = RangeResponse::default();
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        if call.count_only {
            answer.count = count(self.at(&range, revision).count());
            return Ok(answer);
        }
        let limit = usize::try_from(call.limit).unwrap_or(0);
        let limit = if limit == 0 { usize::MAX } else { limit };
        let within = |min: i64, max: i64, n: i64| (min == 0 || n >= min) && (max == 0 || n <= max);
        let is_wanted = |kv: &KeyValue| {
            within(call.min_mod_revision, call.max_mod_revision, kv.mod_revision)
                && within(call.min_create_revision, call.max_create_revision, kv.create_revision)
        };
        // By key, ascending, they come by themselves.
        let is_sorted = call.sort_target != 0 || call.sort_order == 2;
        let mut found: Vec<&KeyValue> = Vec::new();
        let mut n = 0_usize;
        for kv in self.at(&range, revision) {
            n += 1;
            // The count goes on behind the limit.
            if is_wanted(kv) && (is_sorted || found.len() <= limit) {
                found.push(kv);
            }
        }
        if is_sorted {
            match call.sort_target {
                1 => found.sort_by_key(|kv| kv.version),
                2 => found.sort_by_key(|kv| kv.create_revision),
                3 => found.sort_by_key(|kv| kv.mod_revision),
                4 => found.sort_by(|a, b| a.value.cmp(&b.value)),
                _ => {}
            }
            if call.sort_order == 2 {
                found.reverse();
            }
        }
        answer.count = count(n);
        answer.more = found.len() > limit;
        found.truncate(limit);
        answer.kvs = found.into_iter().cloned().collect();
        if call.keys_only {
            for kv in &mut answer.kvs {
                kv.value = Bytes::new();
            }
        }
        Ok(answer)
    }

    /// Writes a key at the next revision.
    pub(crate) fn write(&mut self, key: Bytes, value: Bytes, lease: i64) -> Option<KeyValue> {
        let revision = self.revision + 1;
        let previous = self.get(&key).cloned();
        let (create_revision, version) = match &previous {
            Some(kv) => (kv.create_revision, kv.version + 1),
            None => (revision, 1),
        };
        let kv = KeyValue {
            key: key.clone(),
            create_revision,
            mod_revision: revision,
            version,
            value,
            lease,
        };
        if let Some(previous) = &previous {
            self.leases.detach(previous.lease, &key);
        }
        self.leases.attach(lease, &key);
        self.push(key, Version { revision, kv: Some(kv.clone()) });
        self.history.push_back(Change { kv, previous: previous.clone(), is_delete: false });
        previous
    }

    /// Deletes the keys of a range at the next revision; returns their last states.
    pub(crate) fn delete(&mut self, range: &KeyRange) -> Vec<KeyValue> {
        let revision = self.revision + 1;
        let deleted: Vec<KeyValue> = self.newest(range).cloned().collect();
        for previous in &deleted {
            let key = previous.key.clone();
            self.leases.detach(previous.lease, &key);
            self.push(key.clone(), Version { revision, kv: None });
            let kv = KeyValue { key, mod_revision: revision, ..KeyValue::default() };
            self.history.push_back(Change {
                kv,
                previous: Some(previous.clone()),
                is_delete: true,
            });
        }
        deleted
    }

    fn push(&mut self, key: Bytes, version: Version) {
        self.n_bytes += cost(&key, &version);
        self.keys.entry(key).or_default().push(version);
    }

    /// Deletes the keys of leases that have ended, at one revision for each lease.
    pub(crate) fn end_leases(&mut self, ended: Vec<Vec<Bytes>>) {
        for keys in ended {
            let mut n = 0;
            for key in keys {
                n += self.delete(&KeyRange::new(key, Bytes::new())).len();
            }
            if n > 0 {
                self.revision += 1;
            }
        }
    }

    /// Forgets all versions that no read at `revision` or later needs.
    pub(crate) fn compact(&mut self, revision: i64) -> Result<(), Status> {
        if revision > self.revision {
            return Err(Status::future_revision());
        }
        if revision <= self.compacted {
            return Err(Status::compacted());
        }
        self.compacted = revision;
        let n_bytes = &mut self.n_bytes;
        self.keys.retain(|key, versions| {
            let n = versions.partition_point(|version| version.revision <= revision);
            // The last of those stays, unless it is a deletion.
            let keeps = versions.get(n.wrapping_sub(1)).is_some_and(|last| last.kv.is_some());
            let n_gone = if keeps { n - 1 } else { n };
            for gone in versions.drain(..n_gone) {
                *n_bytes = n_bytes.saturating_sub(cost(key, &gone));
            }
            !versions.is_empty()
        });
        let n = self.history.partition_point(|change| change.kv.mod_revision < revision);
        self.history.drain(..n);
        Ok(())
    }

    /// The changes from a revision on, complete revisions only.
    pub(crate) fn changes_from(&self, revision: i64) -> impl Iterator<Item = &Change> {
        let n = self.history.partition_point(|change| change.kv.mod_revision < revision);
        self.history.range(n..).take_while(|change| change.kv.mod_revision <= self.revision)
    }
}

fn cost(key: &Bytes, version: &Version) -> usize {
    VERSION_BYTES + key.len() + version.kv.as_ref().map_or(0, |kv| kv.value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(keys: &mut Keyspace, key: &'static str, value: &'static str) {
        keys.write(key.into(), value.into(), 0);
        keys.revision += 1;
    }

    fn range(keys: &Keyspace, revision: i64) -> Result<Vec<String>, Status> {
        let all = ("\0".into(), "\0".into());
        let call = RangeRequest { key: all.0, range_end: all.1, revision, ..Default::default() };
        let text = |kv: &KeyValue| format!("{}={}@{}", show(&kv.key), show(&kv.value), kv.version);
        Ok(keys.range(&call)?.kvs.iter().map(text).collect())
    }

    fn show(bytes: &Bytes) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn past_revisions_are_read_until_they_are_compacted() {
        let mut keys = Keyspace::new(1 << 20);
        put(&mut keys, "a", "1");
        put(&mut keys, "b", "1");
        put(&mut keys, "a", "2");
        keys.delete(&KeyRange::new("b".into(), Bytes::new()));
        keys.revision += 1;
        assert_eq!(keys.revision, 5);
        assert_eq!(range(&keys, 3).unwrap(), ["a=1@1", "b=1@1"]);
        assert_eq!(range(&keys, 4).unwrap(), ["a=2@2", "b=1@1"]);
        assert_eq!(range(&keys, 0).unwrap(), ["a=2@2"]);
        assert_eq!(range(&keys, 6).unwrap_err(), Status::future_revision());
        let before = keys.n_bytes;
        keys.compact(4).unwrap();
        assert_eq!(range(&keys, 3).unwrap_err(), Status::compacted());
        assert_eq!(range(&keys, 4).unwrap(), ["a=2@2", "b=1@1"]);
        keys.compact(5).unwrap();
        assert_eq!(range(&keys, 5).unwrap(), ["a=2@2"]);
        assert!(keys.n_bytes < before && keys.keys.len() == 1);
        assert_eq!(keys.compact(5).unwrap_err(), Status::compacted());
        assert_eq!(keys.changes_from(0).count(), 1, "history ends at the compaction");
    }

    #[test]
    fn ranges_are_those_of_the_api() {
        let range = |key: &'static str, end: &'static str| KeyRange::new(key.into(), end.into());
        assert!(range("a", "").contains(b"a") && !range("a", "").contains(b"ab"));
        assert!(range("a", "b").contains(b"ab") && !range("a", "b").contains(b"b"));
        assert!(range("b", "\0").contains(b"z") && !range("b", "\0").contains(b"a"));
        let mut keys = Keyspace::new(1 << 20);
        put(&mut keys, "a", "1");
        assert_eq!(keys.newest(&range("b", "a")).count(), 0, "an inverted range is empty");
    }
}
