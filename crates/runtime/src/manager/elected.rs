//! Whether this process leads.

use tokio_util::sync::CancellationToken;

/// Whether a manager's leader-only members have been started: it was elected, or there is no
/// election (LE-17). Cheap to clone. It never reverts: a manager that has lost its leadership ends.
#[derive(Debug, Clone)]
pub struct Elected(CancellationToken);

impl Elected {
    pub(super) fn new(elected: CancellationToken) -> Self {
        Self(elected)
    }

    /// Whether they have been started.
    pub fn is_elected(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until they have been started; for ever if that never comes. Cancel safe: it only
    /// looks.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }
}
