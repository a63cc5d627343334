//! Reading a damaged file, and creating a store from its readable parts.
//!
//! # Theory
//!
//! A file is read page by page ([`pages`](super::pages)) before it is opened. Each page is compared
//! with the checksum in its parent, so every damaged page is found, and it is known which keys of
//! which table it held.
//!
//! | lost page | consequence |
//! |---|---|
//! | a page of `log` | the objects whose newest record was on it are damaged; history is dropped |
//! | a page of `keys` | none, if `log` is whole: each record has its key |
//! | pages of both | an object whose newest record may be on a lost page of `log` is damaged, even if an older record is readable |
//! | a page of `mortal` or `meta`, or of redb's own tables | none: they are rebuilt from the others |
//! | the table of tables, or the head | the newest commits: an older state is searched for in the file |
//!
//! A record on a page that no tree leads to is used only if `keys` points to it as the newest of
//! its key. Records never change, so a record at that place is the right one.
//!
//! The readable parts go into a new file, without history, one revision further, so that clients
//! list again. The commits of the journal follow: they are newer than what the file has. A damaged
//! object becomes a value that marks it ([`DAMAGED_PREFIX`]). So no client can create another
//! object of its name, and a get reports the damage.

use bytes::Bytes;
use redb::Database;
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use super::{
    DiskStore, FILE,
    apply::Rows,
    batch::{BatchTables, Position, Scratch},
    damage::{DAMAGED, DAMAGED_PREFIX, Damage, OnDamage, name_all},
    error::{DiskError, Fault, guarded},
    file::{self, NewFile, io_error},
    journal::{self, Entry, Mark},
    layout::{Damaged, EXPIRING, KEYS, KeyRow, LOG, META, Place, Record, name},
    lock::Locked,
    pack::{Packer, Unpacker},
    pages::{Lost, Pages, RowPlace, Table},
};
use crate::contract::*;

/// Temporary name of the new file.
const PARTIAL: &str = "salvaging.redb";
/// Maximum number of rows in one transaction of the new file.
const ROWS: usize = 10_000;
/// How much the revision increases if the newest one is unknown. No client may have seen the new
/// revision already.
pub(super) const REVISION_GAP: u64 = 1 << 20;

/// A newest record that is readable.
struct Readable {
    key: Vec<u8>,
    at: (u64, u32),
    row: RowPlace,
    expires_ms: u64,
}

/// An object whose newest record is unreadable.
struct Unreadable {
    key: Vec<u8>,
    /// 0 if unknown.
    created: u64,
    expires_ms: u64,
    what: &'static str,
}

/// A file with damaged pages, and its readable parts.
pub(super) struct Salvage {
    path: PathBuf,
    pages: Pages,
    /// The tables of each state that was found, the right one first.
    directories: Vec<Vec<Table>>,
    log: Option<Table>,
    /// The newest known revision, with those of the journal.
    revision: u64,
    /// The commits of the journal. They are newer than all that the file has.
    unfiled: Vec<Entry>,
    readable: Vec<Readable>,
    unreadable: Vec<Unreadable>,
    damage: Damage,
}

/// Reads every page of a file that no process has open, and verifies its checksum. `None` if all
/// are valid, or the file is not redb's.
pub(super) fn survey(path: &Path) -> Result<Option<Salvage>, DiskError> {
    let Some(pages) = open(path)? else { return Ok(None) };
    let read = io_error("read", path);
    match damaged_tables(&pages) {
        Ok(tables) if tables.is_empty() => Ok(None),
        Ok(tables) => Salvage::read(path, pages, tables).map(Some),
        Err(error) => Err(read(error)),
    }
}

/// As [`survey`], for a file with valid pages that the engine refuses for another reason.
fn salvage(path: &Path) -> Result<Salvage, DiskError> {
    let nothing = || {
        let what = "nothing of it can be read".to_owned();
        DiskError::Damaged { path: path.to_owned(), what }
    };
    let pages = open(path)?.ok_or_else(nothing)?;
    let tables = damaged_tables(&pages).map_err(io_error("read", path))?;
    Salvage::read(path, pages, tables)
}

