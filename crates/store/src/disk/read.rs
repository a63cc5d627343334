//! Reads of the file, on blocking threads.

use bytes::Bytes;
use redb::{ReadTransaction, ReadableTable};
use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use super::{
    batch::{Position, entry, read_entry},
    error::Fault,
    layout::{Damaged, EXPIRING, KEYS, LOG, Place, Record},
    pack::{Unpacker, Unpackers},
    published::Published,
};
use crate::contract::*;

/// Maximum bytes of values in one batch of a feed. The first commit may exceed it.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Maximum distance in revisions between two records at which the log is scanned to the next one
/// instead of looking it up. Skipping a record takes about a tenth of a lookup.
const READ_ON_MAX: usize = 4;

/// A snapshot of the store: of the file, and the commits that are not in it.
#[derive(Clone)]
pub(super) struct View {
    pub(super) snapshot: Arc<ReadTransaction>,
    pub(super) position: Position,
    /// The revision of the file.
    filed: u64,
    /// The commits after it.
    unfiled: Vec<Arc<[Change]>>,
    unpackers: Arc<Unpackers>,
}

/// A value with a time to live.
pub(super) struct Expiring {
    pub(super) key: Bytes,
    /// Expiry time, in milliseconds since 1970.
    pub(super) expires_ms: u64,
    /// The revision that must still be the key's last change.
    pub(super) written: Revision,
}

impl View {
    /// The newest acknowledged state. `None` if the file is closed or has failed.
    pub(super) fn of(published: &Published) -> Option<Self> {
        let snapshot = published.snapshot.clone()?;
        let unpackers = published.unpackers.clone();
        let (position, unfiled) = (published.position, published.unfiled()?);
        Some(Self { snapshot, position, filed: published.file().revision, unfiled, unpackers })
    }

    /// The newest state that is in the file as a whole.
    pub(super) fn of_file(published: &Published) -> Option<Self> {
        let (snapshot, position) = (published.snapshot.clone()?, published.file());
        let (filed, unpackers) = (position.revision, published.unpackers.clone());
        Some(Self { snapshot, position, filed, unfiled: Vec::new(), unpackers })
    }

    /// A view of a file that no store serves.
    pub(super) fn unserved(snapshot: ReadTransaction, position: Position) -> Self {
        let (snapshot, filed) = (Arc::new(snapshot), position.revision);
        Self { snapshot, position, filed, unfiled: Vec::new(), unpackers: Arc::default() }
    }

    /// Every value with a time to live.
    pub(super) fn expiring(&self) -> Result<Vec<Expiring>, Fault> {
        let table = self.snapshot.open_table(EXPIRING)?;
        let mut expiring = Vec::new();
        for row in table.iter()? {
            let (place, written) = row?;
            let (expires_ms, key) = place.value();
            let (key, written) = (Bytes::copy_from_slice(key), Revision(written.value()));
            expiring.push(Expiring { key, expires_ms, written });
        }
        Ok(expiring)
    }

    fn check(&self, at: At) -> Result<(), StoreError> {
        let At::Exactly(asked) = at else { return Ok(()) };
        let oldest = Revision(self.position.oldest);
        let current = Revision(self.position.revision);
        if asked < oldest {
            return Err(StoreError::Compacted { asked, oldest });
        }
        if asked > current {
            return Err(StoreError::Future { asked, current });
        }
        Ok(())
    }

    /// The changes that are not in the file, up to a revision, oldest first.
    fn unfiled(&self, at: At) -> impl DoubleEndedIterator<Item = &Change> {
        let is_asked = move |change: &&Change| match at {
            At::Latest => true,
            At::Exactly(asked) => change.revision <= asked,
        };
        self.unfiled.iter().flat_map(|commit| commit.iter()).filter(is_asked)
    }

