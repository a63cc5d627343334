//! Commits that are in the journal and not yet in redb's file.
//!
//! They are in at most two laps: the current one, which batches are added to, and the one before,
//! which is *sealed* and being moved into the file. They are also the newest commits in memory
//! ([`published`](super::published)), so their values are read there. Here are the records, and the
//! places that the next commits of these keys need.

use bytes::Bytes;
use redb::ReadTransaction;
use std::{collections::HashMap, sync::Arc};

use super::{
    apply::{Rows, Version},
    batch::{Scratch, read_entry},
    error::Fault,
    journal::Entry,
    layout::{KEYS, KeyRow, LOG, Place},
    published::TAIL_BYTES_MAX,
};
use crate::contract::*;

/// Maximum number of records in a lap. The transaction that moves them into the file dirties a page
/// for each, and reads of the file pass the commits of both laps.
pub(super) const RECORDS_MAX: usize = 512;
/// Maximum bytes of a lap's changes, with the values that they replaced. Those of both laps must
/// stay in memory.
const BYTES_MAX: usize = TAIL_BYTES_MAX / 2;

/// The commits of a lap, and the newest place of each of their keys.
#[derive(Debug, Default)]
pub(super) struct Lap {
    pub(super) entries: Vec<Entry>,
    places: HashMap<Bytes, Place>,
    n_records: usize,
    n_bytes: usize,
}

/// The commits of the journal that are not in the file.
#[derive(Debug)]
pub(super) struct Unfiled {
    /// Maximum number of records in a lap.
    records_max: usize,
    /// The lap before the current one, until it is in the file. Never empty.
    sealed: Option<Arc<Lap>>,
    current: Lap,
}

impl Unfiled {
    pub(super) fn new(records_max: usize) -> Self {
        Self { records_max, sealed: None, current: Lap::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sealed.is_none() && self.current.entries.is_empty()
    }

    /// The commits, oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let sealed = self.sealed.iter().flat_map(|lap| &lap.entries);
        sealed.chain(&self.current.entries)
    }

    /// Whether an empty lap has room for a number of records.
    pub(super) fn may_have_room(&self, n_records: usize) -> bool {
        n_records <= self.records_max
    }

    /// Whether the current lap has room for more records.
    pub(super) fn has_room(&self, n_records: usize) -> bool {
        self.current.n_records + n_records <= self.records_max
    }

    /// Whether the current lap has room for a batch, with its `n_bytes` of changes.
    pub(super) fn has_room_for(&self, draft: &Draft<'_>, n_bytes: usize) -> bool {
        self.has_room(draft.n_records()) && self.current.n_bytes + n_bytes <= BYTES_MAX
    }

    /// Adds a batch that is in the journal.
    pub(super) fn add(&mut self, (entries, places): Drafted, n_bytes: usize) {
        let lap = &mut self.current;
        lap.n_records += entries.iter().map(|entry| entry.records.len()).sum::<usize>();
        lap.n_bytes += n_bytes;
        lap.entries.extend(entries);
        lap.places.extend(places);
    }

    /// Seals the current lap, and begins the next one. Returns the sealed lap, with its last
    /// revision. `None` if the lap is empty, or the lap before it is not in the file.
    pub(super) fn seal(&mut self) -> Option<(Arc<Lap>, u64)> {
        let end = self.current.entries.last().filter(|_| self.sealed.is_none())?.revision;
        let lap = Arc::new(std::mem::take(&mut self.current));
        Some((self.sealed.insert(lap).clone(), end))
    }

    /// Forgets the commits that are in the file, which is at a revision. Returns whether commits of
    /// the current lap are left.
    ///
    /// A transaction of the file has either the sealed lap or both.
    pub(super) fn filed(&mut self, revision: u64) -> bool {
        let is_left = self.is_sealed_up_to(revision) && !self.current.entries.is_empty();
        self.sealed = None;
        if !is_left {
            self.current = Lap::default();
        }
        is_left
    }

    /// Whether the sealed lap ends at a revision.
    pub(super) fn is_sealed_up_to(&self, revision: u64) -> bool {
        let sealed = self.sealed.as_ref().and_then(|lap| lap.entries.last());
        sealed.is_some_and(|newest| newest.revision == revision)
    }

    fn place(&self, key: &[u8]) -> Option<Place> {
        let of = |lap: &Lap| lap.places.get(key).copied();
        of(&self.current).or_else(|| of(self.sealed.as_ref()?))
    }
}

/// The entries of a batch, and the places of its keys.
pub(super) type Drafted = (Vec<Entry>, HashMap<Bytes, Place>);

/// The tables of redb's file that a draft reads.
pub(super) struct FileTables {
    keys: redb::ReadOnlyTable<&'static [u8], KeyRow>,
    log: redb::ReadOnlyTable<(u64, u32), &'static [u8]>,
}

impl FileTables {
    pub(super) fn of(snapshot: &ReadTransaction) -> Result<Self, Fault> {
        Ok(Self { keys: snapshot.open_table(KEYS)?, log: snapshot.open_table(LOG)? })
    }
}

/// A batch before it is in the journal: what it writes, over the commits that are not in the file,
/// over the file.
pub(super) struct Draft<'a> {
    file: &'a FileTables,
    unfiled: &'a Unfiled,
    scratch: &'a mut Scratch,
    revision: u64,
    entries: Vec<Entry>,
    places: HashMap<Bytes, Place>,
    written: HashMap<Bytes, KeyValue>,
    /// Of the commit that is being applied.
    records: Vec<Vec<u8>>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        file: &'a FileTables,
        unfiled: &'a Unfiled,
        scratch: &'a mut Scratch,
        revision: u64,
    ) -> Self {
        Self {
            file,
            unfiled,
            scratch,
            revision,
            entries: Vec::new(),
            places: HashMap::new(),
            written: HashMap::new(),
            records: Vec::new(),
        }
    }

    fn n_records(&self) -> usize {
        self.entries.iter().map(|entry| entry.records.len()).sum()
    }

    pub(super) fn into_drafted(self) -> Drafted {
        (self.entries, self.places)
    }
}

impl Rows for Draft<'_> {
    fn revision(&self) -> u64 {
        self.revision
    }

    fn place(&self, key: &[u8]) -> Result<Option<Place>, Fault> {
        match self.places.get(key).copied().or_else(|| self.unfiled.place(key)) {
            Some(place) => Ok(Some(place)),
            None => Ok(self.file.keys.get(key)?.map(|row| Place::of(row.value()))),
        }
    }

    fn written(&self, key: &[u8]) -> Option<KeyValue> {
        self.written.get(key).cloned()
    }

    fn read(&mut self, key: Bytes, place: Place) -> Result<KeyValue, Fault> {
        read_entry(&self.file.log, key, place, &mut self.scratch.unpacker)
    }

    fn put(&mut self, version: &Version<'_>) -> Result<(), Fault> {
        let mut record = Vec::new();
        version.encode(&mut record, &mut self.scratch.packer);
        self.records.push(record);
        self.places.insert(version.key.clone(), version.place());
        match version.entry() {
            Some(entry) => _ = self.written.insert(version.key.clone(), entry),
            None => _ = self.written.remove(version.key),
        }
        Ok(())
    }

    fn committed(&mut self, revision: u64, expires_ms: u64) {
        let records = std::mem::take(&mut self.records);
        self.entries.push(Entry { revision, expires_ms, records });
        self.revision = revision;
    }
}
