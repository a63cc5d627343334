//! `etcd-operator save`: streams a snapshot of a member into a file.

use crate::etcd::{Etcd as _, EtcdError, Gateway, snapshot};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

/// A saved backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The snapshot has every write up to this revision, and maybe later ones.
    pub revision: i64,
    /// The size of the file.
    pub size_bytes: i64,
    /// The version of the member.
    pub version: String,
}

/// Writes a snapshot of the first endpoint that returns one. The file gets its name once it is
/// complete and synced; until then the name ends in `.part`.
///
/// # Errors
///
/// No member gives a whole snapshot, or the file cannot be written.
pub async fn save(endpoints: &[String], file: &Path) -> Result<Report, EtcdError> {
    let mut failed = EtcdError::NoEndpoint;
    for endpoint in endpoints {
        match save_from(endpoint, file).await {
            Ok(report) => return Ok(report),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), endpoint, "save a snapshot");
                failed = error;
            }
        }
    }
    Err(failed)
}

async fn save_from(endpoint: &str, file: &Path) -> Result<Report, EtcdError> {
    // Before the snapshot: it has at least this revision.
    let look = Gateway.look(endpoint).await?;
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = fs::File::create(&part).await.map_err(EtcdError::Write)?;
    let mut written = tokio::io::BufWriter::new(written);
    let size = snapshot(endpoint, async |bytes| written.write_all(bytes).await).await?;
    let finished = async {
        written.flush().await?;
        written.get_ref().sync_all().await?;
        fs::rename(&part, file).await?;
        // Syncs the name of the file too.
        if let Some(folder) = file.parent() {
            fs::File::open(folder).await?.sync_all().await?;
        }
        Ok(())
    };
    finished.await.map_err(EtcdError::Write)?;
    let size_bytes = i64::try_from(size).unwrap_or(i64::MAX);
    Ok(Report { revision: look.revision, size_bytes, version: look.version })
}
