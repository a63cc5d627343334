//! Returning free space: copies the store into a new file, which then replaces the old one.
//!
//! redb can shrink a file in place, but with many commits of one sync each, and a commit whose sync
//! failed looks like a complete one. Here the old file is only read until the new one is synced. A
//! failure before that leaves the old file unchanged, and the next defrag replaces the unfinished
//! file.

use redb::{Database, Durability, ReadTransaction, TableDefinition};
use std::{fs, path::Path};

use super::{
    DiskStore, FILE,
    damage::DAMAGED,
    error::{DiskError, Fault, guarded},
    file::{self, NewFile, io_error, open_existing},
    layout::{EXPIRING, KEYS, LOG, META},
    read::View,
    stat::length,
};

/// Temporary name of the new file.
const PARTIAL: &str = "defragmenting.redb";
/// Maximum number of rows in one transaction of the new file.
const ROWS: usize = 10_000;

impl DiskStore {
    /// Returns the space of deleted and compacted data to the file system. Blocks. No process may
    /// have the folder open. There must be room for a second file as large as the retained data.
    /// Returns the file's length before and after, in bytes.
    ///
    /// # Errors
    ///
    /// The folder is in use, has no store or cannot be written, or there is no room. The store is
    /// unchanged.
    pub fn defrag(folder: impl AsRef<Path>) -> Result<(u64, u64), DiskError> {
        let folder = folder.as_ref();
        let path = folder.join(FILE);
        guarded(&path, || Self::defrag_file(folder, &path))
    }

    fn defrag_file(folder: &Path, path: &Path) -> Result<(u64, u64), DiskError> {
        // Stays open, and so locked, until the new file replaces it.
        let database = open_existing(path)?;
        let before = length(path);
        let (position, snapshot) =
            file::position(&database).map_err(|fault| fault.of_file(path))?;
        let view = View::unserved(snapshot, position);
        let place = NewFile::new(folder, PARTIAL)?;
        let permissions =
            fs::metadata(path).map_err(io_error("read the permissions of", path))?.permissions();
        let made = || {
            let mut copy = Database::builder().create(place.path())?;
            view.copy(&mut copy)?;
            Ok(copy)
        };
        let copy = made().map_err(|fault: Fault| fault.of_file(place.path()))?;
        drop(copy);
        // Checks that the new file is complete before it replaces the old one.
        let copied = file::open(place.path(), None).and_then(|copy| Ok(file::position(&copy)?.0));
        if copied.map_err(|fault| fault.of_file(place.path()))? != position {
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
    /// Copies everything into an empty file, and syncs it.
    pub(super) fn copy(&self, to: &mut Database) -> Result<(), Fault> {
        copy_table(&self.snapshot, to, META)?;
        copy_table(&self.snapshot, to, KEYS)?;
        copy_table(&self.snapshot, to, LOG)?;
        copy_table(&self.snapshot, to, EXPIRING)?;
        // Only salvaged files have this table.
        match self.snapshot.open_table(DAMAGED) {
            Ok(_) => copy_table(&self.snapshot, to, DAMAGED)?,
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // Rows inserted in key order leave pages half full.
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
