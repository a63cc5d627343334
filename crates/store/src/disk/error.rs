//! Errors of a data folder.

use std::{io, path::PathBuf};

use super::{damage::Damage, layout::Damaged};
use crate::contract::StoreError;

/// Why a data folder cannot be opened, checked, copied or restored. The store is unchanged.
///
/// Each message names a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// Another process has the folder open.
    #[error("{} is in use by another process: stop that one, or choose another folder", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The folder or the file cannot be used: missing, read-only, no permission, no room.
    #[error("cannot {what} {}{}", .path.display(), remedy(.source))]
    Io {
        /// The failed operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
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
        /// The newest format that this program knows.
        known: u64,
    },
    /// The file's content does not match what was written.
    #[error("{} is damaged: {what}: move it away and restore a backup with `setpoint store restore`", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// The journal is missing, is not the store's, or is damaged. The newest commits are lost. What
    /// is before them can be served.
    #[error(
        "{} {what}: bring back the right file; or serve what is before them with `setpoint up --damaged=serve`, \
         or restore a backup with `setpoint store restore`",
        .path.display()
    )]
    DamagedJournal {
        /// The journal.
        path: PathBuf,
        /// What is wrong, and which commits are lost.
        what: String,
    },
    /// Some of the file's pages are damaged. It is known what they held, and the rest can be read.
    #[error(
        "{} is damaged: {damage}: `setpoint store check` lists the damage, `setpoint up --damaged=serve` serves what can be read, \
         `setpoint store restore` takes a backup, or what can be read (`--salvage`)",
        .path.display()
    )]
    DamagedObjects {
        /// The file.
        path: PathBuf,
        /// The damage.
        damage: Box<Damage>,
    },
    /// A copy's content does not match what was written.
    #[error("{} is damaged: {what}: use another copy; nothing was restored", .path.display())]
    DamagedCopy {
        /// The copy.
        path: PathBuf,
        /// The problem, with its frame and byte.
        what: String,
    },
}

impl DiskError {
    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

/// A remedy for an I/O error, if one is known.
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

/// Runs a function on a file and catches panics: a damaged file can violate redb's invariants.
pub(super) fn guarded<T>(
    path: &std::path::Path,
    work: impl FnOnce() -> Result<T, DiskError>,
) -> Result<T, DiskError> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err(Fault::Panicked.of_file(path)))
}

/// The error for a damaged copy of a store.
pub(super) fn damaged_copy(path: &std::path::Path, what: String) -> DiskError {
    DiskError::DamagedCopy { path: path.to_owned(), what }
}

/// A failure inside a transaction. The caller decides which error it becomes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Engine(redb::Error),
    #[error("a record is damaged: {0}")]
    Record(#[from] Damaged),
    #[error("the record at revision {}, place {}: {damage}", .at.0, .at.1)]
    RecordAt { at: (u64, u32), damage: Damaged },
    /// A fault, with the key of its record.
    #[error("{key}: {fault}")]
    Object { key: String, fault: Box<Fault> },
    /// The file has tables that are not this engine's.
    #[error("it is another program's: choose another folder")]
    Foreign,
    /// An error of the contract: compacted, or in the future.
    #[error(transparent)]
    Refused(#[from] StoreError),
    /// redb panicked.
    #[error("the engine panicked: the file may be damaged, run `setpoint store check`")]
    Panicked,
    /// An earlier write failed without quick repair, so the effects of its failed sync are unknown.
    #[error(
        "an earlier write failed, and it is unknown what reached the disk: restart the program"
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
    /// The error for a caller of the store if nothing was written.
    pub(super) fn unavailable(&self) -> StoreError {
        match self {
            Self::Refused(error) => error.clone(),
            // A panic of redb means a damaged page.
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

    /// A reading thread that panicked or was cancelled.
    pub(super) fn of_join_error(error: &tokio::task::JoinError) -> Self {
        if error.is_panic() { Self::Panicked } else { Self::Refused(StoreError::Closed) }
    }

    /// Whether the engine refuses everything because of an earlier failure, until the file is
    /// opened again.
    pub(super) fn is_from_earlier_failure(&self) -> bool {
        matches!(self, Self::Engine(redb::Error::PreviousIo | redb::Error::DatabaseClosed))
    }

    /// Adds the key, if the fault is about a record.
    pub(super) fn of_key(self, key: &[u8]) -> Self {
        match self {
            Self::Record(_) | Self::RecordAt { .. } => Self::Object {
                key: String::from_utf8_lossy(key).into_owned(),
                fault: Box::new(self),
            },
            fault => fault,
        }
    }

    /// `Ok` if the fault is an unreadable record, which fails only the request that reads it.
    pub(super) fn not_of_a_record(self) -> Result<(), Self> {
        match self {
            Self::Record(_) | Self::RecordAt { .. } | Self::Object { .. } => Ok(()),
            fault => Err(fault),
        }
    }

    /// The error for a caller that opens a file.
    pub(super) fn of_file(self, path: &std::path::Path) -> DiskError {
        let path = path.to_owned();
        match self {
            Self::Engine(redb::Error::DatabaseAlreadyOpen) => DiskError::InUse { path },
            // redb's error for a file that is not its own.
            Self::Engine(redb::Error::Io(source))
                if source.kind() == io::ErrorKind::InvalidData =>
            {
                DiskError::Damaged { path, what: "it is not a store".into() }
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