fn open(path: &Path) -> Result<Option<Pages>, DiskError> {
    // Writers lock the file exclusively.
    let file = Locked::shared(path)?;
    Pages::of(file).map_err(io_error("read", path))
}

/// The tables with pages that do not match.
fn damaged_tables(pages: &Pages) -> std::io::Result<Vec<String>> {
    let mut damaged = Vec::new();
    if pages.is_head_damaged {
        damaged.push("head".to_owned());
    }
    let Some(newest) = pages.slots.first() else { return Ok(damaged) };
    let (tables, lost) = pages.tables(newest)?;
    if !lost.is_empty() {
        damaged.push("tables".to_owned());
    }
    for table in &tables {
        let mut n_lost = 0;
        pages.walk(table, &mut |_| {}, &mut |_| n_lost += 1)?;
        if n_lost > 0 {
            damaged.push(table.name.clone());
        }
    }
    if damaged.is_empty() || !pages.may_be_torn {
        return Ok(damaged);
    }
    // A crash in the middle of a commit looks the same, but leaves the state before it whole. The
    // engine goes back to that state.
    let Some(former) = pages.slots.get(1) else { return Ok(damaged) };
    let (tables, lost) = pages.tables(former)?;
    let mut is_whole = lost.is_empty();
    for table in &tables {
        pages.walk(table, &mut |_| {}, &mut |_| is_whole = false)?;
    }
    Ok(if is_whole { Vec::new() } else { damaged })
}

impl Salvage {
    fn read(path: &Path, pages: Pages, tables: Vec<String>) -> Result<Self, DiskError> {
        let mut salvage = Self {
            path: path.to_owned(),
            pages,
            directories: Vec::new(),
            log: None,
            revision: 0,
            unfiled: Vec::new(),
            readable: Vec::new(),
            unreadable: Vec::new(),
            damage: Damage { tables, ..Damage::default() },
        };
        salvage.damage.is_older = salvage.pages.is_head_damaged;
        let found = salvage.find().map_err(io_error("read", path))?;
        if !found {
            let tables = name_all(&salvage.damage.tables);
            let what = format!(
                "pages of {tables} do not match their checksums: nothing of it can be read"
            );
            return Err(DiskError::Damaged { path: path.to_owned(), what });
        }
        Ok(salvage)
    }

    /// A table of the newest state that has it.
    fn table(&self, name: &str) -> Option<Table> {
        let mut tables = self.directories.iter().flatten();
        tables.find(|table| table.name == name).cloned()
    }

    /// The tables of each state that can be found, the newest first. If no slot leads to any, free
    /// pages may: each is an earlier state, and the roots of its tables have checksums.
    fn find_tables(&mut self) -> std::io::Result<()> {
        for slot in &self.pages.slots {
            self.directories.push(self.pages.tables(slot)?.0);
        }
        if self.table("keys").is_some() && self.table("log").is_some() {
            return Ok(());
        }
        let mut found = self.pages.scan_tables()?;
        found.retain(|tables| {
            ["keys", "log"].iter().all(|name| tables.iter().any(|table| table.name == *name))
        });
        let mut dated = Vec::new();
        for tables in found {
            dated.push((self.meta_in(&tables)?.map(|(revision, _)| revision), tables));
        }
        dated.sort_by_key(|(revision, _)| *revision);
        self.directories.extend(dated.pop().map(|(_, tables)| tables));
        self.damage.is_older = true;
        Ok(())
    }

