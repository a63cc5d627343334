//! A locked file or folder.
//!
//! Closing a file does not release its lock at once: a child process that another thread is
//! starting holds a copy of every open file until its exec, and the lock ends with the last copy.
//! So `drop` unlocks explicitly.

use std::{
    fs::{File, TryLockError},
    ops::Deref,
    path::Path,
};

use super::{error::DiskError, file::io_error};

/// Locked until dropped. On a file system without locks the file is only open.
#[derive(Debug)]
pub(super) struct Locked(File);

impl Locked {
    /// A shared lock for readers, which excludes writers.
    pub(super) fn shared(path: &Path) -> Result<Self, DiskError> {
        Self::open(path, File::try_lock_shared)
    }

    /// An exclusive lock.
    pub(super) fn exclusive(path: &Path) -> Result<Self, DiskError> {
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
        // If unlocking fails, closing the file releases the lock.
        drop(self.0.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::Locked;
    use std::fs;

    #[test]
    fn unlocked_file_is_free_even_if_a_starting_child_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        fs::write(&path, "").unwrap();
        for lock in [Locked::shared, Locked::exclusive] {
            let locked = lock(&path).unwrap();
            // Stands for the copy that a child process has until its exec.
            let inherited = locked.try_clone().unwrap();
            Locked::exclusive(&path).unwrap_err();
            drop(locked);
            Locked::exclusive(&path).unwrap();
            drop(inherited);
        }
    }

    #[test]
    fn readers_share_and_keep_a_writer_out() {
        let folder = tempfile::tempdir().unwrap();
        let first = Locked::shared(folder.path()).unwrap();
        let second = Locked::shared(folder.path()).unwrap();
        drop(first);
        Locked::exclusive(folder.path()).unwrap_err();
        drop(second);
        Locked::exclusive(folder.path()).unwrap();
    }
}
