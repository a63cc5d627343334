//! Ends the program when the one that started it has ended: a suite that is killed leaves nothing
//! running.

use setpoint::object::error::chain;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variable: `true` keeps the program running after its parent.
pub(crate) const OUTLIVE_PARENT: &str = "SETPOINT_OUTLIVE_PARENT";
/// How often it is looked for.
const POLL: Duration = Duration::from_millis(500);
/// How the temporary folders of envtest are named. Only those are removed.
const TEMPORARY_PREFIX: &str = "k8s_test_framework_";

/// The process that started this one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parent {
    /// `None`: it is not watched.
    id: Option<u32>,
}

impl Parent {
    /// The present parent, unless the environment disables the check, or it is the first
    /// process of the system or of a container.
    pub(crate) fn from_environment() -> Self {
        let is_free = std::env::var(OUTLIVE_PARENT).is_ok_and(|value| value == "true");
        let id = parent_id();
        Self { id: (!is_free && id > 1).then_some(id) }
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(self) {
        let Some(id) = self.id else { return std::future::pending().await };
        while parent_id() == id {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Removes temporary folders of envtest, which its suite can no longer remove. Leaves other folders
/// alone.
pub(crate) fn remove_leftovers(folders: &[PathBuf]) {
    for folder in folders.iter().filter(|folder| is_temporary(folder)) {
        match std::fs::remove_dir_all(folder) {
            Ok(()) => tracing::info!(folder = %folder.display(), "removed a folder of the suite"),
            Err(error) => {
                tracing::debug!(error = chain(&error), folder = %folder.display(), "remove a folder")
            }
        }
    }
}

fn is_temporary(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let is_in_temporary = folder.parent() == Some(&std::env::temp_dir());
    is_in_temporary && name.is_some_and(|name| name.starts_with(TEMPORARY_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_envtest_are_removed() {
        let temporary = std::env::temp_dir();
        assert!(is_temporary(&temporary.join("k8s_test_framework_123")));
        assert!(!is_temporary(&temporary.join("other")));
        assert!(!is_temporary(&temporary.join("a/k8s_test_framework_1")));
        assert!(!is_temporary(Path::new("/k8s_test_framework_1")));
    }
}
