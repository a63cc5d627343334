//! A file that records whether one of its syncs has failed.

use redb::{BackendError, DatabaseError, StorageBackend, backends::FileBackend};
use std::{
    fs::File,
    io,
    ops::Bound,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Whether a sync may have failed: data written since the last successful sync may be lost without
/// a further error.
pub(super) type SyncFailed = Arc<AtomicBool>;

/// redb's file backend, with that record.
#[derive(Debug)]
pub(super) struct SyncedFile {
    file: FileBackend,
    has_failed: SyncFailed,
}

impl SyncedFile {
    /// Opens an existing file. Never creates one: a file that was removed must not come back empty.
    pub(super) fn open(path: &Path, has_failed: SyncFailed) -> Result<Self, DatabaseError> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { file: FileBackend::new(file)?, has_failed })
    }
}

impl StorageBackend for SyncedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().inspect_err(|_| self.has_failed.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
