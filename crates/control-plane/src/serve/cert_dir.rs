//! Certificates in a folder: made by the first server that needs them, and reused by all others and
//! after every restart.
//!
//! # Theory
//!
//! The folder is created with all its files under a temporary name, synced, and then renamed. A
//! renewed file is written under a temporary name, synced, and then renamed over the old one. So if
//! the machine stops at any time, the folder is either absent or complete.
//!
//! Several servers may share a folder without a lock. If two create it at once, only one rename
//! succeeds, because a folder cannot replace a folder that is not empty. The other server discards
//! its files and loads the existing ones. Of two renewals, each signed by the folder's CA, the last
//! one wins.

use setpoint_apiserver::listen::{Loaded, Pki, PkiError, PkiFiles};
use setpoint_object::seed;
use setpoint_object::time::Timestamp;
use setpoint_registry::jwt::SigningKey;
use setpoint_small_file::SmallFileError;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Only the owner can read the folder and its files.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Maximum size of a file in bytes. Certificates and keys have some hundred.
const FILE_BYTES_MAX: usize = 64 << 10;

/// Why the certificates in a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertDirError {
    /// A file or folder cannot be read or written.
    #[error("{what} {}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file has more than 64 KiB.
    #[error("{} has more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// Other users can read a key, or change the folder, so the key is not secret.
    #[error(
        "{path} is open to others (mode {mode:o}): if nobody took a copy, chmod {wanted:o} {path}",
        path = path.display()
    )]
    OpenToOthers {
        /// The file or folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The required mode.
        wanted: u32,
    },
    /// A file is damaged, a certificate has expired, or nothing can be made.
    #[error("use the certificates in {}", folder.display())]
    Pki {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: PkiError,
    },
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CertDirError {
    let path = path.to_owned();
    move |source| CertDirError::Io { what, path, source }
}

/// Loads the certificates in a folder, for a server with these names. Makes them if the folder does
/// not exist.
///
/// # Errors
///
/// If a file is missing, damaged or open to other users, the CA has expired, or nothing can be
/// written.
pub(super) fn open(folder: &Path, now: Timestamp, names: &[String]) -> Result<Pki, CertDirError> {
    let pki = |source| CertDirError::Pki { folder: folder.to_owned(), source };
    if !folder.exists() {
        let made = Pki::generate(now, names).map_err(pki)?;
        if create(folder, made.files())? {
            return Ok(made);
        }
        // Another server was faster.
    }
    remove_temporary(folder);
    refuse_open_to_others(folder)?;
    if is_unfilled(folder) {
        fill(folder, || Pki::generate(now, names).map_err(pki))?;
    }
    let files = PkiFiles::read(|name| read(folder, name))?;
    let (loaded, what) = Pki::load(files, now, names).map_err(pki)?;
    if let Loaded::Renewed(why) = what {
        renew(folder, loaded.files())?;
        tracing::info!(why, "renewed the server's certificate");
    }
    Ok(loaded)
}

/// The file of the key that service account tokens are signed with.
pub(super) const SIGNING_KEY: &str = "service-account.key";

/// The key of service account tokens in a folder, in PEM. Makes it if the file does not exist.
///
/// # Errors
///
/// If the file is open to other users, or nothing can be read, written or made.
pub(super) fn signing_key(folder: &Path) -> Result<String, CertDirError> {
    let path = folder.join(SIGNING_KEY);
    if !path.exists() {
        let key = generate_key().map_err(failed("make", &path))?;
        create_file(folder, SIGNING_KEY, &key)?;
    }
    read(folder, SIGNING_KEY)
}

