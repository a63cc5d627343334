//! The file: how it is made, opened, and brought forward from older programs.
//!
//! A file is made under another name and gets its own once it is whole and synced, so that one
//! under that name was whole at some time: an empty one is damaged, not new. Before a file is
//! opened for writing it is looked at; one that is not this program's to open is left as it is, to
//! the byte.

use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    FILE,
    batch::Standing,
    error::{DiskError, Fault},
    layout::{FORMAT, KEYS, LOG, META, MORTAL, name},
    lock::Locked,
    migrate,
    read::View,
    salvage,
};

/// How the engine's file is opened: a real one, or a test's.
pub(super) type OpenFile = dyn Fn(&Path) -> Result<Database, Fault> + Send;

/// What an I/O error is where somebody looks after a folder.
pub(super) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError::Io { what, path, source }
}

/// Makes the folder, and an empty store in it, where they are missing.
pub(super) fn make_missing(folder: &Path) -> Result<(), DiskError> {
    make_folder(folder)?;
    let path = folder.join(FILE);
    if fs::symlink_metadata(&path).is_ok() {
        return Ok(());
    }
    let place = Place::new(folder, "creating.redb")?;
    let made = || {
        let database = Database::builder().create(place.path())?;
        prepare_tables(&database)
    };
    made().map_err(|fault: Fault| fault.of_file(place.path()))?;
    place.settle(&path)
}

/// Makes a folder that only its owner can look into, and sees to it that a power cut does not take
/// it away.
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

fn sync_folder(folder: &Path) -> Result<(), DiskError> {
    let opened = File::open(folder).map_err(io_error("open", folder))?;
    opened.sync_all().map_err(io_error("sync the folder", folder))
}

/// A file that is being made in a folder, under a name of its own; gone when this is dropped before
/// it got its right one.
pub(super) struct Place {
    folder: PathBuf,
    path: PathBuf,
    /// The folder itself, locked: nobody else makes a file in it.
    _lock: Locked,
}

impl Place {
    /// An empty file. One that was left behind by a program that died goes.
    pub(super) fn new(folder: &Path, name: &str) -> Result<Self, DiskError> {
        let lock = Locked::alone(folder)?;
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path)(error));
            }
            _ => {}
        }
        let mut options = File::options();
        options.write(true).create_new(true);
        // It holds Secrets.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&path).map_err(io_error("make", &path))?;
        Ok(Self { folder: folder.to_owned(), path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it the right name, which nobody has yet.
    pub(super) fn settle(self, path: &Path) -> Result<(), DiskError> {
        if fs::symlink_metadata(path).is_ok() {
            let error = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(io_error("write over", path)(error));
        }
        self.replace(path)
    }

    /// Gives it the right name; the file that had it goes.
    pub(super) fn replace(self, path: &Path) -> Result<(), DiskError> {
        let made = File::open(&self.path).map_err(io_error("open", &self.path))?;
        made.sync_all().map_err(io_error("sync", &self.path))?;
        fs::rename(&self.path, path).map_err(io_error("name", path))?;
        sync_folder(&self.folder)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It has its right name, or is of no use; whether it goes is said by nothing else.
        drop(fs::remove_file(&self.path));
    }
}

/// Opens a store's file that must be there, for whoever looks after it.
pub(super) fn open_existing(path: &Path) -> Result<Database, DiskError> {
    if let Some(damaged) = salvage::survey(path)? {
        return Err(damaged.refusal());
    }
    look(path)?;
    let database = open(path, None).map_err(|fault| fault.of_file(path))?;
    prepare(&database, path)?;
    Ok(database)
}

/// Opens a file that must be there. With `cache_bytes`, so much of it is kept in memory.
pub(super) fn open(path: &Path, cache_bytes: Option<usize>) -> Result<Database, Fault> {
    let mut builder = Database::builder();
    if let Some(cache_bytes) = cache_bytes {
        builder.set_cache_size(cache_bytes);
    }
    Ok(builder.open(path)?)
}

/// Refuses a file that is not this program's to open, without a write to it.
pub(super) fn look(path: &Path) -> Result<(), DiskError> {
    look_into(path, |_| Ok(()))
}

/// As [`look`], and has what is in a file of this program's format looked at, if it was closed.
pub(super) fn look_into(
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
                let (standing, snapshot) = standing(&database).map_err(of_file)?;
                read(&View::alone(snapshot, standing)).map_err(of_file)?;
            }
            Ok(())
        }
        // It was not closed: opening it for writing mends it.
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
            let what = "there was never a format 0".to_owned();
            Err(DiskError::Damaged { path: path.to_owned(), what })
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes the tables of an empty file, or brings those of an older program forward, or refuses what
/// it does not know.
pub(super) fn prepare(database: &Database, path: &Path) -> Result<(), DiskError> {
    let of_file = |fault: Fault| fault.of_file(path);
    let found = format(database).map_err(of_file)?;
    check_format(found, path)?;
    match found {
        None => prepare_tables(database).map_err(of_file),
        Some(FORMAT) => Ok(()),
        Some(found) => {
            migrate::bring_forward(database, found, FORMAT, migrate::STEPS).map_err(of_file)
        }
    }
}

/// The format of a file; `None` when there is nothing in it at all.
fn format(database: &impl ReadableDatabase) -> Result<Option<u64>, Fault> {
    let transaction = database.begin_read()?;
    match transaction.open_table(META) {
        Ok(meta) => {
            let found = meta.get(name::FORMAT)?.map(|row| row.value());
            Ok(Some(found.ok_or(super::layout::Damaged("it does not say which format it has"))?))
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
        transaction.open_table(MORTAL)?;
        let mut meta = transaction.open_table(META)?;
        meta.insert(name::FORMAT, FORMAT)?;
        // A fresh etcd stands at revision 1, too.
        meta.insert(name::REVISION, 1)?;
        meta.insert(name::OLDEST, 1)?;
        meta.insert(name::SUPERSEDED, 0)?;
    }
    Ok(transaction.commit()?)
}

/// Where the store in a file stands, with the file as it is now.
pub(super) fn standing(
    database: &impl ReadableDatabase,
) -> Result<(Standing, ReadTransaction), Fault> {
    let transaction = database.begin_read()?;
    let standing = standing_in(&transaction)?;
    Ok((standing, transaction))
}

pub(super) fn standing_in(transaction: &ReadTransaction) -> Result<Standing, Fault> {
    let meta = transaction.open_table(META)?;
    let number = |name: &str| -> Result<u64, Fault> {
        let row = meta.get(name)?;
        Ok(row.ok_or(super::layout::Damaged("a number is missing in `meta`"))?.value())
    };
    Ok(Standing {
        revision: number(name::REVISION)?,
        oldest: number(name::OLDEST)?,
        superseded: number(name::SUPERSEDED)?,
    })
}
