//! The options of `setpoint up` that say what is encrypted at rest.

use anyhow::Context as _;
use clap::{ArgAction, Args};
use setpoint::encryption::{EncryptedStore, EncryptionConfig, NonceSource, Reloader};
use setpoint::store::Store;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The options. They have the names that kube-apiserver gives them.
#[derive(Debug, Clone, Args)]
pub(crate) struct EncryptionOptions {
    /// What is encrypted at rest, and with which keys: a file of the kind EncryptionConfiguration.
    /// Default: nothing.
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Looks at that file every minute, and takes over what changed.
    #[arg(
        long,
        requires = "encryption_provider_config",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true"
    )]
    encryption_provider_config_automatic_reload: bool,
}

/// A store, and what follows the configuration file if it is to be followed: its owner runs it.
#[derive(Debug)]
pub(crate) struct Wrapped {
    /// The store to stand on.
    pub(crate) store: Arc<dyn Store>,
    /// What to run beside it.
    pub(crate) reloader: Option<Reloader>,
}

/// Puts encryption over a store, if it is asked for.
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
    // The operating system's randomness for every nonce: nothing here can be seeded alike twice.
    let nonces = NonceSource::new(|bytes| getrandom::fill(bytes).map_err(std::io::Error::from));
    let store = EncryptedStore::new(store, config, nonces);
    let reloader = options
        .encryption_provider_config_automatic_reload
        .then(|| Reloader::new(path, store.clone()));
    Ok(Wrapped { store: Arc::new(store), reloader })
}

/// The file holds the keys to everything.
fn warn_of_readers(path: &Path) {
    let mode = path.metadata().map(|metadata| metadata.permissions().mode()).unwrap_or(0);
    if mode & 0o077 != 0 {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{:o}", mode & 0o777),
            "others than its owner can use the encryption configuration, which holds the keys: chmod 600"
        );
    }
}
