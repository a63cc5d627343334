//! When files are read again while a control plane runs.

use setpoint_small_file::FileChanges;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often files are read even if nothing seems to have changed: every 10 s, as those of the
/// server's certificate. kube-apiserver reads them every minute then.
pub(crate) const RELOAD_PERIOD: Duration = Duration::from_secs(10);

/// The times at which files are read again: within a second after a change, and once a period.
#[derive(Debug)]
pub(crate) struct Reloads(FileChanges);

impl Reloads {
    /// Those of files that have just been read.
    pub(crate) fn of(paths: impl IntoIterator<Item = PathBuf>, period: Duration) -> Self {
        Self(FileChanges::new(paths, period))
    }

    /// Waits for the next time; `false` if `stop` comes first. Cancel safe: a dropped wait loses
    /// no change.
    pub(crate) async fn next(&mut self, stop: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            // Cancel safe.
            () = self.0.next() => true,
        }
    }
}