    /// Finds the readable objects. Returns `false` if there are none.
    fn find(&mut self) -> std::io::Result<bool> {
        self.find_tables()?;
        let (Some(keys), Some(log)) = (self.table("keys"), self.table("log")) else {
            return Ok(false);
        };
        let mark = self.read_meta()?;
        // The content of `keys`.
        let (mut rows, mut keys_lost) = (BTreeMap::<Vec<u8>, Place>::new(), false);
        self.pages.walk(
            &keys,
            &mut |leaf| {
                let all = (0..leaf.n_rows()).filter_map(|n| leaf.row(n));
                rows.extend(all.filter_map(|(key, row)| Some((key.to_vec(), place(row)?))));
            },
            &mut |_| keys_lost = true,
        )?;
        // The content of `log`. For keys that `keys` has lost, the newest record.
        let mut records = HashMap::<(u64, u32), RowPlace>::new();
        let mut nameless = BTreeMap::<Vec<u8>, Place>::new();
        let mut log_lost = Vec::new();
        self.pages.walk(
            &log,
            &mut |leaf| {
                for n in 0..leaf.n_rows() {
                    let Some((at, row)) = leaf.row(n) else { continue };
                    let (Some(at), Ok(record)) = (log_key(at), Record::decode(row)) else {
                        continue;
                    };
                    records.insert(at, leaf.place(n));
                    if keys_lost && !rows.contains_key(record.key) {
                        let place = Place { at, created: record.created, expires_ms: 0 };
                        nameless.insert(record.key.to_vec(), place);
                    }
                }
            },
            &mut |part| log_lost.push(part),
        )?;
        if !log_lost.is_empty() {
            self.scan(&log, &rows, &mut records)?;
        }
        let newest = rows.values().chain(nameless.values()).map(|place| place.at.0).max();
        let newest = newest.max(records.keys().map(|at| at.0).max()).unwrap_or(0);
        let mark = mark.filter(|_| !self.damage.is_older);
        self.revision = self.revision.max(newest);
        let beside = self.path.with_file_name(journal::FILE);
        let journaled = journal::of_damaged(&beside, self.revision, mark)?;
        self.unfiled = journaled.entries;
        let is_newest = mark.is_some() && journaled.damage.is_none();
        self.damage.journal = journaled.damage;
        let newest = self.unfiled.last().map_or(0, |entry| entry.revision);
        self.revision = self.revision.max(newest) + if is_newest { 0 } else { REVISION_GAP };
        let n_known = (rows.len() + nameless.len()) as u64;
        self.damage.n_unnamed = match keys_lost && !log_lost.is_empty() {
            true => keys.rows.saturating_sub(n_known),
            false => 0,
        };
        let expiries = if nameless.is_empty() { HashMap::new() } else { self.expiries()? };
        for (key, place) in rows {
            match records.get(&place.at) {
                _ if place.is_deleted() => {}
                Some(row) => self.found(key, place, *row),
                None => self.lost(key, place, "its record in the table `log` is damaged"),
            }
        }
        for (key, place) in nameless {
            let expires_ms = expiries.get(&key).filter(|(_, written)| *written == place.at.0);
            let place =
                Place { expires_ms: expires_ms.map_or(0, |(expires_ms, _)| *expires_ms), ..place };
            let may_be_old = log_lost.iter().any(|lost| may_be_behind(lost, place.at.0));
            match records.get(&place.at) {
                Some(row) if !may_be_old && !place.is_deleted() => self.found(key, place, *row),
                _ if !may_be_old => {}
                _ => {
                    let what =
                        "its row in the table `keys` is damaged, and perhaps its record in `log`";
                    self.lost(key, Place { created: 0, ..place }, what);
                }
            }
        }
        self.log = Some(log);
        Ok(true)
    }

    fn found(&mut self, key: Vec<u8>, place: Place, row: RowPlace) {
        self.damage.n_readable += 1;
        self.readable.push(Readable { key, at: place.at, row, expires_ms: place.expires_ms });
    }

    fn lost(&mut self, key: Vec<u8>, place: Place, what: &'static str) {
        self.damage.add(&key, what);
        let Place { created, expires_ms, .. } = place;
        self.unreadable.push(Unreadable { key, created, expires_ms, what });
    }

