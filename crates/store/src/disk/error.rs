//! Why a data folder cannot be used.

use std::{io, path::PathBuf};

use super::{damage::Damage, layout::Damaged};
use crate::contract::StoreError;

/// Why a data folder cannot be opened, checked, copied or restored. Whatever it is, the store is as
/// it was.
///
/// Each says what can be done about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// Another process has the folder open.
    #[error("{} is in use by another process: stop that one, or choose another folder", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The folder or the file cannot be reached: missing, read-only, no permission, no room.
    #[error("cannot {what} {}{}", .path.display(), remedy(.source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file was written by a newer program.
    #[error("{} has format {found}, this program reads up to {known}: use a newer program", .path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest known.
        known: u64,
    },
    /// The file's content is not what was written.
    #[error("{} is damaged: {what}: move it away and restore a backup with `setpoint store restore`", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// Some of the file's pages are not what was written; what they held is known, and the rest can
    /// be read.
    #[error(
        "{} is damaged: {damage}: `setpoint store check` says more, `setpoint up --damaged=serve` serves what can be read, \
         `setpoint store restore` takes a backup, or what can be read (`--salvage`)",
        .path.display()
    )]
    DamagedObjects {
        /// The file.
        path: PathBuf,
        /// What of it.
        damage: Box<Damage>,
    },
    /// A copy's content is not what was written into it.
    #[error("{} is damaged: {what}: use another copy; nothing was restored", .path.display())]
    DamagedCopy {
        /// The copy.
        path: PathBuf,
        /// What is wrong, in which frame, at which byte.
        what: String,
    },
}

impl DiskError {
    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

/// What can be done about an I/O error, as a remark, if that is known.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (choose a folder that this user owns, or change its mode)"
        }
        io::ErrorKind::ReadOnlyFilesystem => " (mount it for writing, or choose another folder)",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (make room, or choose another folder)"
        }
        io::ErrorKind::NotFound => " (is it the right folder?)",
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => " (choose another one)",
        _ => "",
    }
}

/// Does something with a file. One that is damaged can make redb come upon what it holds for
/// impossible.
pub(super) fn guarded<T>(
    path: &std::path::Path,
    work: impl FnOnce() -> Result<T, DiskError>,
) -> Result<T, DiskError> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err(Fault::Panicked.of_file(path)))
}

/// A copy of a store that cannot be used.
pub(super) fn damaged_copy(path: &std::path::Path, what: String) -> DiskError {
    DiskError::DamagedCopy { path: path.to_owned(), what }
}

/// What went wrong inside a transaction; where it becomes visible depends on who asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Engine(redb::Error),
    #[error("a record is damaged: {0}")]
    Record(#[from] Damaged),
    #[error("the record at revision {}, place {}: {damage}", .at.0, .at.1)]
    RecordAt { at: (u64, u32), damage: Damaged },
    /// The same, and whose record it is.
    #[error("{key}: {fault}")]
    Object { key: String, fault: Box<Fault> },
    /// The file has tables, and they are not this engine's.
    #[error("it is another program's: choose another folder")]
    Foreign,
    /// The contract's own refusals: compacted, in the future.
    #[error(transparent)]
    Refused(#[from] StoreError),
    /// redb came upon something that it holds for impossible.
    #[error(
        "the engine stopped in the middle: the file may be damaged, `setpoint store check` tells"
    )]
    Panicked,
    /// A write failed in a mode in which nobody knows what a failed sync has left behind.
    #[error(
        "writing failed before, and what reached the disk is not known: start the program again"
    )]
    Broken,
}

macro_rules! engine_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Self::Engine(error.into())
            }
        }
    )*};
}
engine_errors!(
    redb::StorageError,
    redb::TableError,
    redb::TransactionError,
    redb::CommitError,
    redb::DatabaseError,
    redb::CompactionError,
    redb::SetDurabilityError
);

impl Fault {
    /// As a caller of the store sees it when nothing was written.
    pub(super) fn unavailable(&self) -> StoreError {
        match self {
            Self::Refused(error) => error.clone(),
            // What redb came upon where it should not have been is a page that is not as it was
            // written.
            Self::Record(_)
            | Self::RecordAt { .. }
            | Self::Object { .. }
            | Self::Panicked
            | Self::Engine(redb::Error::Corrupted(_)) => StoreError::Damaged(self.to_string()),
            Self::Engine(redb::Error::Io(error)) if is_full(error) => {
                StoreError::Full(error.to_string())
            }
            error => StoreError::Unavailable(error.to_string()),
        }
    }

    /// A reading thread that did not end by itself.
    pub(super) fn of_thread(error: &tokio::task::JoinError) -> Self {
        if error.is_panic() { Self::Panicked } else { Self::Refused(StoreError::Closed) }
    }

    /// Whether the engine refuses everything after an earlier failure, until the file is opened
    /// again.
    pub(super) fn is_of_before(&self) -> bool {
        matches!(self, Self::Engine(redb::Error::PreviousIo | redb::Error::DatabaseClosed))
    }

    /// Whose record it is, if it is about a record.
    pub(super) fn of_key(self, key: &[u8]) -> Self {
        match self {
            Self::Record(_) | Self::RecordAt { .. } => Self::Object {
                key: String::from_utf8_lossy(key).into_owned(),
                fault: Box::new(self),
            },
            fault => fault,
        }
    }

    /// A record that cannot be read breaks nothing but what asked for it.
    pub(super) fn not_of_a_record(self) -> Result<(), Self> {
        match self {
            Self::Record(_) | Self::RecordAt { .. } | Self::Object { .. } => Ok(()),
            fault => Err(fault),
        }
    }

    /// As somebody who opens a file sees it.
    pub(super) fn of_file(self, path: &std::path::Path) -> DiskError {
        let path = path.to_owned();
        match self {
            Self::Engine(redb::Error::DatabaseAlreadyOpen) => DiskError::InUse { path },
            // So redb says that it does not know the file at all.
            Self::Engine(redb::Error::Io(source))
                if source.kind() == io::ErrorKind::InvalidData =>
            {
                DiskError::Damaged { path, what: "it is no store".into() }
            }
            Self::Engine(redb::Error::Io(source)) => DiskError::Io { what: "use", path, source },
            Self::Engine(redb::Error::Corrupted(what)) => DiskError::Damaged { path, what },
            error => DiskError::Damaged { path, what: error.to_string() },
        }
    }
}

/// Whether there is no room left, by the disk or by a quota.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
