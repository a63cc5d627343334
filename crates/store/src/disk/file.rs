//! Creating, opening and migrating the file.
//!
//! A new file has a temporary name, and is renamed once it is whole and synced. So a file with the
//! right name was whole at some time, and an empty one is damaged, not new. Before a file is opened
//! for writing it is checked. A file that this program cannot open stays unchanged to the byte.

use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase};
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
    journal::{self, Found, InFolder, Journal, Mark, OpenJournal},
    layout::{EXPIRING, FORMAT, KEYS, LOG, META, name},
    lock::Locked,
    migrate,
    read::View,
    salvage,
};
use crate::contract::Revision;

/// Maximum number of damaged files of one revision in a folder.
const ASIDE_MAX: u32 = 100;

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

/// Keeps a damaged file as `<path>.damaged-<revision>`, before a new one takes its place. A hard
/// link, so that a start at any moment finds a store and does not create an empty one.
pub(super) fn keep_aside(path: &Path, revision: Revision) -> Result<(), DiskError> {
    let mut n = 1;
    loop {
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".damaged-{revision}"));
        if n > 1 {
            aside.push(format!(".{n}"));
        }
        let aside = PathBuf::from(aside);
        match fs::hard_link(path, &aside) {
            // Another one, or a link of a process that was killed before it replaced the file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < ASIDE_MAX => n += 1,
            linked => return linked.map_err(io_error("keep the damaged file as", &aside)),
        }
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
    end_journal(&database, &InFolder(folder), path)?;
    Ok(database)
}

/// Moves the commits of the journal into the file, which may then go without it.
pub(super) fn end_journal(
    database: &Database,
    journal: &dyn OpenJournal,
    path: &Path,
) -> Result<(), DiskError> {
    if file_journal(database, journal, path, OnDamage::Refuse)?.journal.is_some() {
        write(database, |tables| tables.unmark_journal()).map_err(|fault| fault.of_file(path))?;
    }
    Ok(())
}

/// A journal whose commits were moved into the file.
pub(super) struct Moved {
    /// The journal, if the mark still names it.
    pub(super) journal: Option<Journal>,
    /// Damage that was found, after the journal's name.
    pub(super) damage: Option<String>,
}

/// Moves the commits of the journal into the file.
pub(super) fn file_journal(
    database: &Database,
    journal: &dyn OpenJournal,
    path: &Path,
    on_damage: OnDamage,
) -> Result<Moved, DiskError> {
    let of_file = |fault: Fault| fault.of_file(path);
    let (before, snapshot) = position(database).map_err(of_file)?;
    let mark = mark(&snapshot).map_err(of_file)?;
    drop(snapshot);
    let beside = path.with_file_name(journal::FILE);
    let read = || io_error("read", &beside);
    let file = journal.existing()?;
    let mut found = match &file {
        Some(file) => journal::read(&**file, mark, before.revision).map_err(read())?,
        None => Found::missing(mark, before.revision),
    };
    let damage = found.damage.take();
    if let (Some(what), OnDamage::Refuse) = (&damage, on_damage) {
        return Err(DiskError::DamagedJournal { path: beside, what: what.clone() });
    }
    let is_continued = matches!(mark, Mark::Id(_)) && damage.is_none();
    let ends = mark != Mark::Unused && !is_continued;
    let mut filed = before;
    if !found.entries.is_empty() || damage.is_some() || ends {
        // One transaction: without the mark, nothing of the journal is read again.
        filed = write(database, |tables| {
            found.entries.iter().try_for_each(|entry| tables.file(entry))?;
            if damage.is_some() {
                tables.skip_revisions(salvage::REVISION_GAP)?;
            }
            if is_continued { Ok(()) } else { tables.unmark_journal() }
        })
        .map_err(of_file)?;
    }
    let journal = match file.filter(|_| is_continued) {
        Some(file) => Some(Journal::continued(file, &found, filed.revision).map_err(read())?),
        None => None,
    };
    Ok(Moved { journal, damage })
}

/// Begins a journal, and then marks it as in use. `id` is not zero.
pub(super) fn begin_journal(
    database: &Database,
    journal: &dyn OpenJournal,
    path: &Path,
    id: u64,
) -> Result<Journal, DiskError> {
    let of_file = |fault: Fault| fault.of_file(path);
    let filed = position(database).map_err(of_file)?.0.revision;
    let beside = path.with_file_name(journal::FILE);
    let journal =
        Journal::create(journal.created()?, id, filed).map_err(io_error("write", &beside))?;
    let marked = || {
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        transaction.open_table(META)?.insert(name::JOURNAL, id)?;
        Ok(transaction.commit()?)
    };
    marked().map_err(of_file)?;
    Ok(journal)
}

/// Changes a file that is not served yet, in one transaction. Returns its new position.
pub(super) fn write(
    database: &Database,
    change: impl FnOnce(&mut BatchTables<'_>) -> Result<(), Fault>,
) -> Result<Position, Fault> {
    let before = position(database)?.0;
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    let mut scratch = Scratch::default();
    let mut tables = BatchTables::open(&transaction, before, &mut scratch)?;
    change(&mut tables)?;
    let position = tables.close()?;
    transaction.commit()?;
    Ok(position)
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

/// What the file says of the journal.
pub(super) fn mark(transaction: &ReadTransaction) -> Result<Mark, Fault> {
    let row = transaction.open_table(META)?.get(name::JOURNAL)?;
    Ok(Mark::of_row(row.map(|row| row.value())))
}
