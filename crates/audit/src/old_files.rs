//! The old files of a log: named by the time of their rotation, compressed, removed at last.
//!
//! Compressing takes seconds, so it is done beside the writing of lines, by one job at a time. The
//! job may be cut off at any point: a compressed file has its name once it is whole, and then the
//! plain one is removed. What is left is done by the next job, after a rotation or a start.

use crate::log_file::{LogFileOptions, private};
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use setpoint_object::error::chain;
use setpoint_object::time::{Clock, Timestamp};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The length of the time in an old file's name: `2027-01-15T08-00-06.000000Z`.
const TIME_LENGTH: usize = 27;
/// The end of a compressed file's name.
const COMPRESSED: &str = ".gz";
/// The end of its name while it is written.
const PARTIAL: &str = ".gz.tmp";
/// How many bytes are compressed before the job asks whether it is to end.
const PIECE_BYTES: usize = 64 << 10;

/// The old files beside a log: `<name>-<time>.<extension>`, perhaps with `.gz`.
#[derive(Debug, Clone)]
pub(crate) struct OldFiles {
    /// The log.
    path: PathBuf,
    options: LogFileOptions,
    clock: Clock,
    /// An old file that lines still go to, because no new one could be opened.
    pub(crate) open: Arc<Mutex<Option<PathBuf>>>,
    /// A file was rotated.
    pub(crate) rotated: Arc<Notify>,
}

/// What there is of an old file.
#[derive(Debug, Default)]
struct OldFile {
    /// As it was rotated.
    plain: Option<PathBuf>,
    /// Compressed.
    compressed: Option<PathBuf>,
    /// Compressed in part, which was cut off.
    partial: Option<PathBuf>,
}

/// When a file was rotated, and its number among those of the same time. Sorts as they are old.
type Age = (Timestamp, u64);

impl OldFiles {
    pub(crate) fn new(path: PathBuf, options: LogFileOptions, clock: Clock) -> Self {
        Self { path, options, clock, open: Arc::default(), rotated: Arc::default() }
    }

    /// The name of a file that is rotated now.
    pub(crate) fn new_name(&self) -> PathBuf {
        let (stem, extension) = self.name();
        // Colons are no part of names on every system.
        let time = self.clock.now().rfc3339_micro().replace(':', "-");
        let mut old = self.path.with_file_name(format!("{stem}-{time}{extension}"));
        let mut n = 1;
        while old.exists() || with_end(&old, COMPRESSED).exists() {
            old = self.path.with_file_name(format!("{stem}-{time}.{n}{extension}"));
            n += 1;
        }
        old
    }

    /// Tidies at the start and after each rotation, until `ended`, which cuts it off. So does
    /// dropping the future.
    pub(crate) async fn keep_tidy(&self, ended: &CancellationToken) {
        loop {
            let (old, stop) = (self.clone(), ended.child_token());
            let _guard = stop.clone().drop_guard();
            let tidied = tokio::task::spawn_blocking(move || old.tidy(&stop));
            if let Err(error) = tidied.await {
                tracing::error!(error = chain(&error), "tidy old audit logs");
            }
            if ended.run_until_cancelled(self.rotated.notified()).await.is_none() {
                return;
            }
        }
    }

