//! When files that are read again may have changed.

use std::fs::Metadata;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// How often the files are looked at: every second. kube-apiserver is notified by the kernel, and
/// its tests allow four seconds.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tells when files should be read again.
///
/// Every [`LOOK_INTERVAL`] of tokio time it looks at their metadata, which costs a system call per
/// file. The files are due when something in it differs, and at the latest after a period, because
/// a change may leave no trace there. A link counts as what it leads to, as with the folders of
/// mounted Secrets. The caller compares contents: that the files are due does not mean that they
/// differ.
///
/// The first look makes them due, because they may have changed since the caller's first read.
#[derive(Debug)]
pub struct FileChanges {
    paths: Arc<[PathBuf]>,
    period: Duration,
    looks: Interval,
    /// When they were due last, and their metadata just before.
    seen: Option<(Instant, Vec<Option<Mark>>)>,
}

impl FileChanges {
    /// Looks at these files, which are due at least once in `period`.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>, period: Duration) -> Self {
        let mut looks = tokio::time::interval(LOOK_INTERVAL.min(period));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Not at once: they have just been read.
        looks.reset();
        Self { paths: paths.into_iter().collect(), period, looks, seen: None }
    }

    /// Waits until the files are due. Cancel safe: what a dropped call has not returned is due the
    /// next time.
    pub async fn next(&mut self) {
        loop {
            let now = self.looks.tick().await;
            let marks = marks(&self.paths).await;
            let is_same = self
                .seen
                .as_ref()
                .is_some_and(|(at, seen)| now - *at < self.period && *seen == marks);
            if !is_same {
                self.seen = Some((now, marks));
                return;
            }
        }
    }
}

/// What tells one state of a file from another.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    len: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: [i64; 4],
}

impl From<Metadata> for Mark {
    fn from(metadata: Metadata) -> Self {
        Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode: {
                use std::os::unix::fs::MetadataExt as _;
                let [device, number] = [metadata.dev(), metadata.ino()].map(u64::cast_signed);
                [device, number, metadata.ctime(), metadata.ctime_nsec()]
            },
        }
    }
}

/// The present marks; `None` for a file that cannot be looked at.
async fn marks(paths: &Arc<[PathBuf]>) -> Vec<Option<Mark>> {
    let paths = paths.clone();
    // A network file system may block.
    let look = tokio::task::spawn_blocking(move || {
        let mark = |path: &PathBuf| -> io::Result<Mark> { Ok(std::fs::metadata(path)?.into()) };
        paths.iter().map(|path| mark(path).ok()).collect()
    });
    // Without an outcome they are due: nothing is known about them.
    look.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// How long it takes until the files are due.
    async fn wait(changes: &mut FileChanges) -> Duration {
        let start = Instant::now();
        changes.next().await;
        start.elapsed()
    }

    const PERIOD: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn files_are_due_a_second_after_a_change_and_once_a_period() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "1").unwrap();
        let mut changes = FileChanges::new([at("a"), at("b")], PERIOD);
        assert_eq!(wait(&mut changes).await, LOOK_INTERVAL, "the first look");
        assert_eq!(wait(&mut changes).await, PERIOD, "no change");
        fs::write(at("a"), "12").unwrap();
        assert_eq!(wait(&mut changes).await, LOOK_INTERVAL, "another length");
        fs::write(at("b"), "1").unwrap();
        assert_eq!(wait(&mut changes).await, LOOK_INTERVAL, "a new file");
        fs::write(at("c"), "12").unwrap();
        fs::rename(at("c"), at("a")).unwrap();
        assert_eq!(wait(&mut changes).await, LOOK_INTERVAL, "another file of the name");
        fs::remove_file(at("b")).unwrap();
        assert_eq!(wait(&mut changes).await, LOOK_INTERVAL, "a file less");
        assert_eq!(wait(&mut changes).await, PERIOD);
    }

    /// The kubelet writes a new folder beside the former one, and swaps a link to it.
    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_swapped_link_to_a_folder_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["1", "2"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("tls.crt"), name).unwrap();
        }
        let link = |to: &str| std::os::unix::fs::symlink(Path::new(to), at("new")).unwrap();
        link("1");
        fs::rename(at("new"), at("data")).unwrap();
        let mut changes = FileChanges::new([at("data").join("tls.crt")], PERIOD);
        changes.next().await;
        link("2");
        fs::rename(at("new"), at("data")).unwrap();
        assert_eq!(wait(&mut changes).await, LOOK_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_period_is_the_interval_of_the_looks() {
        let folder = tempfile::tempdir().unwrap();
        let period = Duration::from_millis(20);
        let mut changes = FileChanges::new([folder.path().join("a")], period);
        assert_eq!(wait(&mut changes).await, period);
        assert_eq!(wait(&mut changes).await, period);
    }
}
