//! The old files of a log: named by the time of their rotation, compressed, removed at last.

use crate::log_file::{LogFileOptions, append};
use flate2::Compression;
use flate2::write::GzEncoder;
use setpoint_object::error::chain;
use setpoint_object::time::{Clock, Timestamp};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// The length of the time in an old file's name: `2027-01-15T08-00-06.000000Z`.
const TIME_LENGTH: usize = 27;

/// The old files beside a log: `<name>-<time>.<extension>`, perhaps with `.gz`.
#[derive(Debug, Clone)]
pub(crate) struct OldFiles {
    /// The log.
    path: PathBuf,
    options: LogFileOptions,
    clock: Clock,
}

/// What there is of an old file.
#[derive(Debug, Default)]
struct OldFile {
    /// As it was rotated.
    plain: Option<PathBuf>,
    /// Compressed.
    compressed: Option<PathBuf>,
}

/// When a file was rotated, and its number among those of the same time. Sorts as they are old.
type Age = (Timestamp, u64);

impl OldFiles {
    pub(crate) fn new(path: PathBuf, options: LogFileOptions, clock: Clock) -> Self {
        Self { path, options, clock }
    }

    /// The name of a file that is rotated now.
    pub(crate) fn new_name(&self) -> PathBuf {
        let (stem, extension) = self.name();
        // Colons are no part of names on every system.
        let time = self.clock.now().rfc3339_micro().replace(':', "-");
        let mut old = self.path.with_file_name(format!("{stem}-{time}{extension}"));
        let mut n = 1;
        while old.exists() || with_end(&old, ".gz").exists() {
            old = self.path.with_file_name(format!("{stem}-{time}.{n}{extension}"));
            n += 1;
        }
        old
    }

    /// Removes old files beyond their number or age, and compresses the others if that is wanted.
    /// An error is logged, and the other files follow.
    pub(crate) fn tidy(&self) {
        let files = match self.list() {
            Ok(files) => files,
            Err(error) => return self.warn(&self.path, &error, "list old audit logs"),
        };
        let LogFileOptions { backups_max, age_max, compress: compresses, .. } = self.options;
        let now = self.clock.now();
        let n_beyond = if backups_max == 0 { 0 } else { files.len().saturating_sub(backups_max) };
        for (n, ((rotated, _), file)) in files.iter().enumerate() {
            let is_old = !age_max.is_zero() && now.since(*rotated) > age_max;
            if n < n_beyond || is_old {
                [&file.plain, &file.compressed].into_iter().flatten().for_each(|path| {
                    self.report(path, remove(path), "remove an old audit log");
                });
            } else if let Some(plain) = file.plain.as_ref().filter(|_| compresses) {
                self.report(plain, compress(plain), "compress an old audit log");
            }
        }
    }

    fn report(&self, path: &Path, done: io::Result<()>, what: &str) {
        if let Err(error) = done {
            self.warn(path, &error, what);
        }
    }

    fn warn(&self, path: &Path, error: &io::Error, what: &str) {
        tracing::warn!(error = chain(error), path = %path.display(), "{what}");
    }

    /// What there is, oldest first.
    fn list(&self) -> io::Result<BTreeMap<Age, OldFile>> {
        let (stem, extension) = self.name();
        let prefix = format!("{stem}-");
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut found: BTreeMap<Age, OldFile> = BTreeMap::new();
        for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
                continue;
            };
            let compressed = rest.strip_suffix(".gz").and_then(|rest| age(rest, &extension));
            if let Some(age) = compressed {
                found.entry(age).or_default().compressed = Some(entry.path());
            } else if let Some(age) = age(rest, &extension) {
                found.entry(age).or_default().plain = Some(entry.path());
            }
        }
        Ok(found)
    }

    /// The log's name without extension, and the extension with its dot.
    fn name(&self) -> (String, String) {
        let text = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let extension = text(self.path.extension()).map(|text| format!(".{text}"));
        (text(self.path.file_stem()).unwrap_or_default(), extension.unwrap_or_default())
    }
}

/// The age in a name, of which `rest` is what follows the name of the log.
fn age(rest: &str, extension: &str) -> Option<Age> {
    let rest = rest.strip_suffix(extension)?;
    let (time, number) = rest.split_at_checked(TIME_LENGTH)?;
    let number = match number {
        "" => 0,
        number => number.strip_prefix('.')?.parse().ok()?,
    };
    let (day, time) = time.split_once('T')?;
    let rotated = Timestamp::parse(&format!("{day}T{}", time.replace('-', ":")))?;
    Some((rotated, number))
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Removes a file that may be gone.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replaces a file, which may be gone, by its compressed form.
fn compress(path: &Path) -> io::Result<()> {
    let mut from = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        from => from?,
    };
    let target = append(&with_end(path, ".gz"))?;
    let mut out = GzEncoder::new(BufWriter::new(target), Compression::default());
    io::copy(&mut from, &mut out)?;
    out.finish()?.flush()?;
    remove(path)
}
