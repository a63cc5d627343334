//! A log file that is rotated.

use crate::old_files::OldFiles;
use setpoint_object::error::chain;
use setpoint_object::time::Clock;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    bytes_max: u64,
    old: OldFiles,
    tail: Tail<File>,
    /// The last rotation failed, which is logged once.
    has_failed: bool,
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
        let tail = Tail::open(&path)?;
        let bytes_max = options.bytes_max;
        let old = OldFiles::new(path.clone(), options, clock);
        Ok(Self { path, bytes_max, old, tail, has_failed: false })
    }

    /// Appends lines. A file is rotated before the line that would exceed its size; one that cannot
    /// be rotated grows, and rotation is tried again with the next lines.
    pub(crate) fn write(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        let mut out = Vec::new();
        let mut may_rotate = self.bytes_max > 0;
        for line in lines {
            let n_bytes = self.tail.n_bytes + out.len() as u64;
            let is_full = n_bytes > 0 && n_bytes + line.len() as u64 > self.bytes_max;
            if is_full && may_rotate {
                self.tail.append(&out)?;
                out.clear();
                may_rotate = self.try_rotate();
            }
            out.extend_from_slice(line);
        }
        self.tail.append(&out)
    }

    /// Whether the file is rotated. An error loses no lines: they go to the file that is open.
    fn try_rotate(&mut self) -> bool {
        let rotated = self.rotate();
        if let Err(error) = &rotated
            && !self.has_failed
        {
            tracing::warn!(error = chain(error), path = %self.path.display(), "rotate the audit log");
        }
        self.has_failed = rotated.is_err();
        rotated.is_ok()
    }

    /// Goes on in another file.
    fn rotate(&mut self) -> io::Result<()> {
        // Locked throughout, so that nobody takes the old file for closed before it is.
        let mut open = self.old.open.lock();
        // Otherwise it is moved away, and another one could not be opened yet.
        if open.is_none() {
            let to = self.old.new_name();
            match fs::rename(&self.path, &to) {
                // Somebody else has moved it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => *open = Some(to),
            }
        }
        self.tail = Tail::open(&self.path)?;
        *open = None;
        self.old.rotated.notify_one();
        Ok(())
    }

    /// The old files, which somebody has to keep tidy.
    pub(crate) fn old(&self) -> OldFiles {
        self.old.clone()
    }
}

/// The end of a file, to which lines are appended.
#[derive(Debug)]
struct Tail<W> {
    out: W,
    n_bytes: u64,
    /// The last line has no end: the disk was full, or a program was killed.
    is_broken: bool,
}

impl Tail<File> {
    /// Opens a file, and makes it and its folder if they are missing.
    fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let out = private(OpenOptions::new().create(true).append(true)).open(path)?;
        let metadata = out.metadata()?;
        let n_bytes = metadata.len();
        // What cannot be read is taken as whole.
        let is_broken = metadata.is_file() && n_bytes > 0 && !ends_a_line(path).unwrap_or(true);
        Ok(Self { out, n_bytes, is_broken })
    }
}

impl<W: io::Write> Tail<W> {
    /// Appends lines. After half a line, they begin on a line of their own.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_broken && !lines.is_empty() {
            self.write(b"\n")?;
        }
        self.write(lines)
    }

    /// Writes all, and counts what is written, also before an error.
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.out.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    let (written, rest) = bytes.split_at(n);
                    self.n_bytes += n as u64;
                    self.is_broken = !written.ends_with(b"\n");
                    bytes = rest;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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

