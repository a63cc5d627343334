//! The encryption options of `setpoint up`.

use anyhow::Context as _;
use clap::{ArgAction, Args};
use setpoint::ConfigMetrics;
use setpoint::encryption::{EncryptedStore, EncryptionConfig, NonceSource, Reloader};
use setpoint::object::time::Clock;
use setpoint::runtime::metrics::Metrics;
use setpoint::store::Store;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The options, named as kube-apiserver's.
#[derive(Debug, Clone, Args)]
pub(crate) struct EncryptionOptions {
    /// What to encrypt at rest, and with which keys: a file of kind EncryptionConfiguration.
    /// Default: no encryption.
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Check that file every minute and apply its changes.
    #[arg(
        long,
        requires = "encryption_provider_config",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        value_name = "BOOL",
        default_value_t = false,
        default_missing_value = "true"
    )]
    encryption_provider_config_automatic_reload: bool,
}

/// A store, with the task that reloads the configuration file if that is enabled. The caller runs
/// the task.
#[derive(Debug)]
pub(crate) struct Wrapped {
    /// The store, encrypted if configured.
    store: Arc<dyn Store>,
    /// The reload task, and its file.
    reloader: Option<(Reloader, PathBuf)>,
}

/// Wraps a store in encryption, if that is configured.
pub(crate) fn wrap(store: Arc<dyn Store>, options: &EncryptionOptions) -> anyhow::Result<Wrapped> {
    let Some(path) = &options.encryption_provider_config else {
        return Ok(Wrapped { store, reloader: None });
    };
    let config = EncryptionConfig::load(path)
        .with_context(|| format!("use --encryption-provider-config {}", path.display()))?;
    warn_of_readers(path);
    for line in config.summary() {
        tracing::info!("encryption at rest of {line}");
    }
    // Every nonce uses the operating system's randomness, so that no seed can ever repeat one.
    let nonces = NonceSource::new(|bytes| getrandom::fill(bytes).map_err(std::io::Error::from));
    let store = EncryptedStore::new(store, config, nonces);
    let reloader = options
        .encryption_provider_config_automatic_reload
        .then(|| (Reloader::new(path, store.clone()), path.clone()));
    Ok(Wrapped { store: Arc::new(store), reloader })
}

impl Wrapped {
    /// The reload task, which counts in `metrics`.
    pub(crate) fn counted(
        self,
        metrics: &Metrics,
        clock: &Clock,
    ) -> (Arc<dyn Store>, Option<Reloader>) {
        let reloader = self.reloader.map(|(reloader, path)| {
            let counted = ConfigMetrics::register(metrics, "encryption", clock.clone());
            if let Ok(document) = std::fs::read(path) {
                counted.loaded(&document);
            }
            reloader.report(move |hash| match hash {
                Some(hash) => {
                    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
                    counted.reloaded(Some(&format!("sha256:{hex}")));
                }
                None => counted.reloaded(None),
            })
        });
        (self.store, reloader)
    }
}

/// Warns if other users can read the file, which contains the keys.
fn warn_of_readers(path: &Path) {
    let mode = path.metadata().map(|metadata| metadata.permissions().mode()).unwrap_or(0);
    if mode & 0o077 != 0 {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{:o}", mode & 0o777),
            "other users can read the encryption configuration, which contains the keys: chmod 600"
        );
    }
}
