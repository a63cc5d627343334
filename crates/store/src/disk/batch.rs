//! One write transaction of the engine: many commits, one sync.

use bytes::Bytes;
use redb::{ReadTransaction, ReadableTable, Table, WriteTransaction};
use std::collections::HashMap;

use super::{
    apply::{Rows, Version},
    error::Fault,
    journal::Entry,
    layout::{Damaged, EXPIRING, KEYS, KeyRow, LOG, META, Place, Record, name},
    pack::{Packer, Unpacker},
};
use crate::contract::*;

/// How many records a step of compaction looks at for each that it may drop. To look at one takes a
/// few microseconds, to drop one several times that.
const LOOKED_AT: usize = 4;

/// The tables of a write transaction, and the store's position at its end.
pub(super) struct BatchTables<'t> {
    keys: Table<'t, &'static [u8], KeyRow>,
    log: Table<'t, (u64, u32), &'static [u8]>,
    expiring: Table<'t, (u64, &'static [u8]), u64>,
    meta: Table<'t, &'static str, u64>,
    pub(super) now: Position,
    /// Values written in this batch, which need no unpacking.
    written: HashMap<Bytes, KeyValue>,
    scratch: &'t mut Scratch,
}

/// Buffers that batches reuse.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) packer: Packer,
    pub(super) unpacker: Unpacker,
    record: Vec<u8>,
}

/// Position of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) revision: u64,
    pub(super) oldest: u64,
    /// Bytes of replaced records, retained as history.
    pub(super) superseded: u64,
}

/// The store's position after a transaction, and a snapshot of the file at that position.
pub(super) type Synced = (Position, ReadTransaction);

impl<'t> BatchTables<'t> {
    pub(super) fn open(
        transaction: &'t WriteTransaction,
        now: Position,
        scratch: &'t mut Scratch,
    ) -> Result<Self, Fault> {
        Ok(Self {
            keys: transaction.open_table(KEYS)?,
            log: transaction.open_table(LOG)?,
            expiring: transaction.open_table(EXPIRING)?,
            meta: transaction.open_table(META)?,
            now,
            written: HashMap::new(),
            scratch,
        })
    }

    /// Writes a commit of the journal.
    pub(super) fn file(&mut self, entry: &Entry) -> Result<(), Fault> {
        for (index, bytes) in (0..).zip(&entry.records) {
            let at = (entry.revision, index);
            let record = Record::decode(bytes).map_err(|damage| damage.at(at))?;
            let created = record.created;
            let expires_ms = if record.is_deletion() { 0 } else { entry.expires_ms };
            let place = Place { at, created, expires_ms };
            self.insert(place, record.key, record.replaced, bytes)?;
        }
        self.now.revision = entry.revision;
        Ok(())
    }

    fn insert(
        &mut self,
        place: Place,
        key: &[u8],
        replaced: (u64, u32),
        record: &[u8],
    ) -> Result<(), Fault> {
        if replaced.0 != 0
            && let Some(old) = self.log.get(replaced)?
        {
            self.now.superseded += old.value().len() as u64;
        }
        self.log.insert(place.at, record)?;
        let before = self.keys.insert(key, place.row())?.map(|row| Place::of(row.value()));
        if let Some(before) = before
            && before.expires_ms != 0
        {
            self.expiring.remove((before.expires_ms, key))?;
        }
        if place.expires_ms != 0 {
            self.expiring.insert((place.expires_ms, key), place.at.0)?;
        }
        Ok(())
    }

    /// Compacts history before `target`, or a part of it: about `records_max` dropped records, and
    /// [`LOOKED_AT`] times as many that it looks at, because new objects replace nothing.
    ///
    /// If it fails with [`Fault::Record`], nothing was written. Drops records that were replaced at
    /// or before the target, and deletions up to it. Drops whole transactions only, so that no
    /// revision is left incomplete.
    pub(super) fn compact(&mut self, target: u64, records_max: usize) -> Result<(), Fault> {
        let (mut dropped, mut deletions) = (Vec::new(), Vec::new());
        let (mut looking_at, mut reached) = (self.now.oldest, target);
        let looks_max = LOOKED_AT.saturating_mul(records_max);
        let log = self.log.range((self.now.oldest + 1, 0)..=(target, u32::MAX))?;
        for (n_looks, row) in log.enumerate() {
            let (at, bytes) = row?;
            let at = at.value();
            let is_enough = dropped.len() + deletions.len() >= records_max || n_looks >= looks_max;
            if at.0 != looking_at && is_enough {
                reached = at.0 - 1;
                break;
            }
            looking_at = at.0;
            let record = Record::decode(bytes.value()).map_err(|damage| damage.at(at))?;
            if record.replaced.0 != 0 {
                dropped.push(record.replaced);
            }
            if record.is_deletion() {
                deletions.push((Bytes::copy_from_slice(record.key), at));
            }
        }
        for at in dropped {
            self.drop_superseded(at)?;
        }
        for (key, at) in deletions {
            if self.place(&key)?.is_some_and(|place| place.at == at) {
                // The deletion is the newest record: nothing of the key remains.
                self.keys.remove(&key[..])?;
                self.log.remove(at)?;
            } else {
                self.drop_superseded(at)?;
            }
        }
        self.now.oldest = reached;
        Ok(())
    }

