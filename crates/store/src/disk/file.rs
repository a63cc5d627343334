//! Creating, opening and migrating the file.
//!
//! A new file has a temporary name, and is renamed once it is whole and synced. So a file with the
//! right name was whole at some time, and an empty one is damaged, not new. Before a file is opened
//! for writing it is checked. A file that this program cannot open stays unchanged to the byte.

use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase, StorageBackend};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    FILE,
    batch::{BatchTables, Position, Scratch},
    damage::OnDamage,
    error::{DiskError, Fault},
    journal::{self, Journal},
    layout::{EXPIRING, FORMAT, KEYS, LOG, META, name},
    lock::Locked,
    migrate,
    read::View,
    salvage,
};

/// Opens the engine's file. Tests pass their own.
pub(super) type OpenFile = dyn Fn(&Path) -> Result<Database, Fault> + Send;

/// The error for a failed I/O operation on a folder.
pub(super) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError::Io { what, path, source }
}

/// Creates the folder, and an empty store in it, if they are missing.
pub(super) fn make_missing(folder: &Path) -> Result<(), DiskError> {
    make_folder(folder)?;
    let path = folder.join(FILE);
    if fs::symlink_metadata(&path).is_ok() {
        return Ok(());
    }
    let place = NewFile::new(folder, "creating.redb")?;
    let made = || {
        let database = Database::builder().create(place.path())?;
        prepare_tables(&database)
    };
    made().map_err(|fault: Fault| fault.of_file(place.path()))?;
    // What a removed store left behind is not this one's.
    journal::remove(folder)?;
    place.rename_to(&path)
}

