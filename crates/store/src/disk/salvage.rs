//! What of a damaged file can be read, and a store made of it.
//!
//! # Theory
//!
//! A file is read page by page ([`pages`](super::pages)) before it is opened. Each page is compared
//! with the checksum that leads to it, so a damaged one is found wherever it is, and it is known
//! which keys of which table it held.
//!
//! | lost | what it means |
//! |---|---|
//! | a page of `log` | the objects whose newest record was on it are damaged; history is given up |
//! | a page of `keys` | nothing, as long as `log` is whole: each record names its key |
//! | pages of both | an object whose newest record may be on a lost page of `log` is damaged, even if an older one is there |
//! | a page of `mortal` or `meta`, or of redb's own tables | nothing: they are made again of the others |
//! | the table of tables, or the head | the newest commits: a former state is looked for in the file |
//!
//! A record is taken from a page that no tree leads to any more only if `keys` says that it is the
//! newest of its key: records never change, so one of that place is the right one.
//!
//! What can be read goes into a new file, without history, one revision further: clients list
//! again. A damaged object becomes a value that says so ([`DAMAGED_PREFIX`]): nobody can create
//! another object of its name, and whoever asks for it is told what happened.

use redb::Database;
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use super::{
    DiskStore, FILE,
    damage::{DAMAGED, DAMAGED_PREFIX, Damage, OnDamage, name_all},
    error::{DiskError, Fault, guarded},
    file::{self, Place as NewFile, io_error},
    layout::{Damaged, KEYS, KeyRow, LOG, META, MORTAL, Place, Record, name},
    lock::Locked,
    pack::Packer,
    pages::{Lost, Pages, RowPlace, Table},
};
use crate::contract::*;

/// The new file's name until it is whole.
const PARTIAL: &str = "salvaging.redb";
/// How many rows one transaction of the new file takes in.
const ROWS: usize = 10_000;
/// How far the revision moves where the newest one is not known: it must not be one that a client
/// has seen already.
const REVISION_GAP: u64 = 1 << 20;

/// A newest record that can be read.
struct Readable {
    key: Vec<u8>,
    at: (u64, u32),
    row: RowPlace,
    dies_ms: u64,
}

/// An object whose newest record cannot be read.
struct Unreadable {
    key: Vec<u8>,
    /// 0 when it is not known.
    created: u64,
    dies_ms: u64,
    what: &'static str,
}

/// A file with damaged pages, and what can be read of it.
pub(super) struct Salvage {
    path: PathBuf,
    pages: Pages,
    /// The tables of the states that can be found, the right one first.
    directories: Vec<Vec<Table>>,
    log: Option<Table>,
    /// The newest revision, as far as anybody knows.
    revision: u64,
    readable: Vec<Readable>,
    unreadable: Vec<Unreadable>,
    damage: Damage,
}

/// Reads every page of a file that nobody has open, and holds it to its checksum. `None`: all are
/// right, or the file is not redb's.
pub(super) fn survey(path: &Path) -> Result<Option<Salvage>, DiskError> {
    let Some(pages) = open(path)? else { return Ok(None) };
    let read = io_error("read", path);
    match damaged_tables(&pages) {
        Ok(tables) if tables.is_empty() => Ok(None),
        Ok(tables) => Salvage::read(path, pages, tables).map(Some),
        Err(error) => Err(read(error)),
    }
}

/// As [`survey`], of a file that the engine refuses for another reason than its pages' checksums.
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
    // Whoever writes to it has locked it.
    let file = Locked::shared(path)?;
    Pages::of(file).map_err(io_error("read", path))
}