    fn drop_superseded(&mut self, at: (u64, u32)) -> Result<(), Fault> {
        if let Some(old) = self.log.remove(at)? {
            let n_bytes = old.value().len() as u64;
            self.now.superseded = self.now.superseded.saturating_sub(n_bytes);
        }
        Ok(())
    }

    /// Notes that everything is in the file, and the journal is not needed.
    pub(super) fn unmark_journal(&mut self) -> Result<(), Fault> {
        self.meta.remove(name::JOURNAL)?;
        Ok(())
    }

    /// Continues `gap` revisions later without history: a client that has seen a lost commit must
    /// not take another one for it.
    pub(super) fn skip_revisions(&mut self, gap: u64) -> Result<(), Fault> {
        if self.now.oldest < self.now.revision {
            // Unreadable history is retained.
            self.compact(self.now.revision, usize::MAX).or_else(Fault::not_of_a_record)?;
        }
        self.now.revision = self.now.revision.saturating_add(gap);
        self.now.oldest = self.now.revision;
        Ok(())
    }

    /// Writes the store's position. The last step before the transaction's commit.
    pub(super) fn close(mut self) -> Result<Position, Fault> {
        self.meta.insert(name::REVISION, self.now.revision)?;
        self.meta.insert(name::OLDEST, self.now.oldest)?;
        self.meta.insert(name::SUPERSEDED, self.now.superseded)?;
        Ok(self.now)
    }
}

impl Rows for BatchTables<'_> {
    fn revision(&self) -> u64 {
        self.now.revision
    }

    fn place(&self, key: &[u8]) -> Result<Option<Place>, Fault> {
        Ok(self.keys.get(key)?.map(|row| Place::of(row.value())))
    }

    fn written(&self, key: &[u8]) -> Option<KeyValue> {
        self.written.get(key).cloned()
    }

    fn read(&mut self, key: Bytes, place: Place) -> Result<KeyValue, Fault> {
        read_entry(&self.log, key, place, &mut self.scratch.unpacker)
    }

    fn put(&mut self, version: &Version<'_>) -> Result<(), Fault> {
        let mut record = std::mem::take(&mut self.scratch.record);
        version.encode(&mut record, &mut self.scratch.packer);
        let inserted = self.insert(version.place(), version.key, version.replaced(), &record);
        self.scratch.record = record;
        inserted?;
        match version.entry() {
            Some(entry) => _ = self.written.insert(version.key.clone(), entry),
            None => _ = self.written.remove(version.key),
        }
        Ok(())
    }

    fn committed(&mut self, revision: u64, _expires_ms: u64) {
        self.now.revision = revision;
    }
}

/// Reads the value at a place that is not a deletion.
pub(super) fn read_entry(
    log: &impl ReadableTable<(u64, u32), &'static [u8]>,
    key: Bytes,
    place: Place,
    unpacker: &mut Unpacker,
) -> Result<KeyValue, Fault> {
    let missing = || Damaged("it is missing").at(place.at).of_key(&key);
    let bytes = log.get(place.at)?.ok_or_else(missing)?;
    entry(bytes.value(), key, place, unpacker)
}

/// Decodes the value of a record at a place that is not a deletion.
pub(super) fn entry(
    record: &[u8],
    key: Bytes,
    place: Place,
    unpacker: &mut Unpacker,
) -> Result<KeyValue, Fault> {
    let at = |damage: Damaged| damage.at(place.at).of_key(&key);
    let record = Record::decode(record).map_err(at)?;
    if record.key != key {
        return Err(at(Damaged("it is another object's")));
    }
    let value = record.value(unpacker).map_err(at)?;
    let value = value.ok_or_else(|| at(Damaged("it is a deletion, and its key has a value")))?;
    Ok(KeyValue { key, value, modified: place.modified(), created: Revision(place.created) })
}
