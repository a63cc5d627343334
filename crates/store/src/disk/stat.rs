//! Statistics and consistency checks of a store.

use redb::{ReadableTable, ReadableTableMetadata};
use std::path::Path;

use super::{
    DiskStore, FILE,
    batch::Position,
    damage,
    error::{DiskError, Fault, guarded},
    file::{self, open_existing},
    layout::{Damaged, EXPIRING, KEYS, LOG, Place, Record},
    pack::Unpacker,
    read::View,
    salvage,
};
use crate::contract::*;

/// Statistics of a disk store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskStat {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read.
    pub oldest: Revision,
    /// Number of keys with a value.
    pub keys: u64,
    /// Number of records, including the newest versions and deletions.
    pub records: u64,
    /// Number of values with a time to live.
    pub expiring: u64,
    /// Bytes of all records, as compressed in the file.
    pub record_bytes: u64,
    /// Bytes of replaced records, which compaction can free.
    pub superseded_bytes: u64,
    /// The file's length in bytes; 0 if it is not a file.
    pub file_bytes: u64,
}

impl DiskStore {
    /// Statistics of the store. Reads every record, so it takes as long as reading the file.
    ///
    /// # Errors
    ///
    /// The store is closed, or the file cannot be read.
    pub async fn stat(&self) -> Result<DiskStat, StoreError> {
        let path = self.inner.path.clone();
        Ok(self.inner.read_view(true, move |view| view.stat(&path)).await?.value)
    }

    /// As [`DiskStore::stat`], for a folder that no process has open. Blocks.
    ///
    /// # Errors
    ///
    /// The folder is in use, has no store or cannot be read.
    pub fn stat_folder(folder: impl AsRef<Path>) -> Result<DiskStat, DiskError> {
        let path = folder.as_ref().join(FILE);
        guarded(&path, || {
            let database = open_existing(&path)?;
            let read = || {
                let (position, snapshot) = file::position(&database)?;
                View::unserved(snapshot, position).stat(&path)
            };
            read().map_err(|fault: Fault| fault.of_file(&path))
        })
    }

    /// Reads a folder's whole file and verifies all its invariants: redb's checksums, every record
    /// whole, every revision present, every key pointing to its newest record, and every record to
    /// the one it replaced. Changes nothing, except that opening after a crash repairs the file.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// The folder is in use, has no store or cannot be read. Otherwise the error names the problem
    /// and its place.
    pub fn check(folder: impl AsRef<Path>) -> Result<DiskStat, DiskError> {
        let path = folder.as_ref().join(FILE);
        guarded(&path, || {
            if let Some(damaged) = salvage::survey(&path)? {
                return Err(damaged.refusal());
            }
            // First checks without writing, because that is enough to find most damage.
            file::check_openable_with(&path, View::check_records)?;
            let mut database = open_existing(&path)?;
            let mut checked = || {
                if !database.check_integrity()? {
                    return Err(Damaged("pages did not match their checksums").into());
                }
                let (position, snapshot) = file::position(&database)?;
                let view = View::unserved(snapshot, position);
                view.check_records()?;
                Ok((view.stat(&path)?, damage::marked(&view.snapshot, None)?))
            };
            match checked().map_err(|fault: Fault| fault.of_file(&path))? {
                (stat, None) => Ok(stat),
                (_, Some(marked)) => {
                    let damage = Box::new(marked);
                    Err(DiskError::DamagedObjects { path: path.clone(), damage })
                }
            }
        })
    }
}

impl std::fmt::Display for DiskStat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "revision          {}", self.revision)?;
        writeln!(f, "oldest revision   {}", self.oldest)?;
        writeln!(f, "keys              {}", self.keys)?;
        writeln!(f, "keys that expire  {}", self.expiring)?;
        writeln!(f, "versions          {}", self.records)?;
        writeln!(f, "bytes of versions {}", self.record_bytes)?;
        writeln!(f, "bytes of history  {}", self.superseded_bytes)?;
        writeln!(f, "bytes of the file {}", self.file_bytes)
    }
}

pub(super) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

impl View {
    fn stat(&self, path: &Path) -> Result<DiskStat, Fault> {
        let Position { revision, oldest, superseded } = self.position;
        let (mut keys, mut record_bytes) = (0, 0);
        for row in self.snapshot.open_table(KEYS)?.iter()? {
            keys += u64::from(!Place::of(row?.1.value()).is_deleted());
        }
        let log = self.snapshot.open_table(LOG)?;
        for row in log.iter()? {
            record_bytes += row?.1.value().len() as u64;
        }
        Ok(DiskStat {
            revision: Revision(revision),
            oldest: Revision(oldest),
            keys,
            records: log.len()?,
            expiring: self.snapshot.open_table(EXPIRING)?.len()?,
            record_bytes,
            superseded_bytes: superseded,
            file_bytes: length(path),
        })
    }

    pub(super) fn check_records(&self) -> Result<(), Fault> {
        let Position { revision: newest, oldest, .. } = self.position;
        let log = self.snapshot.open_table(LOG)?;
        let keys = self.snapshot.open_table(KEYS)?;
        let (mut reached, mut unpacker) = (oldest, Unpacker::default());
        for row in log.iter()? {
            let (at, bytes) = row?;
            let at = at.value();
            let here = |damage: Damaged| damage.at(at);
            let wrong = |what| Err(here(Damaged(what)));
            let record = Record::decode(bytes.value()).map_err(here)?;
            record.value(&mut unpacker).map_err(here)?;
            if at.0 > oldest {
                if at.0 > reached + 1 {
                    return wrong("the revision before it is missing");
                }
                reached = at.0;
            }
            if at.0 > newest {
                return wrong("it lies beyond the newest revision");
            }
            let place = keys.get(record.key)?.map(|row| Place::of(row.value()));
            let place = place.ok_or_else(|| here(Damaged("its key has no row in `keys`")))?;
            if place.at < at || place.at == at && place.created != record.created {
                return wrong("its key does not point to its newest record");
            }
            // A replaced record is retained as long as the revision before its replacement is
            // readable. A deletion is dropped with its own revision.
            let is_needed = at.0 > oldest && record.created != at.0 && record.replaced.0 != 0;
            if is_needed && log.get(record.replaced)?.is_none() {
                return wrong("the record that it replaced is missing");
            }
        }
        if reached != newest {
            return Err(Damaged("the log ends before the newest revision").into());
        }
        for row in keys.iter()? {
            let (key, place) = row?;
            let place = Place::of(place.value());
            let here = |what| Damaged(what).at(place.at);
            let bytes = log.get(place.at)?.ok_or_else(|| here("it is missing"))?;
            if Record::decode(bytes.value())?.key != key.value() {
                return Err(here("another key points to it"));
            }
        }
        Ok(())
    }
}
