//! One write transaction of the engine: many commits, one sync.

use bytes::Bytes;
use redb::{ReadableTable, Table, WriteTransaction};
use std::{collections::HashMap, sync::Arc};

use super::{
    error::Fault,
    layout::{Damaged, EXPIRING, KEYS, KeyRow, LOG, META, Place, Record, name},
    pack::{Packer, Unpacker},
};
use crate::contract::*;

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
    packer: Packer,
    unpacker: Unpacker,
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

/// The result of a commit.
pub(super) struct Applied {
    pub(super) committed: Committed,
    /// Empty if nothing changed.
    pub(super) changes: Arc<[Change]>,
}

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

    /// Applies a checked transaction. `latest` returns values that need not be read from the file.
    /// If it fails with [`Fault::Record`], nothing was written.
    pub(super) fn apply(
        &mut self,
        txn: Txn,
        expires_ms: u64,
        latest: impl Fn(&[u8], Revision) -> Option<KeyValue>,
    ) -> Result<Applied, Fault> {
        let refused = !txn
            .compares
            .iter()
            .try_fold(true, |holds, compare| Ok::<_, Fault>(holds && self.holds(compare)?))?;
        let revision = Revision(self.now.revision);
        if refused {
            let found = txn
                .compares
                .iter()
                .map(|compare| Ok(self.present(compare.key(), &latest)?.1))
                .collect::<Result<_, Fault>>()?;
            let committed = Committed::Refused { revision, found };
            return Ok(Applied { committed, changes: Arc::default() });
        }
        // All reads come before the first write, so that an unreadable record fails only this
        // transaction.
        let mut found = Vec::with_capacity(txn.ops.len());
        for op in &txn.ops {
            found.push(self.present(op.key(), &latest)?);
        }
        let next = Revision(revision.0 + 1);
        let mut changes = Vec::with_capacity(txn.ops.len());
        for (op, (place, previous)) in txn.ops.into_iter().zip(found) {
            let (key, value) = match op {
                Op::Put(key, value) => (key, Some(value)),
                Op::Delete(key) => (key, None),
            };
            if value.is_none() && previous.is_none() {
                continue;
            }
            let index = u32::try_from(changes.len()).unwrap_or(u32::MAX);
            self.put(next, index, &key, value.as_ref(), place, previous.as_ref(), expires_ms)?;
            changes.push(Change { revision: next, key, value, previous });
        }
        if changes.is_empty() {
            return Ok(Applied { committed: Committed::Done(revision), changes: Arc::default() });
        }
        self.now.revision = next.0;
        Ok(Applied { committed: Committed::Done(next), changes: changes.into() })
    }

    #[expect(clippy::too_many_arguments, reason = "one row and what it replaces")]
    fn put(
        &mut self,
        revision: Revision,
        index: u32,
        key: &Bytes,
        value: Option<&Bytes>,
        place: Option<Place>,
        previous: Option<&KeyValue>,
        expires_ms: u64,
    ) -> Result<(), Fault> {
        let created = match (value, previous) {
            (None, _) => 0,
            (Some(_), Some(previous)) => previous.created.0,
            (Some(_), None) => revision.0,
        };
        let replaced = place.map_or((0, 0), |place| place.at);
        if replaced.0 != 0
            && let Some(old) = self.log.get(replaced)?
        {
            self.now.superseded += old.value().len() as u64;
        }
        let Scratch { packer, record, .. } = &mut *self.scratch;
        Record::encode(record, packer, created, replaced, key, value.map(|value| &value[..]));
        self.log.insert((revision.0, index), &record[..])?;
        if let Some(place) = place
            && place.expires_ms != 0
        {
            self.expiring.remove((place.expires_ms, &key[..]))?;
        }
        let expires_ms = if value.is_some() { expires_ms } else { 0 };
        if expires_ms != 0 {
            self.expiring.insert((expires_ms, &key[..]), revision.0)?;
        }
        let place = Place { at: (revision.0, index), created, expires_ms };
        self.keys.insert(&key[..], place.row())?;
        match value {
            Some(value) => {
                let entry = KeyValue {
                    key: key.clone(),
                    value: value.clone(),
                    modified: revision,
                    created: Revision(created),
                };
                self.written.insert(key.clone(), entry);
            }
            None => _ = self.written.remove(key),
        }
        Ok(())
    }

    fn place(&self, key: &[u8]) -> Result<Option<Place>, Fault> {
        Ok(self.keys.get(key)?.map(|row| Place::of(row.value())))
    }

    fn holds(&self, compare: &Compare) -> Result<bool, Fault> {
        let place = self.place(compare.key())?.filter(|place| !place.is_deleted());
        Ok(match compare {
            Compare::Absent(_) => place.is_none(),
            Compare::Modified(_, revision) => {
                place.is_some_and(|place| place.modified() == *revision)
            }
        })
    }

    /// The place of a key's newest record, which may be a deletion, and its value if it has one.
    fn present(
        &mut self,
        key: &[u8],
        latest: &impl Fn(&[u8], Revision) -> Option<KeyValue>,
    ) -> Result<(Option<Place>, Option<KeyValue>), Fault> {
        let Some(place) = self.place(key)? else { return Ok((None, None)) };
        if place.is_deleted() {
            return Ok((Some(place), None));
        }
        let known = self.written.get(key).cloned().or_else(|| latest(key, place.modified()));
        let entry = match known {
            Some(entry) => entry,
            None => read_entry(
                &self.log,
                Bytes::copy_from_slice(key),
                place,
                &mut self.scratch.unpacker,
            )?,
        };
        Ok((Some(place), Some(entry)))
    }

    /// The keys that were not written again since their revision.
    pub(super) fn unchanged(&self, keys: Vec<(Bytes, Revision)>) -> Result<Vec<Bytes>, Fault> {
        let mut unchanged = Vec::new();
        for (key, since) in keys {
            if self.place(&key)?.is_some_and(|place| place.modified() == since) {
                unchanged.push(key);
            }
        }
        Ok(unchanged)
    }

    /// Compacts history before `target`, or a part of it of about `records_max` records.
    ///
    /// If it fails with [`Fault::Record`], nothing was written. Drops records that were replaced at
    /// or before the target, and deletions up to it. Drops whole transactions only, so that no
    /// revision is left incomplete.
    pub(super) fn compact(&mut self, target: u64, records_max: usize) -> Result<(), Fault> {
        let (mut dropped, mut deletions) = (Vec::new(), Vec::new());
        let (mut looking_at, mut reached) = (self.now.oldest, target);
        for row in self.log.range((self.now.oldest + 1, 0)..=(target, u32::MAX))? {
            let (at, bytes) = row?;
            let at = at.value();
            if at.0 != looking_at && dropped.len() + deletions.len() >= records_max {
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

    /// Writes the store's position. The last step before the transaction's commit.
    pub(super) fn close(mut self) -> Result<Position, Fault> {
        self.meta.insert(name::REVISION, self.now.revision)?;
        self.meta.insert(name::OLDEST, self.now.oldest)?;
        self.meta.insert(name::SUPERSEDED, self.now.superseded)?;
        Ok(self.now)
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
