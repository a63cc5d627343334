//! A log file that is rotated.

use flate2::Compression;
use flate2::write::GzEncoder;
use setpoint_object::time::{Clock, Timestamp};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The length of the time in an old file's name: `2027-01-15T08-00-06.000000Z`.
const TIME_LENGTH: usize = 27;

/// How a [`LogFile`] is rotated. A limit of zero does not limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFileOptions {
    /// The size from which a file is rotated, in bytes. Default: 100 MiB.
    pub bytes_max: u64,
    /// How many old files are kept. Default: all.
    pub backups_max: usize,
    /// How long old files are kept. Default: forever.
    pub age_max: Duration,
    /// Whether old files are compressed with gzip.
    pub compress: bool,
}

impl Default for LogFileOptions {
    fn default() -> Self {
        Self { bytes_max: 100 << 20, backups_max: 0, age_max: Duration::ZERO, compress: false }
    }
}

/// A file to which lines are appended, readable by its owner only. A full file is renamed to
/// `<name>-<time>.<extension>` in the same folder, and another one takes its place.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    options: LogFileOptions,
    clock: Clock,
    file: File,
    n_bytes: u64,
}

impl LogFile {
    /// Opens a file, and makes it and its folder if they are missing. Blocks: call it at start.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn open(
        path: impl Into<PathBuf>,
        options: LogFileOptions,
        clock: Clock,
    ) -> io::Result<Self> {
        let path = path.into();
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let file = append(&path)?;
        let n_bytes = file.metadata()?.len();
        Ok(Self { path, options, clock, file, n_bytes })
    }

    /// Appends lines. A file is rotated before the line that would exceed its size.
    pub(crate) fn write(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        let mut out = Vec::new();
        for line in lines {
            let n_bytes = (self.n_bytes + out.len() as u64 + line.len() as u64).max(1);
            let is_full = self.options.bytes_max > 0 && n_bytes > self.options.bytes_max;
            if is_full && self.n_bytes + out.len() as u64 > 0 {
                self.append(&out)?;
                out.clear();
                self.rotate()?;
            }
            out.extend_from_slice(line);
        }
        self.append(&out)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.n_bytes += bytes.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let (stem, extension) = self.name();
        // The time in the name sorts as text. Colons are no part of names on every system.
        let time = self.clock.now().rfc3339_micro().replace(':', "-");
        let mut old = self.path.with_file_name(format!("{stem}-{time}{extension}"));
        let mut n = 1;
        while old.exists() || compressed(&old).exists() {
            old = self.path.with_file_name(format!("{stem}-{time}.{n}{extension}"));
            n += 1;
        }
        fs::rename(&self.path, &old)?;
        self.file = append(&self.path)?;
        self.n_bytes = 0;
        if self.options.compress {
            compress(&old)?;
        }
        self.clean()
    }

    /// Removes old files beyond their number or age.
    fn clean(&self) -> io::Result<()> {
        let LogFileOptions { backups_max, age_max, .. } = self.options;
        if backups_max == 0 && age_max.is_zero() {
            return Ok(());
        }
        let now = self.clock.now();
        let old = self.old_files()?;
        let n_beyond = if backups_max == 0 { 0 } else { old.len().saturating_sub(backups_max) };
        for (n, (path, rotated)) in old.iter().enumerate() {
            let is_old = !age_max.is_zero() && now.since(*rotated) > age_max;
            if n < n_beyond || is_old {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The rotated files with the time in their names, oldest first.
    fn old_files(&self) -> io::Result<Vec<(PathBuf, Timestamp)>> {
        let (stem, extension) = self.name();
        let prefix = format!("{stem}-");
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut found = Vec::new();
        for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(time) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
                continue;
            };
            let time = time.strip_suffix(".gz").unwrap_or(time).strip_suffix(&extension);
            // The rest may have a number behind the time.
            let time = time.and_then(|time| time.get(..TIME_LENGTH)?.split_once('T'));
            let time = time.map(|(day, time)| format!("{day}T{}", time.replace('-', ":")));
            if let Some(rotated) = time.and_then(|time| Timestamp::parse(&time)) {
                found.push((entry.path(), rotated));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The file's name without extension, and the extension with its dot.
    fn name(&self) -> (String, String) {
        let text =
            |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let extension = text(self.path.extension()).map(|text| format!(".{text}"));
        (text(self.path.file_stem()).unwrap_or_default(), extension.unwrap_or_default())
    }
}

/// Makes a folder, and those above it, that only its owner may enter.
fn make_folder(path: &Path) -> io::Result<()> {
    let mut options = fs::DirBuilder::new();
    options.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut options, 0o700);
    options.create(path)
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn compressed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

/// Replaces a file by its compressed form.
fn compress(path: &Path) -> io::Result<()> {
    let target = append(&compressed(path))?;
    let mut out = GzEncoder::new(BufWriter::new(target), Compression::default());
    io::copy(&mut File::open(path)?, &mut out)?;
    out.finish()?.flush()?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, options: LogFileOptions) -> LogFile {
        let clock = Clock::starting_at(Timestamp::from_secs(1_800_000_000));
        LogFile::open(folder.join("audit.log"), options, clock).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn line(n: usize) -> Vec<u8> {
        format!("{n:09}\n").into_bytes()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_file_is_rotated_and_old_ones_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let options = LogFileOptions { bytes_max: 25, backups_max: 2, ..LogFileOptions::default() };
        let mut file = open(folder.path(), options);
        fs::write(folder.path().join("audit-mine.log"), "x").unwrap();
        for n in 0..9 {
            file.write(&[line(n)]).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(
            names(folder.path()),
            [
                "audit-2027-01-15T08-00-06.000000Z.log",
                "audit-2027-01-15T08-00-08.000000Z.log",
                "audit-mine.log",
                "audit.log",
            ]
        );
        let of = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(of("audit.log"), "000000008\n");
        assert_eq!(of("audit-2027-01-15T08-00-08.000000Z.log"), "000000006\n000000007\n");
    }

    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn only_its_owner_may_read_a_log_and_enter_its_folder() {
        use std::os::unix::fs::PermissionsExt as _;
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("a/b");
        open(&folder, LogFileOptions::default());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("audit.log"))), (0o700, 0o600));
        // One that exists stays as it is.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        open(&folder, LogFileOptions::default());
        assert_eq!(mode(&folder), 0o755);
    }

    #[tokio::test(start_paused = true)]
    async fn old_files_are_removed_by_age() {
        let folder = tempfile::tempdir().unwrap();
        let age_max = Duration::from_secs(90);
        let options = LogFileOptions { bytes_max: 10, age_max, ..LogFileOptions::default() };
        let mut file = open(folder.path(), options);
        for n in 0..6 {
            file.write(&[line(n)]).unwrap();
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        // Rotated 0 s, 40 s and 80 s before the last line.
        assert_eq!(names(folder.path()).len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn one_batch_may_fill_several_files_and_is_kept_whole() {
        let folder = tempfile::tempdir().unwrap();
        let options = LogFileOptions { bytes_max: 20, compress: true, ..LogFileOptions::default() };
        let mut file = open(folder.path(), options);
        file.write(&(0..5).map(line).collect::<Vec<_>>()).unwrap();
        let names = names(folder.path());
        assert_eq!(names.len(), 3, "{names:?}");
        let mut text = String::new();
        for name in names.iter().filter(|name| name.ends_with(".gz")) {
            let file = File::open(folder.path().join(name)).unwrap();
            let mut file = flate2::read::GzDecoder::new(file);
            io::Read::read_to_string(&mut file, &mut text).unwrap();
        }
        text += &fs::read_to_string(folder.path().join("audit.log")).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_goes_on_after_a_restart_and_a_long_line_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let options = LogFileOptions { bytes_max: 15, ..LogFileOptions::default() };
        open(folder.path(), options.clone()).write(&[line(1)]).unwrap();
        let mut file = open(folder.path(), options);
        file.write(&[line(2), b"a line of more than fifteen bytes\n".to_vec()]).unwrap();
        assert_eq!(names(folder.path()).len(), 3);
        let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
        assert_eq!(text, "a line of more than fifteen bytes\n");
    }
}
