//! A file, or a folder, that is locked while it is looked at or made.
//!
//! Closing a file is not enough to free it: a process that another thread is just starting has a
//! copy of every open file until it becomes its program, and the lock is the file's until the last
//! copy is closed. So the lock is let go in words.

use std::{
    fs::{File, TryLockError},
    ops::Deref,
    path::Path,
};

use super::{error::DiskError, file::io_error};

/// Locked until it is dropped. On a file system that knows no locks it is just open.
#[derive(Debug)]
pub(super) struct Locked(File);

impl Locked {
    /// For a reader among others; a writer is kept out.
    pub(super) fn shared(path: &Path) -> Result<Self, DiskError> {
        Self::open(path, File::try_lock_shared)
    }

    /// For one alone.
    pub(super) fn alone(path: &Path) -> Result<Self, DiskError> {
        Self::open(path, File::try_lock)
    }

    fn open(
        path: &Path,
        lock: impl Fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Self, DiskError> {
        let file = File::open(path).map_err(io_error("open", path))?;
        match lock(&file) {
            Err(TryLockError::WouldBlock) => Err(DiskError::InUse { path: path.to_owned() }),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self(file)),
        }
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A lock that cannot be let go here goes with the file.
        drop(self.0.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::Locked;
    use std::fs;

    #[test]
    fn file_is_free_though_a_process_that_is_being_started_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        fs::write(&path, "").unwrap();
        for lock in [Locked::shared, Locked::alone] {
            let locked = lock(&path).unwrap();
            // What a child has until it becomes its program.
            let inherited = locked.try_clone().unwrap();
            Locked::alone(&path).unwrap_err();
            drop(locked);
            Locked::alone(&path).unwrap();
            drop(inherited);
        }
    }

    #[test]
    fn readers_share_and_keep_a_writer_out() {
        let folder = tempfile::tempdir().unwrap();
        let first = Locked::shared(folder.path()).unwrap();
        let second = Locked::shared(folder.path()).unwrap();
        drop(first);
        Locked::alone(folder.path()).unwrap_err();
        drop(second);
        Locked::alone(folder.path()).unwrap();
    }
}