    /// Reads the newest revision from `meta`. Returns the newest state's mark if that is there.
    fn read_meta(&mut self) -> std::io::Result<Option<Mark>> {
        let mut found = Vec::new();
        for tables in &self.directories {
            found.push(self.meta_in(tables)?);
        }
        self.revision = found.iter().flatten().map(|(revision, _)| *revision).max().unwrap_or(0);
        Ok(found.first().copied().flatten().map(|(_, mark)| mark))
    }

    /// The revision and the mark in `meta`, which has one page.
    fn meta_in(&self, tables: &[Table]) -> std::io::Result<Option<(u64, Mark)>> {
        let (mut revision, mut mark) = (None, None);
        let Some(meta) = tables.iter().find(|table| table.name == "meta") else { return Ok(None) };
        self.pages.walk(
            meta,
            &mut |leaf| {
                for (key, row) in (0..leaf.n_rows()).filter_map(|n| leaf.row(n)) {
                    match key {
                        key if key == name::REVISION.as_bytes() => revision = number(row, 0),
                        key if key == name::JOURNAL.as_bytes() => mark = number(row, 0),
                        _ => {}
                    }
                }
            },
            &mut |_| {},
        )?;
        Ok(revision.map(|revision| (revision, Mark::of_row(mark))))
    }

    /// Expiry times from the readable part of `mortal`, by key, with the revision that must be the
    /// newest.
    fn expiries(&self) -> std::io::Result<HashMap<Vec<u8>, (u64, u64)>> {
        let mut expiries = HashMap::new();
        let Some(expiring) = self.table("mortal") else { return Ok(expiries) };
        self.pages.walk(
            &expiring,
            &mut |leaf| {
                for (key, row) in (0..leaf.n_rows()).filter_map(|n| leaf.row(n)) {
                    let (Some(expires_ms), Some(written)) = (number(key, 0), number(row, 0)) else {
                        continue;
                    };
                    expiries.insert(key[8..].to_vec(), (expires_ms, written));
                }
            },
            &mut |_| {},
        )?;
        Ok(expiries)
    }

    /// Searches the whole file for records that `keys` points to and that no tree leads to.
    fn scan(
        &self,
        log: &Table,
        rows: &BTreeMap<Vec<u8>, Place>,
        records: &mut HashMap<(u64, u32), RowPlace>,
    ) -> std::io::Result<()> {
        let mut wanted: HashMap<(u64, u32), (&[u8], u64)> = HashMap::new();
        for (key, place) in rows {
            if !place.is_deleted() && !records.contains_key(&place.at) {
                wanted.insert(place.at, (key, place.created));
            }
        }
        self.pages.scan(log, &mut |leaf| {
            for n in 0..leaf.n_rows() {
                let Some((at, row)) = leaf.row(n) else { return };
                let Some(at) = log_key(at) else { return };
                let Some((key, created)) = wanted.get(&at) else { continue };
                let is_it = Record::decode(row).is_ok_and(|record| {
                    record.key == *key && record.created == *created && record.has_checksum
                });
                if is_it {
                    records.insert(at, leaf.place(n));
                }
            }
        })
    }

    /// The error for a caller that opens the file.
    pub(super) fn refusal(self) -> DiskError {
        DiskError::DamagedObjects { path: self.path, damage: Box::new(self.damage) }
    }