/// In which tables pages do not match.
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
    // A crash in the middle of a commit looks the same, and the state before it is whole then: the
    // engine goes back to it.
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

    /// A table of the newest state that leads to it.
    fn table(&self, name: &str) -> Option<Table> {
        let mut tables = self.directories.iter().flatten();
        tables.find(|table| table.name == name).cloned()
    }

    /// The tables of each state that can be found, the newest first. Where no slot leads to any,
    /// pages that the file no longer uses may: each is a state that once was, and its tables' roots
    /// have checksums.
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
            dated.push((self.revision_in(&tables)?, tables));
        }
        dated.sort_by_key(|(revision, _)| *revision);
        self.directories.extend(dated.pop().map(|(_, tables)| tables));
        self.damage.is_older = true;
        Ok(())
    }

    /// Finds what can be read; `false`: nothing.
    fn find(&mut self) -> std::io::Result<bool> {
        self.find_tables()?;
        let (Some(keys), Some(log)) = (self.table("keys"), self.table("log")) else {
            return Ok(false);
        };
        let is_known = self.read_revision()?;
        // What `keys` says.
        let (mut rows, mut keys_lost) = (BTreeMap::<Vec<u8>, Place>::new(), false);
        self.pages.walk(
            &keys,
            &mut |leaf| {
                let all = (0..leaf.n_rows()).filter_map(|n| leaf.row(n));
                rows.extend(all.filter_map(|(key, row)| Some((key.to_vec(), place(row)?))));
            },
            &mut |_| keys_lost = true,
        )?;
        // What `log` says; of keys that `keys` has lost, the newest record.
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
                        let place = Place { at, created: record.created, dies_ms: 0 };
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
        let is_newest = is_known && !self.damage.is_older;
        self.revision = self.revision.max(newest) + if is_newest { 0 } else { REVISION_GAP };
        let n_known = (rows.len() + nameless.len()) as u64;
        self.damage.n_unnamed = match keys_lost && !log_lost.is_empty() {
            true => keys.rows.saturating_sub(n_known),
            false => 0,
        };
        let deaths = if nameless.is_empty() { HashMap::new() } else { self.deaths()? };
        for (key, place) in rows {
            match records.get(&place.at) {
                _ if place.is_deleted() => {}
                Some(row) => self.found(key, place, *row),
                None => self.lost(key, place, "its record in the table `log` is damaged"),
            }
        }
        for (key, place) in nameless {
            let dies_ms = deaths.get(&key).filter(|(_, written)| *written == place.at.0);
            let place = Place { dies_ms: dies_ms.map_or(0, |(dies_ms, _)| *dies_ms), ..place };
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
        self.readable.push(Readable { key, at: place.at, row, dies_ms: place.dies_ms });
    }

    fn lost(&mut self, key: Vec<u8>, place: Place, what: &'static str) {
        self.damage.add(&key, what);
        let Place { created, dies_ms, .. } = place;
        self.unreadable.push(Unreadable { key, created, dies_ms, what });
    }

    /// Takes the newest revision from `meta`; whether it is there.
    fn read_revision(&mut self) -> std::io::Result<bool> {
        let mut revision = None;
        for tables in &self.directories {
            revision = revision.max(self.revision_in(tables)?);
        }
        self.revision = revision.unwrap_or(0);
        Ok(revision.is_some())
    }

    fn revision_in(&self, tables: &[Table]) -> std::io::Result<Option<u64>> {
        let mut revision = None;
        let Some(meta) = tables.iter().find(|table| table.name == "meta") else { return Ok(None) };
        self.pages.walk(
            meta,
            &mut |leaf| {
                let all = (0..leaf.n_rows()).filter_map(|n| leaf.row(n));
                let found = all.filter(|(key, _)| *key == name::REVISION.as_bytes());
                revision = found.filter_map(|(_, row)| number(row, 0)).max().max(revision);
            },
            &mut |_| {},
        )?;
        Ok(revision)
    }

    /// When values die, as far as `mortal` can be read: by key, with the revision that must be the
    /// newest.
    fn deaths(&self) -> std::io::Result<HashMap<Vec<u8>, (u64, u64)>> {
        let mut deaths = HashMap::new();
        let Some(mortal) = self.table("mortal") else { return Ok(deaths) };
        self.pages.walk(
            &mortal,
            &mut |leaf| {
                for (key, row) in (0..leaf.n_rows()).filter_map(|n| leaf.row(n)) {
                    let (Some(dies_ms), Some(written)) = (number(key, 0), number(row, 0)) else {
                        continue;
                    };
                    deaths.insert(key[8..].to_vec(), (dies_ms, written));
                }
            },
            &mut |_| {},
        )?;
        Ok(deaths)
    }

    /// Looks everywhere in the file for records that `keys` names and that no tree leads to.
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
                    record.key == *key && record.created == *created && record.is_summed
                });
                if is_it {
                    records.insert(at, leaf.place(n));
                }
            }
        })
    }

    /// As somebody sees it who opens the file.
    pub(super) fn refusal(self) -> DiskError {
        DiskError::DamagedObjects { path: self.path, damage: Box::new(self.damage) }
    }

    /// Writes what can be read into an empty file, and syncs it. Gives the revision that it stands
    /// at.
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
                let mut mortal = transaction.open_table(MORTAL)?;
                let mut damaged = transaction.open_table(DAMAGED)?;
                for found in part {
                    let bytes = self.record(found)?;
                    let record = Record::decode(&bytes).map_err(|damage| damage.at(found.at))?;
                    if record.is_mark() && !with_damaged {
                        continue;
                    }
                    log.insert(found.at, &bytes[..])?;
                    let created = record.created;
                    let place = Place { at: found.at, created, dies_ms: found.dies_ms };
                    keys.insert(&found.key[..], place.row())?;
                    if record.is_mark() {
                        damaged.insert(&found.key[..], found.at.0)?;
                    }
                    if found.dies_ms != 0 {
                        mortal.insert((found.dies_ms, &found.key[..]), found.at.0)?;
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
            let mut mortal = transaction.open_table(MORTAL)?;
            let mut damaged = transaction.open_table(DAMAGED)?;
            let (mut packer, mut record) = (Packer::default(), Vec::new());
            let unreadable = if with_damaged { &self.unreadable[..] } else { &[] };
            for (index, lost) in unreadable.iter().enumerate() {
                let at = (revision, u32::try_from(index).unwrap_or(u32::MAX));
                let created = if lost.created == 0 { revision } else { lost.created };
                let mark = [DAMAGED_PREFIX, lost.what.as_bytes()].concat();
                Record::encode(&mut record, &mut packer, created, (0, 0), &lost.key, Some(&mark));
                log.insert(at, &record[..])?;
                let place = Place { at, created, dies_ms: lost.dies_ms };
                keys.insert(&lost.key[..], place.row())?;
                damaged.insert(&lost.key[..], revision)?;
                if lost.dies_ms != 0 {
                    mortal.insert((lost.dies_ms, &lost.key[..]), revision)?;
                }
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert(name::REVISION, revision)?;
            meta.insert(name::OLDEST, revision)?;
            meta.insert(name::SUPERSEDED, 0)?;
        }
        transaction.commit()?;
        Ok(Revision(revision))
    }

    fn record(&self, found: &Readable) -> Result<Vec<u8>, Fault> {
        let gone = || Damaged("it can no longer be read").at(found.at);
        let log = self.log.as_ref().ok_or_else(gone)?;
        let row = self.pages.row_at(log, found.row, |_, row| row.to_vec());
        row.map_err(redb::StorageError::Io)?.ok_or_else(gone)
    }

    /// Makes the new file in a folder; its owner gives it its name.
    fn make(&self, folder: &Path, with_damaged: bool) -> Result<(NewFile, Revision), DiskError> {
        let place = NewFile::new(folder, PARTIAL)?;
        let of_file = |fault: Fault| fault.of_file(place.path());
        let database =
            Database::create(place.path()).map_err(|error| of_file(Fault::from(error)))?;
        file::prepare(&database, place.path())?;
        let revision = self.write(&database, with_damaged).map_err(of_file)?;
        Ok((place, revision))
    }

    /// Puts what can be read into the file's place. The damaged file stays beside it, as
    /// `store.redb.damaged-<revision>`.
    fn replace(self, folder: &Path) -> Result<(), DiskError> {
        let (place, revision) = self.make(folder, true)?;
        let mut aside = self.path.clone().into_os_string();
        aside.push(format!(".damaged-{revision}"));
        let aside = PathBuf::from(aside);
        // A link, so that at no time a start finds no store and makes an empty one.
        fs::hard_link(&self.path, &aside).map_err(io_error("keep the damaged file as", &aside))?;
        place.replace(&self.path)
    }
}