    pub(super) fn get(&self, key: &[u8], at: At) -> Result<Option<KeyValue>, Fault> {
        self.check(at)?;
        if let Some(change) = self.unfiled(at).rfind(|change| change.key == key) {
            return Ok(entry_of(change));
        }
        let keys = self.snapshot.open_table(KEYS)?;
        let Some(place) = keys.get(key)?.map(|row| Place::of(row.value())) else { return Ok(None) };
        let log = self.snapshot.open_table(LOG)?;
        let Some(place) = place_at(&log, place, at)? else { return Ok(None) };
        let key = Bytes::copy_from_slice(key);
        self.unpackers.with(|unpacker| read_entry(&log, key, place, unpacker)).map(Some)
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<Range, Fault> {
        self.check(request.at)?;
        let mut range = Range::default();
        if !request.end.is_empty() && request.end <= request.start {
            return Ok(range);
        }
        let keys = self.snapshot.open_table(KEYS)?;
        let log = self.snapshot.open_table(LOG)?;
        let start = Bound::Included(&request.start[..]);
        let end = match &request.end[..] {
            [] => Bound::Unbounded,
            end => Bound::Excluded(end),
        };
        let newer: BTreeMap<&[u8], &Change> = self
            .unfiled(request.at)
            .filter(|change| {
                change.key >= request.start && (request.end.is_empty() || change.key < request.end)
            })
            .map(|change| (&change.key[..], change))
            .collect();
        let is_wanted = |n_found: usize| request.limit == 0 || n_found < request.limit;
        let mut found = Vec::new();
        for row in keys.range::<&[u8]>((start, end))? {
            let (key, place) = row?;
            if newer.contains_key(key.value()) {
                continue;
            }
            if let Some(place) = place_at(&log, Place::of(place.value()), request.at)? {
                range.count += 1;
                if is_wanted(found.len()) {
                    found.push((Bytes::copy_from_slice(key.value()), place));
                }
            }
        }
        range.entries = self.unpackers.with(|unpacker| read_entries(&log, found, unpacker))?;
        let newer: Vec<_> = newer.into_values().filter_map(entry_of).collect();
        if !newer.is_empty() {
            range.count += newer.len();
            range.entries.extend(newer);
            // Two sorted parts, which a stable sort merges.
            range.entries.sort_by(|a, b| a.key.cmp(&b.key));
            if request.limit != 0 {
                range.entries.truncate(request.limit);
            }
        }
        Ok(range)
    }

    /// Every `part_keys`-th key of `[start, end)`.
    pub(super) fn divide(
        &self,
        start: &[u8],
        end: &[u8],
        part_keys: usize,
    ) -> Result<Vec<Bytes>, Fault> {
        if !end.is_empty() && end <= start {
            return Ok(Vec::new());
        }
        let keys = self.snapshot.open_table(KEYS)?;
        let end = match end {
            [] => Bound::Unbounded,
            end => Bound::Excluded(end),
        };
        let part_keys = part_keys.max(1);
        let mut starts = Vec::new();
        for (n, row) in keys.range::<&[u8]>((Bound::Included(start), end))?.enumerate() {
            if n > 0 && n.is_multiple_of(part_keys) {
                starts.push(Bytes::copy_from_slice(row?.0.value()));
            } else {
                row?;
            }
        }
        Ok(starts)
    }

    /// The changes of keys under `prefix` after a revision, at most `n` commits.
    ///
    /// Fails if history is compacted past the revision: the caller checked an earlier state.
    pub(super) fn changes(&self, prefix: &[u8], after: u64, n: u64) -> Result<Batch, Fault> {
        self.check(At::Exactly(Revision(after)))?;
        self.unpackers.with(|unpacker| self.changes_with(unpacker, prefix, after, n))
    }

    fn changes_with(
        &self,
        unpacker: &mut Unpacker,
        prefix: &[u8],
        after: u64,
        n: u64,
    ) -> Result<Batch, Fault> {
        let log = self.snapshot.open_table(LOG)?;
        // Later commits are in memory.
        let mut last = self.filed.min(after + n);
        let (mut changes, mut n_bytes) = (Vec::new(), 0);
        for row in log.range((after + 1, 0)..=(last, u32::MAX))? {
            let (at, bytes) = row?;
            let at = at.value();
            if n_bytes > BATCH_BYTES_MAX
                && changes.last().is_some_and(|last: &Change| last.revision.0 < at.0)
            {
                last = at.0 - 1;
                break;
            }
            let record = Record::decode(bytes.value()).map_err(|damage| damage.at(at))?;
            if !record.key.starts_with(prefix) {
                continue;
            }
            let previous = match record.replaced {
                // A new key, or one created again after a deletion, has no previous value.
                _ if record.created == at.0 => None,
                replaced => {
                    let missing = Damaged("it is missing").at(replaced);
                    let old = log.get(replaced)?.ok_or(missing)?;
                    let old = Record::decode(old.value()).map_err(|damage| damage.at(replaced))?;
                    old.value(unpacker).map_err(|damage| damage.at(replaced))?.map(|value| {
                        KeyValue {
                            key: Bytes::copy_from_slice(record.key),
                            value,
                            modified: Revision(replaced.0),
                            created: Revision(old.created),
                        }
                    })
                }
            };
            let value = record.value(unpacker).map_err(|damage| damage.at(at))?;
            n_bytes += value.as_ref().map_or(0, Bytes::len);
            n_bytes += previous.as_ref().map_or(0, |previous: &KeyValue| previous.value.len());
            let key = Bytes::copy_from_slice(record.key);
            changes.push(Change { revision: Revision(at.0), key, value, previous });
        }
        Ok(Batch { changes, revision: Revision(last) })
    }
}

/// The key's state after a change. `None` if it was deleted.
pub(super) fn entry_of(change: &Change) -> Option<KeyValue> {
    let created = change.previous.as_ref().map_or(change.revision, |previous| previous.created);
    Some(KeyValue {
        key: change.key.clone(),
        value: change.value.clone()?,
        modified: change.revision,
        created,
    })
}

/// Where a key's version at a revision is, if the key has a value then. Follows the chain of
/// versions back from the newest.
fn place_at(
    log: &impl ReadableTable<(u64, u32), &'static [u8]>,
    place: Place,
    at: At,
) -> Result<Option<Place>, Fault> {
    let asked = match at {
        At::Exactly(asked) if place.modified() > asked => asked.0,
        _ => return Ok(Some(place).filter(|place| !place.is_deleted())),
    };
    let mut at = place.at;
    loop {
        // A missing record was a deletion before the oldest retained revision.
        let Some(bytes) = log.get(at)? else { return Ok(None) };
        let record = Record::decode(bytes.value()).map_err(|damage| damage.at(at))?;
        if at.0 <= asked {
            let place = Place { at, created: record.created, expires_ms: 0 };
            return Ok(Some(place).filter(|place| !place.is_deleted()));
        }
        if record.replaced.0 == 0 {
            return Ok(None);
        }
        at = record.replaced;
    }
}

/// Reads the values of keys and returns them in the order of the keys. It reads in log order, so
/// that each page is looked up once. Where records are close together, as after a bulk load, it
/// scans the log instead.
fn read_entries(
    log: &impl ReadableTable<(u64, u32), &'static [u8]>,
    found: Vec<(Bytes, Place)>,
    unpacker: &mut Unpacker,
) -> Result<Vec<KeyValue>, Fault> {
    let mut found: Vec<_> = found.into_iter().enumerate().collect();
    let is_sorted = found.is_sorted_by_key(|(_, (_, place))| place.at);
    if !is_sorted {
        found.sort_unstable_by_key(|(_, (_, place))| place.at);
    }
    let mut entries = Vec::with_capacity(found.len());
    let places = found.first().zip(found.last());
    let (first, last) = places
        .map_or_else(Default::default, |((_, (_, first)), (_, (_, last)))| (first.at, last.at));
    let n_revisions = usize::try_from(last.0 - first.0).unwrap_or(usize::MAX);
    if found.len() > 1 && n_revisions / READ_ON_MAX < found.len() {
        let mut rows = log.range(first..=last)?;
        for (rank, (key, place)) in found {
            let row = loop {
                match rows.next().transpose()? {
                    Some((at, _)) if at.value() < place.at => {}
                    row => break row.filter(|(at, _)| at.value() == place.at),
                }
            };
            let missing = || Damaged("it is missing").at(place.at).of_key(&key);
            let (_, bytes) = row.ok_or_else(missing)?;
            entries.push((rank, entry(bytes.value(), key, place, unpacker)?));
        }
    } else {
        for (rank, (key, place)) in found {
            entries.push((rank, read_entry(log, key, place, unpacker)?));
        }
    }
    if !is_sorted {
        entries.sort_unstable_by_key(|(rank, _)| *rank);
    }
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}