/// A file that is made may be read by its owner only.
pub(crate) fn private(options: &mut OpenOptions) -> &OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Whether the last byte of a file is a line break.
fn ends_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(io::SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_object::time::Timestamp;
    use tokio_util::sync::CancellationToken;

    /// As the worker does after a rotation.
    fn tidy(file: &LogFile) {
        file.old().tidy(&CancellationToken::new());
    }

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
            tidy(&file);
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
            tidy(&file);
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
        // Requests may wait for the lines, but not for the compression.
        assert!(names(folder.path()).iter().all(|name| name.ends_with(".log")));
        tidy(&file);
        let names = names(folder.path());
        assert_eq!(names.iter().filter(|name| name.ends_with(".gz")).count(), 2);
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

    /// As logrotate does.
    #[tokio::test(start_paused = true)]
    async fn a_file_that_somebody_moves_away_is_followed_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let options = LogFileOptions { bytes_max: 15, ..LogFileOptions::default() };
        let mut file = open(folder.path(), options);
        file.write(&[line(1)]).unwrap();
        fs::rename(folder.path().join("audit.log"), folder.path().join("audit.log.1")).unwrap();
        file.write(&[line(2)]).unwrap();
        let of = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(
            (of("audit.log.1"), of("audit.log")),
            ("000000001\n".into(), "000000002\n".into())
        );
        // With its folder, too.
        fs::remove_dir_all(folder.path()).unwrap();
        file.write(&[line(3)]).unwrap();
        assert_eq!(of("audit.log"), "000000003\n");
    }

    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn lines_go_to_the_old_file_until_a_new_one_can_be_opened() {
        let above = tempfile::tempdir().unwrap();
        let [folder, kept] = ["a", "kept"].map(|name| above.path().join(name));
        let options = LogFileOptions { bytes_max: 15, ..LogFileOptions::default() };
        let mut file = open(&folder, options);
        file.write(&[line(1)]).unwrap();
        // The file is gone, and none can be made.
        fs::rename(&folder, &kept).unwrap();
        std::os::unix::fs::symlink(above.path().join("absent"), &folder).unwrap();
        file.write(&[line(2), line(3)]).unwrap();
        let of = |folder: &Path| fs::read_to_string(folder.join("audit.log")).unwrap();
        assert_eq!(of(&kept), "000000001\n000000002\n000000003\n");
        // Only opening is tried again: what is there now is not moved away.
        fs::remove_file(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("audit.log"), "x\n").unwrap();
        file.write(&[line(4)]).unwrap();
        assert_eq!((of(&folder), names(&folder).len()), ("x\n000000004\n".into(), 1));
        // Its size counts.
        file.write(&[line(5)]).unwrap();
        assert_eq!((of(&folder), names(&folder).len()), ("000000005\n".into(), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_moved_away_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/audit.log");
        let options = LogFileOptions { bytes_max: 15, ..LogFileOptions::default() };
        let mut file = open(&folder.path().join("a"), options);
        file.write(&[line(1)]).unwrap();
        fs::rename(folder.path().join("a"), folder.path().join("kept")).unwrap();
        // No folder: neither renaming nor opening works.
        fs::write(folder.path().join("a"), "").unwrap();
        file.write(&[line(2), line(3)]).unwrap();
        let kept = fs::read_to_string(folder.path().join("kept/audit.log")).unwrap();
        assert_eq!(kept.lines().count(), 3);
        fs::remove_file(folder.path().join("a")).unwrap();
        fs::rename(folder.path().join("kept"), folder.path().join("a")).unwrap();
        file.write(&[line(4)]).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "000000004\n");
        assert_eq!(names(&folder.path().join("a")).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_fault_of_an_old_file_loses_lines_or_keeps_other_old_files() {
        let folder = tempfile::tempdir().unwrap();
        let [stuck, first, second] = ["05", "06", "07"].map(|hour| {
            let path = folder.path().join(format!("audit-2027-01-15T{hour}-00-00.000000Z.log"));
            fs::write(&path, "").unwrap();
            path
        });
        // It can be neither removed as a file nor compressed.
        fs::remove_file(&stuck).unwrap();
        fs::create_dir(&stuck).unwrap();
        let options = LogFileOptions {
            bytes_max: 15,
            backups_max: 2,
            compress: true,
            ..LogFileOptions::default()
        };
        let mut file = open(folder.path(), options);
        file.write(&[line(1), line(2)]).unwrap();
        tidy(&file);
        assert_eq!(fs::read_to_string(folder.path().join("audit.log")).unwrap(), "000000002\n");
        assert!(stuck.exists() && !first.exists() && !second.exists());
        let old = "audit-2027-01-15T08-00-00.000000Z.log.gz";
        assert!(folder.path().join(old).exists(), "{:?}", names(folder.path()));
    }

    /// A disk with little space.
    struct Disk {
        has: Vec<u8>,
        n_free: usize,
    }

    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.n_free);
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.n_free -= n;
            self.has.extend_from_slice(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_half_a_line_the_next_one_begins_on_its_own() {
        let out = Disk { has: Vec::new(), n_free: 14 };
        let mut tail = Tail { out, n_bytes: 0, is_broken: false };
        tail.append(&line(1)).unwrap();
        tail.append(&line(2)).unwrap_err();
        tail.append(&line(3)).unwrap_err();
        // Room for the line break only.
        tail.out.n_free = 1;
        tail.append(&line(4)).unwrap_err();
        tail.out.n_free = 1000;
        tail.append(&line(5)).unwrap();
        assert_eq!(tail.out.has, b"000000001\n0000\n000000005\n");
        assert_eq!(tail.n_bytes, tail.out.has.len() as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_line_of_a_killed_program_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("audit.log"), "0000").unwrap();
        open(folder.path(), LogFileOptions::default()).write(&[line(1)]).unwrap();
        let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
        assert_eq!(text, "0000\n000000001\n");
    }
}