/// Makes a damaged file one that can be served, if `on_damage` says so.
pub(super) fn settle(folder: &Path, path: &Path, on_damage: OnDamage) -> Result<(), DiskError> {
    match (survey(path)?, on_damage) {
        (None, _) => Ok(()),
        (Some(salvage), OnDamage::Refuse) => Err(salvage.refusal()),
        (Some(salvage), OnDamage::Serve) => guarded(path, || salvage.replace(folder)),
    }
}

/// As [`settle`] for a file whose pages are right and that the engine refuses all the same.
pub(super) fn settle_refused(
    folder: &Path,
    path: &Path,
    refusal: DiskError,
    on_damage: OnDamage,
) -> Result<(), DiskError> {
    match (&refusal, on_damage) {
        (DiskError::Damaged { .. }, OnDamage::Serve) => {
            guarded(path, || salvage(path)?.replace(folder))
        }
        _ => Err(refusal),
    }
}

impl DiskStore {
    /// Makes a store in a folder that has none, out of what can be read of another folder's file,
    /// without history and without what is damaged. Nobody may have either open. Blocks. Gives the
    /// revision that the new store stands at, and what was left out.
    ///
    /// # Errors
    ///
    /// The folder has a store; the other one is in use, or nothing of its file can be read; there
    /// is no room.
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
            place.settle(&path)?;
            Ok((revision, salvage.damage.clone()))
        })
    }
}

/// Whether a lost part of `log` may have held a record newer than a revision.
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

/// A key of `log`, as redb writes it.
fn log_key(key: &[u8]) -> Option<(u64, u32)> {
    Some((number(key, 0)?, number_32(key, 8)?))
}

/// A row of `keys`, as redb writes it.
fn place(row: &[u8]) -> Option<Place> {
    let row: KeyRow = (number(row, 0)?, number_32(row, 8)?, number(row, 12)?, number(row, 20)?);
    Some(Place::of(row))
}
