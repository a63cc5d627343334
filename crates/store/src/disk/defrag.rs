//! Giving space back: the store is copied into a new file, which then takes the old one's place.
//!
//! redb can make a file smaller where it is, but commits to it as it goes along with one sync each,
//! and after a sync that failed such a commit cannot be told from a whole one. Here the old file is
//! only read until the new one is synced; whatever happens before that leaves it as it was, and a
//! file that was half made is made anew by the next defrag.

use redb::{Database, Durability, ReadTransaction, TableDefinition};
use std::{fs, path::Path};

use super::{
    DiskStore, FILE,
    damage::DAMAGED,
    error::{DiskError, Fault, guarded},
    file::{self, Place, io_error, open_existing},
    layout::{KEYS, LOG, META, MORTAL},
    read::View,
    stat::length,
};

/// The name of the file while it is made.
const PARTIAL: &str = "defragmenting.redb";
/// How many rows one transaction of the new file takes in.
const ROWS: usize = 10_000;

impl DiskStore {
    /// Gives the space of what was deleted and compacted back to the file system. Blocks; nobody
    /// may have the folder open. There must be room for a second file as large as what is kept.
    /// Gives the file's length before and after, in bytes.
    ///
    /// # Errors
    ///
    /// The folder is in use, has no store or cannot be written; there is no room. The store is as
    /// it was.
    pub fn defrag(folder: impl AsRef<Path>) -> Result<(u64, u64), DiskError> {
        let folder = folder.as_ref();
        let path = folder.join(FILE);
        guarded(&path, || Self::defrag_file(folder, &path))
    }

    fn defrag_file(folder: &Path, path: &Path) -> Result<(u64, u64), DiskError> {
        // Open, and so nobody else's, until the new one is in its place.
        let database = open_existing(path)?;
        let before = length(path);
        let (standing, snapshot) =
            file::standing(&database).map_err(|fault| fault.of_file(path))?;
        let view = View::alone(snapshot, standing);
        let place = Place::new(folder, PARTIAL)?;
        let permissions = fs::metadata(path).map_err(io_error("look at", path))?.permissions();
        let made = || {
            let mut copy = Database::builder().create(place.path())?;
            view.copy(&mut copy)?;
            Ok(copy)
        };
        let copy = made().map_err(|fault: Fault| fault.of_file(place.path()))?;
        drop(copy);
        // What was synced is what is there, or it does not take anybody's place.
        let copied = file::open(place.path(), None).and_then(|copy| Ok(file::standing(&copy)?.0));
        if copied.map_err(|fault| fault.of_file(place.path()))? != standing {
            let what = "it did not keep what was written to it".to_owned();
            return Err(DiskError::Damaged { path: place.path().to_owned(), what });
        }
        fs::set_permissions(place.path(), permissions)
            .map_err(io_error("set the mode of", place.path()))?;
        place.replace(path)?;
        drop(view);
        drop(database);
        Ok((before, length(path)))
    }
}

impl View {
    /// Writes everything into an empty file, and syncs it.
    pub(super) fn copy(&self, to: &mut Database) -> Result<(), Fault> {
        copy_table(&self.snapshot, to, META)?;
        copy_table(&self.snapshot, to, KEYS)?;
        copy_table(&self.snapshot, to, LOG)?;
        copy_table(&self.snapshot, to, MORTAL)?;
        // Only a file that was made of a damaged one has it.
        match self.snapshot.open_table(DAMAGED) {
            Ok(_) => copy_table(&self.snapshot, to, DAMAGED)?,
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // In order of keys, pages are left half full.
        to.compact()?;
        Ok(())
    }
}

fn copy_table<K: redb::Key + 'static, V: redb::Value + 'static>(
    from: &ReadTransaction,
    to: &Database,
    table: TableDefinition<'static, K, V>,
) -> Result<(), Fault> {
    let from = from.open_table(table)?;
    let mut rows = from.range::<K::SelfType<'_>>(..)?;
    loop {
        let mut n = 0;
        let mut transaction = to.begin_write()?;
        transaction.set_durability(Durability::None)?;
        {
            let mut to = transaction.open_table(table)?;
            for row in rows.by_ref().take(ROWS) {
                let (key, value) = row?;
                to.insert(key.value(), value.value())?;
                n += 1;
            }
        }
        transaction.commit()?;
        if n < ROWS {
            return Ok(());
        }
    }
}