/// Creates a folder that only its owner can read, and syncs its parent so that it survives a power
/// cut.
pub(super) fn make_folder(folder: &Path) -> Result<(), DiskError> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists()).collect();
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder).map_err(io_error("make the folder", folder))?;
    for made in missing {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

pub(super) fn sync_folder(folder: &Path) -> Result<(), DiskError> {
    let opened = File::open(folder).map_err(io_error("open", folder))?;
    opened.sync_all().map_err(io_error("sync the folder", folder))
}

/// A new file in a folder, under a temporary name. Deleted when dropped without a rename.
pub(super) struct NewFile {
    folder: PathBuf,
    path: PathBuf,
    /// A lock on the folder, so that no other process creates a file in it.
    _lock: Locked,
}

impl NewFile {
    /// Creates an empty file. Replaces one that a crashed process left behind.
    pub(super) fn new(folder: &Path, name: &str) -> Result<Self, DiskError> {
        let lock = Locked::exclusive(folder)?;
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path)(error));
            }
            _ => {}
        }
        let mut options = File::options();
        options.write(true).create_new(true);
        // Only the owner may read it, because it holds Secrets.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&path).map_err(io_error("make", &path))?;
        Ok(Self { folder: folder.to_owned(), path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames it to `path`, which must not exist.
    pub(super) fn rename_to(self, path: &Path) -> Result<(), DiskError> {
        if fs::symlink_metadata(path).is_ok() {
            let error = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(io_error("write over", path)(error));
        }
        self.replace(path)
    }

    /// Renames it to `path` and replaces the file there.
    pub(super) fn replace(self, path: &Path) -> Result<(), DiskError> {
        let made = File::open(&self.path).map_err(io_error("open", &self.path))?;
        made.sync_all().map_err(io_error("sync", &self.path))?;
        fs::rename(&self.path, path).map_err(io_error("name", path))?;
        sync_folder(&self.folder)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It was renamed or is not needed. A failed removal has no effect.
        drop(fs::remove_file(&self.path));
    }
}

/// Opens an existing store's file for maintenance.
pub(super) fn open_existing(path: &Path) -> Result<Database, DiskError> {
    if let Some(damaged) = salvage::survey(path)? {
        return Err(damaged.refusal());
    }
    check_openable(path)?;
    let database = open(path, None).map_err(|fault| fault.of_file(path))?;
    prepare(&database, path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    file_journal(&database, journal::open(folder)?, path, OnDamage::Refuse)?;
    Ok(database)
}

/// Moves the commits of the journal into the file, and begins a lap of the journal.
pub(super) fn file_journal(
    database: &Database,
    journal: Box<dyn StorageBackend>,
    path: &Path,
    on_damage: OnDamage,
) -> Result<Journal, DiskError> {
    let of_file = |fault: Fault| fault.of_file(path);
    let before = position(database).map_err(of_file)?.0;
    let beside = path.with_file_name(journal::FILE);
    let (mut journal, found) =
        Journal::of(journal, before.revision).map_err(io_error("read", &beside))?;
    let is_damaged = found.damage.is_some();
    if let (Some(what), OnDamage::Refuse) = (found.damage, on_damage) {
        return Err(DiskError::Damaged { path: beside, what });
    }
    if !found.entries.is_empty() {
        let filed = || {
            let mut transaction = database.begin_write()?;
            transaction.set_quick_repair(true);
            let mut scratch = Scratch::default();
            let mut tables = BatchTables::open(&transaction, before, &mut scratch)?;
            for entry in &found.entries {
                tables.file(entry)?;
            }
            let position = tables.close()?;
            transaction.commit()?;
            Ok(position)
        };
        journal.begin(filed().map_err(of_file)?.revision);
    }
    if is_damaged {
        journal.begin(skip_revisions(database).map_err(of_file)?);
        journal.clear().map_err(io_error("clear", &beside))?;
    }
    Ok(journal)
}

/// Continues behind the revisions of acknowledged commits that are lost, without history: a client
/// that has seen one of them must not take another commit for it. Returns the new revision.
fn skip_revisions(database: &Database) -> Result<u64, Fault> {
    let before = position(database)?.0;
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    let mut scratch = Scratch::default();
    let mut tables = BatchTables::open(&transaction, before, &mut scratch)?;
    if before.oldest < before.revision {
        // Unreadable history is retained.
        tables.compact(before.revision, usize::MAX).or_else(Fault::not_of_a_record)?;
    }
    tables.now.revision += salvage::REVISION_GAP;
    tables.now.oldest = tables.now.revision;
    let position = tables.close()?;
    transaction.commit()?;
    Ok(position.revision)
}

/// Opens an existing file. `cache_bytes` is the size of its cache in memory.
pub(super) fn open(path: &Path, cache_bytes: Option<usize>) -> Result<Database, Fault> {
    let mut builder = Database::builder();
    if let Some(cache_bytes) = cache_bytes {
        builder.set_cache_size(cache_bytes);
    }
    Ok(builder.open(path)?)
}

/// Fails if this program cannot open the file. Does not write to it.
pub(super) fn check_openable(path: &Path) -> Result<(), DiskError> {
    check_openable_with(path, |_| Ok(()))
}

/// As [`check_openable`], and also runs `read` on the content if the format is current and the
/// file was closed cleanly.
pub(super) fn check_openable_with(
    path: &Path,
    read: impl FnOnce(&View) -> Result<(), Fault>,
) -> Result<(), DiskError> {
    let of_file = |fault: Fault| fault.of_file(path);
    let length = fs::metadata(path).map_err(io_error("open", path))?.len();
    if length == 0 {
        let what = "it is empty".to_owned();
        return Err(DiskError::Damaged { path: path.to_owned(), what });
    }
    match Database::builder().open_read_only(path) {
        Ok(database) => {
            let found = format(&database).map_err(of_file)?;
            check_format(found, path)?;
            if found == Some(FORMAT) {
                let (position, snapshot) = position(&database).map_err(of_file)?;
                read(&View::unserved(snapshot, position)).map_err(of_file)?;
            }
            Ok(())
        }
        // It was not closed cleanly. Opening it for writing repairs it.
        Err(DatabaseError::RepairAborted) => Ok(()),
        Err(error) => Err(of_file(error.into())),
    }
}

fn check_format(found: Option<u64>, path: &Path) -> Result<(), DiskError> {
    match found {
        Some(found) if found > FORMAT => {
            Err(DiskError::TooNew { path: path.to_owned(), found, known: FORMAT })
        }
        Some(0) => {
            let what = "format 0 does not exist".to_owned();
            Err(DiskError::Damaged { path: path.to_owned(), what })
        }
        Some(_) | None => Ok(()),
    }
}

/// Creates the tables of an empty file, or migrates those of an older program. Fails for unknown
/// formats.
pub(super) fn prepare(database: &Database, path: &Path) -> Result<(), DiskError> {
    let of_file = |fault: Fault| fault.of_file(path);
    let found = format(database).map_err(of_file)?;
    check_format(found, path)?;
    match found {
        None => prepare_tables(database).map_err(of_file),
        Some(FORMAT) => Ok(()),
        Some(found) => {
            migrate::migrate_to(database, found, FORMAT, migrate::STEPS).map_err(of_file)
        }
    }
}

/// The format of a file. `None` if it is empty.
fn format(database: &impl ReadableDatabase) -> Result<Option<u64>, Fault> {
    let transaction = database.begin_read()?;
    match transaction.open_table(META) {
        Ok(meta) => {
            let found = meta.get(name::FORMAT)?.map(|row| row.value());
            Ok(Some(found.ok_or(super::layout::Damaged("it has no format number"))?))
        }
        Err(redb::TableError::TableDoesNotExist(_))
            if transaction.list_tables()?.next().is_none() =>
        {
            Ok(None)
        }
        Err(redb::TableError::TableDoesNotExist(_)) => Err(Fault::Foreign),
        Err(error) => Err(error.into()),
    }
}

fn prepare_tables(database: &Database) -> Result<(), Fault> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    {
        transaction.open_table(KEYS)?;
        transaction.open_table(LOG)?;
        transaction.open_table(EXPIRING)?;
        let mut meta = transaction.open_table(META)?;
        meta.insert(name::FORMAT, FORMAT)?;
        // Like a new etcd.
        meta.insert(name::REVISION, 1)?;
        meta.insert(name::OLDEST, 1)?;
        meta.insert(name::SUPERSEDED, 0)?;
    }
    Ok(transaction.commit()?)
}

/// The position of the store in a file, with a snapshot of the file.
pub(super) fn position(
    database: &impl ReadableDatabase,
) -> Result<(Position, ReadTransaction), Fault> {
    let transaction = database.begin_read()?;
    let position = position_in(&transaction)?;
    Ok((position, transaction))
}

pub(super) fn position_in(transaction: &ReadTransaction) -> Result<Position, Fault> {
    let meta = transaction.open_table(META)?;
    let number = |name: &str| -> Result<u64, Fault> {
        let row = meta.get(name)?;
        Ok(row.ok_or(super::layout::Damaged("a number is missing in `meta`"))?.value())
    };
    Ok(Position {
        revision: number(name::REVISION)?,
        oldest: number(name::OLDEST)?,
        superseded: number(name::SUPERSEDED)?,
    })
}
