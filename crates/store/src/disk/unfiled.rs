//! Commits that are in the journal and not yet in redb's file.
//!
//! They are also the newest commits in memory ([`published`](super::published)), so their values
//! are read there. Here are the records, and the places that the next commits of these keys need.

use bytes::Bytes;
use redb::ReadTransaction;
use std::collections::HashMap;

use super::{
    apply::{Rows, Version},
    batch::{Scratch, read_entry},
    error::Fault,
    journal::Entry,
    layout::{KEYS, KeyRow, LOG, Place},
};
use crate::contract::*;

/// Maximum number of records. The transaction that moves them into the file dirties a page for
/// each, and other commits wait for it.
const RECORDS_MAX: usize = 512;
/// Maximum bytes of their changes, with the values that they replaced: half of what
/// [`published`](super::published) keeps in memory.
const BYTES_MAX: usize = 8 << 20;

/// The commits, and the newest place of each of their keys.
#[derive(Debug, Default)]
pub(super) struct Unfiled {
    pub(super) entries: Vec<Entry>,
    places: HashMap<Bytes, Place>,
    n_records: usize,
    n_bytes: usize,
}

impl Unfiled {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is room for more records.
    pub(super) fn has_room(&self, n_records: usize) -> bool {
        self.n_records + n_records <= RECORDS_MAX
    }

    /// Whether there is room for a batch, with its `n_bytes` of changes.
    pub(super) fn has_room_for(&self, draft: &Draft<'_>, n_bytes: usize) -> bool {
        self.has_room(draft.n_records()) && self.n_bytes + n_bytes <= BYTES_MAX
    }

    /// Adds a batch that is in the journal.
    pub(super) fn add(&mut self, (entries, places): Drafted, n_bytes: usize) {
        self.n_records += entries.iter().map(|entry| entry.records.len()).sum::<usize>();
        self.n_bytes += n_bytes;
        self.entries.extend(entries);
        self.places.extend(places);
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
        match self.places.get(key).or_else(|| self.unfiled.places.get(key)) {
            Some(place) => Ok(Some(*place)),
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
