//! Folders of manifests (`staticManifestsDir`), read when the program starts and while it runs.

use super::{AdmissionConfigError, STATIC_MANIFESTS};
use crate::ControlPlaneBuilder;
use crate::config_metrics::{ConfigMetrics, sha256};
use crate::reload::{RELOAD_PERIOD, Reloads};
use futures::FutureExt as _;
use serde_json::Value;
use setpoint_object::error::chain;
use setpoint_object::field;
use setpoint_registry::{Feature, FeatureGates, ManifestError, ManifestFile, Manifests};
use setpoint_small_file::SmallFileError;
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum bytes of the files of one folder: 16 MiB, several times what etcd would store of one
/// object.
pub const MANIFEST_BYTES_MAX: usize = 16 << 20;
/// Maximum number of entries of one folder.
pub const MANIFEST_FILES_MAX: usize = 10_000;

/// Endings of the names of files that are read; others are ignored.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Why the manifests of a folder are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestFolderError {
    /// The folder cannot be read.
    #[error("failed to read manifest directory {:?}", path.display().to_string())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It has more than [`MANIFEST_FILES_MAX`] entries.
    #[error("{} has more than {MANIFEST_FILES_MAX} entries", .0.display())]
    TooMany(PathBuf),
    /// A file in it cannot be read, or the files have more than [`MANIFEST_BYTES_MAX`] bytes.
    #[error(transparent)]
    File(#[from] SmallFileError),
    /// What is in them is refused.
    #[error(transparent)]
    Refused(#[from] ManifestError),
    /// The thread that reads them has ended early.
    #[error("the manifests were not read to the end")]
    Interrupted,
}

/// The manifests of a plugin, and their folder.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub(super) manifests: Manifests,
    path: PathBuf,
    /// Of the files that were read last, whether they were taken or not.
    seen: Seen,
}

/// The files of a folder, as they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    paths: Vec<PathBuf>,
    /// Of all of them; empty: nothing is in them.
    digest: String,
}

impl Folder {
    /// The manifests of a plugin, if its configuration, which is in `file`, names a folder with
    /// them. Blocks.
    pub(super) fn named(
        plugin: &str,
        file: &Path,
        configuration: &Value,
        features: FeatureGates,
    ) -> Result<Option<Self>, AdmissionConfigError> {
        let given = configuration.get(STATIC_MANIFESTS).and_then(Value::as_str).unwrap_or_default();
        let Some(manifests) = Manifests::of(plugin).filter(|_| !given.is_empty()) else {
            return Ok(None);
        };
        let (at, folder) = (field::Path::new(STATIC_MANIFESTS), Path::new(given));
        let invalid = |detail: &str| {
            Err(field::Error::invalid(at.clone(), &configuration[STATIC_MANIFESTS], detail))
        };
        let checked = if !features.is_on(Feature::ManifestBasedAdmissionControlConfig) {
            let detail = "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled";
            Err(field::Error::forbidden(at.clone(), detail))
        } else if !folder.is_absolute() {
            invalid("must be an absolute file path")
        } else {
            match std::fs::metadata(folder) {
                Err(error) => invalid(&format!("unable to read: {error}")),
                Ok(found) if !found.is_dir() => invalid("must be a directory"),
                Ok(_) => Ok(()),
            }
        };
        checked.map_err(|error| AdmissionConfigError::Invalid { path: file.to_owned(), error })?;
        let plugin = manifests.plugin();
        Self::open(manifests, folder).map(Some).map_err(|source| {
            let path = folder.to_owned();
            AdmissionConfigError::Manifests { plugin, path, source }
        })
    }

    /// Reads a folder, and takes what is in it. Blocks.
    fn open(manifests: Manifests, path: &Path) -> Result<Self, ManifestFolderError> {
        let (files, seen) = read(path)?;
        manifests.load(&files)?;
        Ok(Self { manifests, path: path.to_owned(), seen })
    }

    /// Reads it again. Returns the digest if the files differ, and whether they are taken.
    fn look(&mut self) -> Result<Option<String>, ManifestFolderError> {
        let (files, seen) = read(&self.path)?;
        let is_same = seen.digest == self.seen.digest;
        // They are tried once. kube-apiserver tries what it has refused again and again.
        self.seen = seen;
        if is_same {
            return Ok(None);
        }
        self.manifests.load(&files)?;
        Ok(Some(self.seen.digest.clone()))
    }