    /// Removes old files beyond their number or age, and compresses the others if that is wanted.
    /// An error is logged, and the other files follow. Blocks, until `stop` at most.
    pub(crate) fn tidy(&self, stop: &CancellationToken) {
        let files = match self.list() {
            Ok(files) => files,
            Err(error) => return self.warn(&self.path, &error, "list old audit logs"),
        };
        // Asked after the list is made: what is moved away later is not in it.
        let open = self.open.lock().clone();
        let is_closed = |path: &&PathBuf| Some(*path) != open.as_ref();
        let LogFileOptions { backups_max, age_max, compress: compresses, .. } = self.options;
        let now = self.clock.now();
        let n_whole = files.values().filter(|file| file.is_whole()).count();
        let mut n_beyond = if backups_max == 0 { 0 } else { n_whole.saturating_sub(backups_max) };
        let mut kept = Vec::new();
        for ((rotated, _), file) in &files {
            if let Some(partial) = &file.partial {
                self.report(partial, remove(partial), "remove a part of an old audit log");
            }
            if !file.is_whole() {
                continue;
            }
            let is_old = !age_max.is_zero() && now.since(*rotated) > age_max;
            if n_beyond > 0 || is_old {
                n_beyond = n_beyond.saturating_sub(1);
                let both = [&file.plain, &file.compressed].into_iter().flatten();
                both.filter(is_closed).for_each(|path| {
                    self.report(path, remove(path), "remove an old audit log");
                });
            } else {
                kept.push(file);
            }
        }
        for file in kept {
            let Some(plain) = file.plain.as_ref().filter(is_closed) else { continue };
            if stop.is_cancelled() {
                return;
            }
            match &file.compressed {
                _ if compresses => {
                    self.report(plain, compress(plain, stop), "compress an old audit log");
                }
                // The plain one is whole in any case.
                Some(double) => self.report(double, remove(double), "remove an old audit log"),
                None => {}
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
            let age = |end: &str| age(rest.strip_suffix(end)?, &extension);
            if let Some(age) = age(PARTIAL) {
                found.entry(age).or_default().partial = Some(entry.path());
            } else if let Some(age) = age(COMPRESSED) {
                found.entry(age).or_default().compressed = Some(entry.path());
            } else if let Some(age) = age("") {
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

impl OldFile {
    fn is_whole(&self) -> bool {
        self.plain.is_some() || self.compressed.is_some()
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

/// Replaces a file, which may be gone, by its compressed form; not after `stop`.
fn compress(path: &Path, stop: &CancellationToken) -> io::Result<()> {
    let from = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        from => from?,
    };
    let partial = with_end(path, PARTIAL);
    let written = write_compressed(from, &partial, stop);
    if !matches!(written, Ok(true)) {
        let removed = remove(&partial);
        return written.and(removed);
    }
    fs::rename(&partial, with_end(path, COMPRESSED))?;
    remove(path)
}

/// Whether all is written and on the disk; `false`: `stop` came before the end.
fn write_compressed(mut from: File, to: &Path, stop: &CancellationToken) -> io::Result<bool> {
    let mut options = OpenOptions::new();
    let target = private(options.create(true).write(true).truncate(true)).open(to)?;
    let mut out = GzEncoder::new(BufWriter::new(target), Compression::default());
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        if stop.is_cancelled() {
            return Ok(false);
        }
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => out.write_all(&piece[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let target = out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    // Before the plain one is removed.
    target.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "audit-2027-01-15T08-00-0";

    fn old_files(folder: &Path, compress: bool) -> OldFiles {
        let options = LogFileOptions { compress, ..LogFileOptions::default() };
        let clock = Clock::starting_at(Timestamp::from_secs(1_800_000_000));
        OldFiles::new(folder.join("audit.log"), options, clock)
    }

    /// Its names after [`OLD`], in order.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let names = entries.map(|entry| name(entry).into_string().unwrap());
        let mut names: Vec<_> = names.map(|name| name.replace(OLD, "")).collect();
        names.sort();
        names
    }

    fn gunzipped(path: &Path) -> String {
        let mut text = String::new();
        let mut file = flate2::read::GzDecoder::new(File::open(path).unwrap());
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_cut_off_is_done_at_the_next_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(format!("{OLD}{name}"));
        let write = |name: &str, text: &str| fs::write(file(name), text).unwrap();
        // Not begun, begun, ended but for the removal of the plain one, which has a part of it
        // from a former version.
        write("1.000000Z.log", "a");
        write("2.000000Z.log", "b");
        write("2.000000Z.log.gz.tmp", "x");
        write("3.000000Z.1.log", "c");
        write("3.000000Z.1.log.gz", "x");
        // Of no file, and of somebody else.
        write("4.000000Z.log.gz.tmp", "x");
        write("4.000000Z.log.mine", "x");
        old_files(folder.path(), true).tidy(&CancellationToken::new());
        let expected =
            ["1.000000Z.log.gz", "2.000000Z.log.gz", "3.000000Z.1.log.gz", "4.000000Z.log.mine"];
        assert_eq!(names(folder.path()), expected);
        let texts = expected[..3].iter().map(|name| gunzipped(&file(name)));
        assert_eq!(texts.collect::<Vec<_>>(), ["a", "b", "c"]);
        // Without compression, the whole one of a double stays.
        write("1.000000Z.log", "a");
        old_files(folder.path(), false).tidy(&CancellationToken::new());
        assert_eq!(names(folder.path())[0], "1.000000Z.log");
        assert_eq!(names(folder.path()).len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_double_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["1.000000Z.log", "1.000000Z.log.gz", "2.000000Z.log.gz"] {
            fs::write(folder.path().join(format!("{OLD}{name}")), "x").unwrap();
        }
        let mut old = old_files(folder.path(), false);
        old.options.backups_max = 2;
        old.tidy(&CancellationToken::new());
        assert_eq!(names(folder.path()), ["1.000000Z.log", "2.000000Z.log.gz"]);
        old.options.backups_max = 1;
        old.tidy(&CancellationToken::new());
        assert_eq!(names(folder.path()), ["2.000000Z.log.gz"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_stopped_leaves_nothing_half_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{OLD}1.000000Z.log"));
        fs::write(&path, "a").unwrap();
        let stop = CancellationToken::new();
        stop.cancel();
        compress(&path, &stop).unwrap();
        assert_eq!(names(folder.path()), ["1.000000Z.log"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_lines_still_go_to_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{OLD}1.000000Z.log"));
        fs::write(&path, "a").unwrap();
        let old = old_files(folder.path(), true);
        *old.open.lock() = Some(path);
        old.tidy(&CancellationToken::new());
        assert_eq!(names(folder.path()), ["1.000000Z.log"]);
        *old.open.lock() = None;
        old.tidy(&CancellationToken::new());
        assert_eq!(names(folder.path()), ["1.000000Z.log.gz"]);
    }
}
