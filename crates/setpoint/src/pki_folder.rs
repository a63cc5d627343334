//! Certificates in the data folder: made at the first start, and used again at every other.
//!
//! # Theory
//!
//! The folder `pki` is made beside its place, with everything in it, and then given its name; a part that is renewed is written
//! beside the old one and then given its name. Everything is on the disk before it has its name. So whenever the machine
//! stops, the folder is not there yet, or whole; what was begun is written over by the next start. One program at a time does
//! this: it holds the data folder's lock.

use anyhow::{Context as _, bail};
use setpoint_apiserver::listen::{Loaded, Pki, PkiFiles};
use setpoint_object::time::Timestamp;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The folder's name in the data folder.
const NAME: &str = "pki";
/// Its name before it is whole.
const NAME_BEGUN: &str = ".pki.new";
/// Only the owner may look into the folder, and at its files.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The most bytes of a file: certificates and keys have some hundred.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The certificates in a data folder, for a server with these names; they are made when there are none.
///
/// # Errors
///
/// When a file is missing, damaged or open to others, the CA has expired, or nothing can be written.
pub(crate) fn open(data: &Path, now: Timestamp, names: &[String]) -> anyhow::Result<Pki> {
    let folder = data.join(NAME);
    if !folder.exists() {
        let pki = Pki::generate(now, names).context("make certificates")?;
        keep(data, pki.files()).with_context(|| format!("write {}", folder.display()))?;
        return Ok(pki);
    }
    let use_folder = || format!("use the certificates in {}", folder.display());
    refuse_open_to_others(&folder, 0o077).with_context(use_folder)?;
    let files = PkiFiles::read(|name| read(&folder, name)).with_context(use_folder)?;
    let (pki, loaded) = Pki::load(files, now, names).with_context(use_folder)?;
    if let Loaded::Renewed(why) = loaded {
        let name = PkiFiles::SERVER_CRT;
        renew(&folder, name, &pki.files().server_crt)
            .with_context(|| format!("write {}", folder.join(name).display()))?;
        tracing::info!(why, "the server's certificate has been made anew");
    }
    Ok(pki)
}

/// Writes all of it, whole or not at all.
fn keep(data: &Path, files: &PkiFiles) -> std::io::Result<()> {
    let begun = data.join(NAME_BEGUN);
    match fs::remove_dir_all(&begun) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::DirBuilder::new().mode(FOLDER_MODE).create(&begun)?;
    for (name, pem) in files.named() {
        write(&begun.join(name), pem)?;
    }
    File::open(&begun)?.sync_all()?;
    fs::rename(&begun, data.join(NAME))?;
    File::open(data)?.sync_all()
}

/// Replaces one file, whole or not at all.
fn renew(folder: &Path, name: &str, pem: &str) -> std::io::Result<()> {
    let begun = folder.join(format!(".{name}.new"));
    write(&begun, pem)?;
    fs::rename(&begun, folder.join(name))?;
    File::open(folder)?.sync_all()
}

fn write(path: &Path, pem: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(path)?;
    file.write_all(pem.as_bytes())?;
    file.sync_all()
}

fn read(folder: &Path, name: &str) -> anyhow::Result<String> {
    let path = folder.join(name);
    let show = || format!("read {}", path.display());
    let file = File::open(&path).with_context(show)?;
    if name.ends_with(".key") {
        refuse_open_to_others(&path, 0o077)?;
    }
    let mut pem = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut pem).with_context(show)?;
    Ok(pem)
}

/// A key that others can read, or a folder that they can change, is no longer a secret that the program can answer for.
fn refuse_open_to_others(path: &Path, bits: u32) -> anyhow::Result<()> {
    let metadata = path.metadata().with_context(|| format!("look at {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & bits != 0 {
        let wanted = if metadata.is_dir() { FOLDER_MODE } else { FILE_MODE };
        let path = path.display();
        bail!(
            "{path} is open to others (mode {mode:o}): if nobody took a copy, chmod {wanted:o} {path}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }
    fn open_again(data: &Path, names: &[&str]) -> Result<Pki, String> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        open(data, NOW, &names).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_second_start_finds_what_the_first_one_made() {
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
    fn another_name_renews_one_file() {
        let data = tempfile::tempdir().unwrap();
        let first = open_again(data.path(), &[]).unwrap();
        let second = open_again(data.path(), &["example.com"]).unwrap();
        assert_ne!(second.files().server_crt, first.files().server_crt);
        let third = open_again(data.path(), &["example.com"]).unwrap();
        assert_eq!(third.files(), second.files());
        assert_eq!(mode(&data.path().join(NAME).join(PkiFiles::SERVER_CRT)), FILE_MODE);
        assert_eq!(fs::read_dir(data.path().join(NAME)).unwrap().count(), 6);
    }

    /// Where the machine may stop: in the making of the folder, and in the renewal of a file.
    #[test]
    fn what_was_begun_is_written_over() {
        let data = tempfile::tempdir().unwrap();
        let begun = data.path().join(NAME_BEGUN);
        fs::create_dir(&begun).unwrap();
        fs::write(begun.join("ca.crt"), "half a certif").unwrap();
        let first = open_again(data.path(), &[]).unwrap();
        assert!(!begun.exists());
        fs::write(data.path().join(NAME).join(".apiserver.crt.new"), "half a").unwrap();
        let second = open_again(data.path(), &[]).unwrap();
        assert_eq!(second.files(), first.files());
        open_again(data.path(), &["example.com"]).unwrap();
        open_again(data.path(), &["example.com"]).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
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
}
