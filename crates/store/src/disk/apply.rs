//! What a transaction does to the rows of a store, wherever they are.

use bytes::Bytes;
use std::sync::Arc;

use super::{
    error::Fault,
    layout::{Place, Record},
    pack::Packer,
};
use crate::contract::*;

/// The result of a commit.
pub(super) struct Applied {
    pub(super) committed: Committed,
    /// Empty if nothing changed.
    pub(super) changes: Arc<[Change]>,
}

/// A new version of a key.
pub(super) struct Version<'a> {
    /// Revision, and index in its transaction.
    pub(super) at: (u64, u32),
    pub(super) key: &'a Bytes,
    /// `None` for a deletion.
    pub(super) value: Option<&'a Bytes>,
    /// The place of the key's newest record before, which may be a deletion.
    pub(super) replaced: Option<Place>,
    /// The revision that created the key; 0 for a deletion.
    pub(super) created: u64,
    /// Expiry time in milliseconds since 1970; 0 for never.
    pub(super) expires_ms: u64,
}

impl Version<'_> {
    pub(super) fn place(&self) -> Place {
        Place { at: self.at, created: self.created, expires_ms: self.expires_ms }
    }

    /// The place of the record that it replaces; revision 0 if there is none.
    pub(super) fn replaced(&self) -> (u64, u32) {
        self.replaced.map_or((0, 0), |place| place.at)
    }

    /// Encodes the record into `out`, which is cleared first.
    pub(super) fn encode(&self, out: &mut Vec<u8>, packer: &mut Packer) {
        let value = self.value.map(|value| &value[..]);
        Record::encode(out, packer, self.created, self.replaced(), self.key, value);
    }

    /// The key with its value. `None` for a deletion.
    pub(super) fn entry(&self) -> Option<KeyValue> {
        Some(KeyValue {
            key: self.key.clone(),
            value: self.value?.clone(),
            modified: Revision(self.at.0),
            created: Revision(self.created),
        })
    }
}

/// Rows that transactions read and write.
pub(super) trait Rows {
    /// The newest revision.
    fn revision(&self) -> u64;

    /// The place of a key's newest record, which may be a deletion.
    fn place(&self, key: &[u8]) -> Result<Option<Place>, Fault>;

    /// The value of a key that was written in this batch.
    fn written(&self, key: &[u8]) -> Option<KeyValue>;

    /// Reads the value at a place that is not a deletion.
    fn read(&mut self, key: Bytes, place: Place) -> Result<KeyValue, Fault>;

    /// Writes a version of a key.
    fn put(&mut self, version: &Version<'_>) -> Result<(), Fault>;

    /// Ends a commit that changed something.
    fn committed(&mut self, revision: u64, expires_ms: u64);

    /// Applies a checked transaction. `latest` returns values that need not be read from the file.
    /// If it fails with [`Fault::Record`], nothing was written.
    fn apply(
        &mut self,
        txn: &Txn,
        expires_ms: u64,
        latest: impl Fn(&[u8], Revision) -> Option<KeyValue>,
    ) -> Result<Applied, Fault> {
        let refused = !txn
            .compares
            .iter()
            .try_fold(true, |holds, compare| Ok::<_, Fault>(holds && self.holds(compare)?))?;
        let revision = Revision(self.revision());
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
        for (op, (replaced, previous)) in txn.ops.iter().zip(found) {
            let (key, value) = (op.key(), op.value());
            if value.is_none() && previous.is_none() {
                continue;
            }
            let created = match (value, &previous) {
                (None, _) => 0,
                (Some(_), Some(previous)) => previous.created.0,
                (Some(_), None) => next.0,
            };
            let at = (next.0, u32::try_from(changes.len()).unwrap_or(u32::MAX));
            let expires_ms = if value.is_some() { expires_ms } else { 0 };
            self.put(&Version { at, key, value, replaced, created, expires_ms })?;
            let (key, value) = (key.clone(), value.cloned());
            changes.push(Change { revision: next, key, value, previous });
        }
        if changes.is_empty() {
            return Ok(Applied { committed: Committed::Done(revision), changes: Arc::default() });
        }
        self.committed(next.0, expires_ms);
        Ok(Applied { committed: Committed::Done(next), changes: changes.into() })
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
        key: &Bytes,
        latest: &impl Fn(&[u8], Revision) -> Option<KeyValue>,
    ) -> Result<(Option<Place>, Option<KeyValue>), Fault> {
        let Some(place) = self.place(key)? else { return Ok((None, None)) };
        if place.is_deleted() {
            return Ok((Some(place), None));
        }
        let known = self.written(key).or_else(|| latest(key, place.modified()));
        let entry = match known {
            Some(entry) => entry,
            None => self.read(key.clone(), place)?,
        };
        Ok((Some(place), Some(entry)))
    }

    /// A transaction that deletes those of these keys that were not written again since their
    /// revision.
    fn expiry(&self, keys: &[(Bytes, Revision)]) -> Result<Txn, Fault> {
        let mut ops = Vec::new();
        for (key, since) in keys {
            if self.place(key)?.is_some_and(|place| place.modified() == *since) {
                ops.push(Op::Delete(key.clone()));
            }
        }
        Ok(Txn { ops, ..Txn::default() })
    }
}
