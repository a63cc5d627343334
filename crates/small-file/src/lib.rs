//! Reads the files that flags and configurations name: policies, certificates, tokens, kubeconfigs.
//! [`FileChanges`] tells when to read them again.
//!
//! Such a file is short and read as a whole. The path comes from a user, so that anything may be
//! there: a file of many gigabytes, one that grows while it is read, a device without an end, or a
//! pipe into which nobody writes.
//!
//! # Theory
//!
//! | at the path is | a read takes |
//! |---|---|
//! | a regular file | one byte more than its limit at most |
//! | a device, a pipe (`<(command)`, `/dev/stdin`), a terminal | the same, and at most [`WAIT_MAX`] |
//! | a folder, a socket | an error at once |
//!
//! A file on a network file system may block as long as its driver does.
//!
//! The crate knows nothing of what is in a file. Long files that are read in pieces (logs, backups,
//! traces) and files that the kernel makes (`/proc`) are not its matter.
//!
//! ```
//! use setpoint_small_file::{SmallFileError, read};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("policy.yaml");
//! std::fs::write(&path, "kind: Policy\n").unwrap();
//! assert_eq!(read(&path, 1 << 20).unwrap(), b"kind: Policy\n");
//! assert!(matches!(read(&path, 4), Err(SmallFileError::TooLong { bytes_max: 4, .. })));
//! ```

mod changes;
#[cfg(unix)]
mod pipe;

pub use changes::{FileChanges, LOOK_INTERVAL};

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time until the end of what is no regular file: 10 s. A command in a shell's `<(…)` has
/// time to make its output.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// Why a file is not read.
///
/// These two are all: callers turn them into errors of their own.
#[derive(Debug, thiserror::Error)]
pub enum SmallFileError {
    /// There is no file, it must not be read, or reading failed. [`io::ErrorKind::TimedOut`]: no
    /// end within [`WAIT_MAX`]. [`io::ErrorKind::InvalidData`]: a text is not UTF-8.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is longer than it may be.
    #[error("{} has more than {bytes_max} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: usize,
    },
}

impl SmallFileError {
    /// Whether there is nothing at the path.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// The bytes of a file of at most `bytes_max`. Blocks: for a regular file as long as the disk
/// takes, for others up to [`WAIT_MAX`]. While requests are served, use [`read_async`].
///
/// # Errors
///
/// The file cannot be read, is longer, or does not end in time.
pub fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>, SmallFileError> {
    let failed = |source| SmallFileError::Read { path: path.to_owned(), source };
    let file = open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    // One byte more shows that a file is longer.
    let limit = bytes_max.saturating_add(1);
    let bytes = match metadata.is_file() {
        true => {
            let announced = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
            let mut bytes = Vec::with_capacity(announced.min(bytes_max).saturating_add(1));
            file.take(limit as u64).read_to_end(&mut bytes).map(|_| bytes)
        }
        #[cfg(unix)]
        false => pipe::read(file, limit, WAIT_MAX),
        #[cfg(not(unix))]
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    };
    match bytes.map_err(failed)? {
        bytes if bytes.len() > bytes_max => {
            Err(SmallFileError::TooLong { path: path.to_owned(), bytes_max })
        }
        bytes => Ok(bytes),
    }
}

/// The text of a file. Blocks as [`read`].
///
/// # Errors
///
/// As [`read`], and the file is not UTF-8.
pub fn read_text(path: &Path, bytes_max: usize) -> Result<String, SmallFileError> {
    String::from_utf8(read(path, bytes_max)?).map_err(|error| SmallFileError::Read {
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()),
    })
}

/// As [`read`], on a thread that may block. Call it within a tokio runtime.
///
/// Dropping the future leaves the thread to end its read.
///
/// # Errors
///
/// As [`read`].
pub async fn read_async(path: &Path, bytes_max: usize) -> Result<Vec<u8>, SmallFileError> {
    let owned = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || read(&owned, bytes_max));
    reading.await.unwrap_or_else(|error| {
        Err(SmallFileError::Read { path: path.to_owned(), source: io::Error::other(error) })
    })
}

/// Opens a file to read. A pipe is opened without a wait for its writer.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    pipe::without_wait(&mut options);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn too_long(outcome: Result<Vec<u8>, SmallFileError>) -> bool {
        matches!(outcome, Err(SmallFileError::TooLong { .. }))
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let error = read(&path, 4).unwrap_err();
        assert_eq!(error.to_string(), format!("{} has more than 4 bytes", path.display()));
        assert_eq!(read_text(&path, 9).unwrap(), "12345");
    }

    #[test]
    fn a_file_of_many_gigabytes_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(too_long(read(&path, 1 << 20)));
    }

    #[test]
    fn a_missing_file_is_told_from_one_that_is_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert!(read_text(&path, 5).unwrap_err().is_missing());
        std::fs::write(&path, b"\xff").unwrap();
        let error = read_text(&path, 5).unwrap_err();
        assert!(!error.is_missing());
        assert_eq!(error.to_string(), format!("read {}", path.display()));
        assert!(!read(folder.path(), 5).unwrap_err().is_missing());
    }

    #[cfg(unix)]
    #[test]
    fn a_device_without_an_end_is_too_long() {
        assert!(too_long(read(Path::new("/dev/zero"), 1 << 20)));
        assert_eq!(read(Path::new("/dev/null"), 1 << 20).unwrap(), b"");
    }

    #[cfg(unix)]
    #[test]
    fn what_a_command_writes_into_a_pipe_is_read() {
        use std::os::fd::AsRawFd as _;
        let (end, mut writer) = io::pipe().unwrap();
        // As a shell names a process substitution.
        let path = PathBuf::from(format!("/dev/fd/{}", end.as_raw_fd()));
        let long = "x".repeat(100 << 10);
        let text = long.clone();
        // More than the pipe holds at once.
        let command = std::thread::spawn(move || writer.write_all(text.as_bytes()).unwrap());
        assert_eq!(read_text(&path, 1 << 20).unwrap(), long);
        command.join().unwrap();
    }

    #[tokio::test]
    async fn a_file_is_read_on_another_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_async(&path, 5).await.unwrap(), b"12345");
        assert!(too_long(read_async(&path, 4).await));
    }
}