    /// Writes the readable objects into an empty file, and syncs it. Returns its revision.
    fn write(&self, to: &Database, with_damaged: bool) -> Result<Revision, Fault> {
        let revision = self.revision + 1;
        let mut readable: Vec<&Readable> = self.readable.iter().collect();
        readable.sort_unstable_by_key(|found| found.at);
        for part in readable.chunks(ROWS) {
            let mut transaction = to.begin_write()?;
            transaction.set_durability(redb::Durability::None)?;
            {
                let mut keys = transaction.open_table(KEYS)?;
                let mut log = transaction.open_table(LOG)?;
                let mut expiring = transaction.open_table(EXPIRING)?;
                let mut damaged = transaction.open_table(DAMAGED)?;
                for found in part {
                    let bytes = self.record(found)?;
                    let record = Record::decode(&bytes).map_err(|damage| damage.at(found.at))?;
                    if record.is_mark() && !with_damaged {
                        continue;
                    }
                    log.insert(found.at, &bytes[..])?;
                    let created = record.created;
                    let place = Place { at: found.at, created, expires_ms: found.expires_ms };
                    keys.insert(&found.key[..], place.row())?;
                    if record.is_mark() {
                        damaged.insert(&found.key[..], found.at.0)?;
                    }
                    if found.expires_ms != 0 {
                        expiring.insert((found.expires_ms, &found.key[..]), found.at.0)?;
                    }
                }
            }
            transaction.commit()?;
        }
        let mut transaction = to.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut keys = transaction.open_table(KEYS)?;
            let mut log = transaction.open_table(LOG)?;
            let mut expiring = transaction.open_table(EXPIRING)?;
            let mut damaged = transaction.open_table(DAMAGED)?;
            let (mut packer, mut record) = (Packer::default(), Vec::new());
            let unreadable = if with_damaged { &self.unreadable[..] } else { &[] };
            for (index, lost) in unreadable.iter().enumerate() {
                let at = (revision, u32::try_from(index).unwrap_or(u32::MAX));
                let created = if lost.created == 0 { revision } else { lost.created };
                let mark = [DAMAGED_PREFIX, lost.what.as_bytes()].concat();
                Record::encode(&mut record, &mut packer, created, (0, 0), &lost.key, Some(&mark));
                log.insert(at, &record[..])?;
                let place = Place { at, created, expires_ms: lost.expires_ms };
                keys.insert(&lost.key[..], place.row())?;
                damaged.insert(&lost.key[..], revision)?;
                if lost.expires_ms != 0 {
                    expiring.insert((lost.expires_ms, &lost.key[..]), revision)?;
                }
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert(name::REVISION, revision)?;
            meta.insert(name::OLDEST, revision)?;
            meta.insert(name::SUPERSEDED, 0)?;
        }
        transaction.commit()?;
        let before = Position { revision, oldest: revision, superseded: 0 };
        self.write_unfiled(to, before)
    }

    /// Repeats the commits of the journal. Their revisions are new ones.
    fn write_unfiled(&self, to: &Database, before: Position) -> Result<Revision, Fault> {
        if self.unfiled.is_empty() {
            return Ok(Revision(before.revision));
        }
        let mut transaction = to.begin_write()?;
        transaction.set_quick_repair(true);
        let (mut scratch, mut unpacker) = (Scratch::default(), Unpacker::default());
        let mut tables = BatchTables::open(&transaction, before, &mut scratch)?;
        for entry in &self.unfiled {
            let mut ops = Vec::new();
            for record in &entry.records {
                let record = Record::decode(record)?;
                let key = Bytes::copy_from_slice(record.key);
                ops.push(match record.value(&mut unpacker)? {
                    Some(value) => Op::Put(key, value),
                    None => Op::Delete(key),
                });
            }
            let txn = Txn { ops, ..Txn::default() };
            tables.apply(&txn, entry.expires_ms, |_, _| None)?;
        }
        let position = tables.close()?;
        transaction.commit()?;
        Ok(Revision(position.revision))
    }

    fn record(&self, found: &Readable) -> Result<Vec<u8>, Fault> {
        let gone = || Damaged("it can no longer be read").at(found.at);
        let log = self.log.as_ref().ok_or_else(gone)?;
        let row = self.pages.row_at(log, found.row, |_, row| row.to_vec());
        row.map_err(redb::StorageError::Io)?.ok_or_else(gone)
    }