    async fn run(
        mut self,
        period: Duration,
        metrics: Option<ConfigMetrics>,
        stop: &CancellationToken,
    ) {
        let (plugin, folder) = (self.manifests.plugin(), self.path.display().to_string());
        let count = |digest: Option<&str>| {
            if let Some(metrics) = &metrics {
                metrics.reloaded_as(digest);
            }
        };
        count(Some(&self.seen.digest));
        let mut watched = self.watched();
        let mut reloads = Reloads::of(watched.clone(), period);
        while reloads.next(stop).await {
            let mut looking = self.clone();
            let looked = tokio::task::spawn_blocking(move || (looking.look(), looking)).await;
            let outcome = match looked {
                Ok((outcome, looked)) => {
                    self = looked;
                    outcome
                }
                Err(_) => Err(ManifestFolderError::Interrupted),
            };
            match outcome {
                Ok(None) => {}
                Ok(Some(digest)) => {
                    tracing::info!(plugin, folder, "reloaded the manifests");
                    count(Some(&digest));
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::error!(
                        plugin,
                        folder,
                        error,
                        "the manifests cannot be used: the earlier ones stay"
                    );
                    count(None);
                }
            }
            if self.watched() != watched {
                watched = self.watched();
                reloads = Reloads::of(watched.clone(), period);
            }
        }
    }

    /// What changes if a file is added, removed, replaced or written.
    fn watched(&self) -> Vec<PathBuf> {
        [&self.path].into_iter().chain(&self.seen.paths).cloned().collect()
    }
}

/// The files of a folder by name, without the empty ones.
fn read(folder: &Path) -> Result<(Vec<ManifestFile>, Seen), ManifestFolderError> {
    let failed = |source| ManifestFolderError::Folder { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for (n, entry) in std::fs::read_dir(folder).map_err(failed)?.enumerate() {
        if n == MANIFEST_FILES_MAX {
            return Err(ManifestFolderError::TooMany(folder.to_owned()));
        }
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_named = ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending));
        if is_named && !entry.file_type().map_err(failed)?.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    let (mut files, mut left, mut hasher) = (Vec::new(), MANIFEST_BYTES_MAX, Sha256::new());
    for path in &paths {
        let text = setpoint_small_file::read(path, left)?;
        left -= text.len();
        if !text.is_empty() {
            hasher.update(&text);
            hasher.update([0]);
            files.push(ManifestFile { path: path.display().to_string(), text });
        }
    }
    let digest = match files.is_empty() {
        true => String::new(),
        false => sha256(&hasher.finalize().into()),
    };
    Ok((files, Seen { paths, digest }))
}

/// Reads the folders of manifests again, those of [`AdmissionConfiguration`]. Its owner runs it.
///
/// [`AdmissionConfiguration`]: super::AdmissionConfiguration
#[derive(Debug)]
#[must_use = "a changed file has no effect unless it runs"]
pub struct ManifestsWorker {
    folders: Vec<Folder>,
    period: Duration,
    metrics: Option<ConfigMetrics>,
}

impl ManifestsWorker {
    pub(super) fn new(folders: Vec<Folder>) -> Self {
        Self { folders, period: RELOAD_PERIOD, metrics: None }
    }

    /// How often files are read if nothing seems to have changed: every 10 s by default. A change
    /// is noticed within a second.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Counts loads by plugin, the first one too. Default: they are only logged.
    pub fn metrics(mut self, metrics: ConfigMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Reads the folders again and again until `stop`. Dropping the future stops it at once.
    pub async fn run(self, stop: CancellationToken) {
        let runs = self.folders.into_iter().map(|folder| {
            let plugin = folder.manifests.plugin();
            let metrics = self.metrics.as_ref().map(|metrics| metrics.of_plugin(plugin));
            folder.run(self.period, metrics, &stop)
        });
        futures::future::join_all(runs).await;
    }
}

impl ControlPlaneBuilder {
    /// Reads the folders of manifests again while the control plane runs. Default: what was loaded
    /// first stays.
    pub fn manifests(mut self, worker: ManifestsWorker) -> Self {
        self.extensions.task(move |_, stop| worker.run(stop).boxed());
        self
    }
}