/// Creates a file in a folder atomically, unless another server has done so.
pub(super) fn create_file(folder: &Path, name: &str, pem: &str) -> Result<(), CertDirError> {
    let path = folder.join(name);
    let temporary = folder.join(temporary_name(name));
    let written = write(&temporary, pem).and_then(|()| match fs::hard_link(&temporary, &path) {
        // Another server was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // A leftover temporary file does no harm.
    _ = fs::remove_file(&temporary);
    written.and_then(|()| File::open(folder)?.sync_all()).map_err(failed("write", &path))
}

fn generate_key() -> io::Result<String> {
    let keys = SigningKey::generate_from_system().map_err(io::Error::other)?;
    keys.to_pem().ok_or_else(|| io::Error::other("the key cannot be written as PEM"))
}

/// Replaces the server's certificate and key, the only part that is renewed, atomically.
pub(super) fn renew(folder: &Path, files: &PkiFiles) -> Result<(), CertDirError> {
    replace(folder, PkiFiles::SERVER_CRT, &files.server_crt)
}

/// Replaces a file in a folder atomically.
pub(super) fn replace(folder: &Path, name: &str, pem: &str) -> Result<(), CertDirError> {
    let path = folder.join(name);
    let temporary = folder.join(temporary_name(name));
    write(&temporary, pem)
        .and_then(|()| fs::rename(&temporary, &path))
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(failed("write", &path))
}

/// Writes the whole folder atomically; returns false if another server has done so.
fn create(folder: &Path, files: &PkiFiles) -> Result<bool, CertDirError> {
    let parent = parent(folder);
    fs::create_dir_all(parent).map_err(failed("make", parent))?;
    let temporary = parent.join(temporary_name(&name(folder)));
    let made = make(&temporary, files).and_then(|()| fs::rename(&temporary, folder));
    match made {
        Ok(()) => {
            File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(failed("write", folder))?;
            Ok(true)
        }
        Err(error) => {
            // The temporary folder is of no use. A failure to remove it adds no information.
            _ = fs::remove_dir_all(&temporary);
            if folder.exists() { Ok(false) } else { Err(failed("write", folder)(error)) }
        }
    }
}

/// Whether a folder has no authority: it is new, as one that is mounted for the server.
fn is_unfilled(folder: &Path) -> bool {
    ![PkiFiles::CA_CRT, PkiFiles::CA_KEY].iter().any(|name| folder.join(name).exists())
}

/// Fills a folder that cannot be replaced by another one, the authority's files last. Of several
/// servers, one does.
fn fill(
    folder: &Path,
    generate: impl FnOnce() -> Result<Pki, CertDirError>,
) -> Result<(), CertDirError> {
    let held = File::open(folder).map_err(failed("open", folder))?;
    held.lock().map_err(failed("lock", folder))?;
    if !is_unfilled(folder) {
        return Ok(());
    }
    let made = generate()?;
    let mut files = made.files().named().into_iter().rev();
    files.try_for_each(|(name, pem)| replace(folder, name, pem))
}

fn make(temporary: &Path, files: &PkiFiles) -> io::Result<()> {
    fs::DirBuilder::new().mode(FOLDER_MODE).create(temporary)?;
    for (name, pem) in files.named() {
        write(&temporary.join(name), pem)?;
    }
    File::open(temporary)?.sync_all()
}

/// Removes temporary folders of servers that ended early. A server that is still writing one will
/// find the finished folder as well.
fn remove_temporary(folder: &Path) {
    let prefix = format!(".{}.", name(folder));
    for entry in fs::read_dir(parent(folder)).into_iter().flatten().flatten() {
        let entry_name = entry.file_name();
        let entry_name = entry_name.to_string_lossy();
        if entry_name.starts_with(&prefix) && entry_name.ends_with(TEMPORARY_SUFFIX) {
            // A leftover temporary folder does no harm.
            _ = fs::remove_dir_all(entry.path());
        }
    }
}

const TEMPORARY_SUFFIX: &str = ".new";

/// A temporary name that no other server uses.
fn temporary_name(name: &str) -> String {
    format!(".{name}.{:016x}{TEMPORARY_SUFFIX}", seed::from_entropy())
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn parent(folder: &Path) -> &Path {
    match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => folder,
    }
}

fn write(path: &Path, pem: &str) -> io::Result<()> {
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(pem.as_bytes())?;
    file.sync_all()
}

pub(super) fn read(folder: &Path, name: &str) -> Result<String, CertDirError> {
    let path = folder.join(name);
    if name.ends_with(".key") || name.ends_with(".pem") {
        refuse_open_to_others(&path)?;
    }
    setpoint_small_file::read_text(&path, FILE_BYTES_MAX).map_err(|error| match error {
        SmallFileError::Read { path, source } => failed("read", &path)(source),
        SmallFileError::TooLong { path, .. } => CertDirError::TooLong { path },
    })
}

/// Refuses a key that other users can read, and a folder that they can change: the key may have
/// been copied or replaced.
fn refuse_open_to_others(path: &Path) -> Result<(), CertDirError> {
    let metadata = path.metadata().map_err(failed("read the mode of", path))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let wanted = if metadata.is_dir() { FOLDER_MODE } else { FILE_MODE };
    Err(CertDirError::OpenToOthers { path: path.to_owned(), mode, wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }
    const NAME: &str = "pki";

    fn open_again(data: &Path, names: &[&str]) -> Result<Pki, String> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        open(&data.join(NAME), NOW, &names).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", cause.unwrap_or_default())
        })
    }

    #[test]
    fn second_start_loads_the_certificates_of_the_first() {
        let data = tempfile::tempdir().unwrap();
        let first = open_again(data.path(), &[]).unwrap();
        let folder = data.path().join(NAME);
        assert_eq!(mode(&folder), FOLDER_MODE);
        for (name, pem) in first.files().named() {
            assert_eq!(mode(&folder.join(name)), FILE_MODE, "{name}");
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), pem);
        }
        let second = open_again(data.path(), &[]).unwrap();
        assert_eq!(second.files(), first.files());
        assert_eq!(second.admin_token(), first.admin_token());
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_folder_is_filled() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join(NAME);
        fs::DirBuilder::new().mode(FOLDER_MODE).create(&folder).unwrap();
        // Not part of it, and kept.
        write(&folder.join(SIGNING_KEY), "mine").unwrap();
        let first = open_again(data.path(), &[]).unwrap();
        let second = open_again(data.path(), &[]).unwrap();
        assert_eq!(second.files(), first.files());
        for (name, _) in first.files().named() {
            assert_eq!(mode(&folder.join(name)), FILE_MODE, "{name}");
        }
        assert_eq!(fs::read_to_string(folder.join(SIGNING_KEY)).unwrap(), "mine");
        // One that has lost its authority's certificate is not filled again.
        fs::remove_file(folder.join(PkiFiles::CA_CRT)).unwrap();
        assert!(open_again(data.path(), &[]).unwrap_err().contains("ca.crt"));
    }

    #[test]
    fn new_name_renews_the_server_certificate() {
        let data = tempfile::tempdir().unwrap();
        let first = open_again(data.path(), &[]).unwrap();
        let second = open_again(data.path(), &["example.com"]).unwrap();
        assert_ne!(second.files().server_crt, first.files().server_crt);
        let third = open_again(data.path(), &["example.com"]).unwrap();
        assert_eq!(third.files(), second.files());
        assert_eq!(mode(&data.path().join(NAME).join(PkiFiles::SERVER_CRT)), FILE_MODE);
        assert_eq!(fs::read_dir(data.path().join(NAME)).unwrap().count(), 6);
    }

    /// Points at which the machine may stop: while the folder is made, and while a file is renewed.
    #[test]
    fn temporary_files_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let temporary = data.path().join(".pki.0123.new");
        fs::create_dir(&temporary).unwrap();
        fs::write(temporary.join("ca.crt"), "half a certif").unwrap();
        let first = open_again(data.path(), &[]).unwrap();
        open_again(data.path(), &[]).unwrap();
        assert!(!temporary.exists());
        fs::write(data.path().join(NAME).join(".apiserver.crt.new"), "half a").unwrap();
        let second = open_again(data.path(), &[]).unwrap();
        assert_eq!(second.files(), first.files());
        open_again(data.path(), &["example.com"]).unwrap();
        open_again(data.path(), &["example.com"]).unwrap();
    }

    #[test]
    fn unusable_file_is_named() {
        let data = tempfile::tempdir().unwrap();
        open_again(data.path(), &[]).unwrap();
        let folder = data.path().join(NAME);
        let key = folder.join("ca.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let error = open_again(data.path(), &[]).unwrap_err();
        assert!(error.contains("ca.key is open to others (mode 644)"), "{error}");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let error = open_again(data.path(), &[]).unwrap_err();
        assert!(error.contains("pki is open to others (mode 755)"), "{error}");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&key, "").unwrap();
        let error = open_again(data.path(), &[]).unwrap_err();
        assert!(error.contains("ca.key is damaged"), "{error}");
        fs::remove_file(&key).unwrap();
        let error = open_again(data.path(), &[]).unwrap_err();
        assert!(error.contains("ca.key: No such file"), "{error}");
    }

    #[test]
    fn concurrent_starts_have_the_same_certificates() {
        let data = tempfile::tempdir().unwrap();
        let start = std::sync::Barrier::new(8);
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let server = || {
                start.wait();
                open_again(data.path(), &[]).unwrap().admin_token().to_owned()
            };
            let servers: Vec<_> = (0..8).map(|_| scope.spawn(server)).collect();
            servers.into_iter().map(|server| server.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
        open_again(data.path(), &[]).unwrap();
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
    }
}