    /// Creates the new file in a folder. The caller renames it.
    fn make(&self, folder: &Path, with_damaged: bool) -> Result<(NewFile, Revision), DiskError> {
        let place = NewFile::new(folder, PARTIAL)?;
        let of_file = |fault: Fault| fault.of_file(place.path());
        let database =
            Database::create(place.path()).map_err(|error| of_file(Fault::from(error)))?;
        file::prepare(&database, place.path())?;
        let revision = self.write(&database, with_damaged).map_err(of_file)?;
        Ok((place, revision))
    }

    /// Replaces the file with its readable parts. The damaged file stays beside it as
    /// `store.redb.damaged-<revision>`. Returns the damage.
    fn replace(self, folder: &Path) -> Result<Damage, DiskError> {
        let (place, revision) = self.make(folder, true)?;
        file::keep_aside(&self.path, revision)?;
        place.replace(&self.path)?;
        // The new file has its commits.
        journal::remove(folder)?;
        Ok(self.damage)
    }
}

/// If the file is damaged and `on_damage` allows it, replaces it with one that can be served.
/// Returns the damage.
pub(super) fn recover_damaged(
    folder: &Path,
    path: &Path,
    on_damage: OnDamage,
) -> Result<Option<Damage>, DiskError> {
    match (survey(path)?, on_damage) {
        (None, _) => Ok(None),
        (Some(salvage), OnDamage::Refuse) => Err(salvage.refusal()),
        (Some(salvage), OnDamage::Serve) => guarded(path, || salvage.replace(folder)).map(Some),
    }
}

/// As [`recover_damaged`], for a file with valid pages that the engine still refuses.
pub(super) fn recover_refused(
    folder: &Path,
    path: &Path,
    refusal: DiskError,
    on_damage: OnDamage,
) -> Result<Damage, DiskError> {
    match (&refusal, on_damage) {
        (DiskError::Damaged { .. }, OnDamage::Serve) => {
            guarded(path, || salvage(path)?.replace(folder))
        }
        _ => Err(refusal),
    }
}

impl DiskStore {
    /// Creates a store, in a folder without one, from the readable parts of another folder's file.
    /// Leaves out history and damaged objects. No process may have either folder open. Blocks.
    /// Returns the revision of the new store, and the damage that was left out.
    ///
    /// # Errors
    ///
    /// The folder has a store. The other folder is in use, or nothing of its file can be read.
    /// There is no room.
    pub fn salvage(
        folder: impl AsRef<Path>,
        damaged: impl AsRef<Path>,
    ) -> Result<(Revision, Damage), DiskError> {
        let (folder, from) = (folder.as_ref(), damaged.as_ref().join(FILE));
        let path = folder.join(FILE);
        file::make_folder(folder)?;
        if fs::symlink_metadata(&path).is_ok() {
            let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(io_error("restore over", &path)(error));
        }
        guarded(&from, || {
            let salvage = salvage(&from)?;
            let (place, revision) = salvage.make(folder, false)?;
            journal::remove(folder)?;
            place.rename_to(&path)?;
            Ok((revision, salvage.damage.clone()))
        })
    }
}

/// Whether a lost part of `log` may hold a record newer than a revision.
fn may_be_behind(lost: &Lost, revision: u64) -> bool {
    let upto = lost.upto.as_deref().and_then(|key| number(key, 0));
    upto.is_none_or(|upto| upto > revision)
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?))
}

fn number_32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

/// A key of `log`, in redb's encoding.
fn log_key(key: &[u8]) -> Option<(u64, u32)> {
    Some((number(key, 0)?, number_32(key, 8)?))
}

/// A row of `keys`, in redb's encoding.
fn place(row: &[u8]) -> Option<Place> {
    let row: KeyRow = (number(row, 0)?, number_32(row, 8)?, number(row, 12)?, number(row, 20)?);
    Some(Place::of(row))
}
