//! The encryption options of `setpoint up`.

use crate::booleans::boolean;
use anyhow::Context as _;
use clap::{ArgAction, Args};
use futures::future::{BoxFuture, FutureExt as _};
use setpoint::apiserver::{BoxError, HealthCheck};
use setpoint::encryption::{EncryptedStore, EncryptionConfig, NonceSource, Reloader};
use setpoint::object::time::Clock;
use setpoint::runtime::metrics::Metrics;
use setpoint::store::Store;
use setpoint::{ConfigMetrics, ControlPlaneBuilder};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The options, named as kube-apiserver's.
#[derive(Debug, Clone, Args)]
pub(crate) struct EncryptionOptions {
    /// What to encrypt at rest, and with which keys: a file of kind EncryptionConfiguration.
    /// Default: no encryption.
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Check that file every minute and apply its changes.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, requires = "encryption_provider_config")]
    encryption_provider_config_automatic_reload: bool,
}

/// A store, with what keeps its encryption current.
#[derive(Debug)]
pub(crate) struct Wrapped {
    /// The store, encrypted if configured.
    store: Arc<dyn Store>,
    encryption: Option<Encryption>,
}

/// What keeps the encryption of a store current.
#[derive(Debug)]
struct Encryption {
    store: EncryptedStore,
    path: PathBuf,
    /// Whether the file is read again.
    reloads: bool,
}

/// Wraps a store in encryption, if that is configured. Waits once for every plugin, within its
/// timeout: the server starts without plugins that are not ready.
pub(crate) async fn wrap(
    store: Arc<dyn Store>,
    options: &EncryptionOptions,
    clock: &Clock,
) -> anyhow::Result<Wrapped> {
    let Some(path) = &options.encryption_provider_config else {
        return Ok(Wrapped { store, encryption: None });
    };
    let config = EncryptionConfig::load(path)
        .with_context(|| format!("use --encryption-provider-config {}", path.display()))?;
    warn_of_readers(path);
    for line in config.summary() {
        tracing::info!("encryption at rest of {line}");
    }
    // Every nonce uses the operating system's randomness, so that no seed can ever repeat one.
    let nonces = NonceSource::new(|bytes| getrandom::fill(bytes).map_err(std::io::Error::from));
    let store = EncryptedStore::new(store, config, nonces, clock.clone());
    // The poller, which starts later, logs that.
    let _ = store.check_plugins().await;
    let reloads = options.encryption_provider_config_automatic_reload;
    let encryption = Encryption { store: store.clone(), path: path.clone(), reloads };
    Ok(Wrapped { store: Arc::new(store), encryption: Some(encryption) })
}

impl Wrapped {
    /// The store, and the tasks that keep its encryption current. They count in `metrics`, with the
    /// hash of the server's name.
    pub(crate) fn counted(
        &self,
        metrics: &Metrics,
        clock: &Clock,
        server_hash: &str,
    ) -> (Arc<dyn Store>, Option<Keepers>) {
        let keepers = self.encryption.as_ref().map(|encryption| {
            metrics.update(|registry| encryption.store.register_metrics(registry, server_hash));
            let counted =
                ConfigMetrics::register(metrics, "encryption", clock.clone(), server_hash);
            counted.loaded(encryption.store.config().hash());
            let reloader = encryption.reloads.then(|| {
                let reloader = Reloader::new(&encryption.path, encryption.store.clone());
                reloader.report(move |hash| counted.reloaded(hash))
            });
            Keepers { store: encryption.store.clone(), reloader }
        });
        (self.store.clone(), keepers)
    }

    /// Adds the health check of plugins: if there are some, or if the file may name some later.
    pub(crate) fn watched(&self, plane: ControlPlaneBuilder) -> ControlPlaneBuilder {
        match &self.encryption {
            Some(Encryption { store, reloads, .. }) if *reloads || store.has_plugins() => {
                plane.health_check(Arc::new(KmsProviders(store.clone())))
            }
            _ => plane,
        }
    }
}

/// What keeps an encrypted store current. Its owner runs it.
#[derive(Debug)]
pub(crate) struct Keepers {
    store: EncryptedStore,
    reloader: Option<Reloader>,
}

impl Keepers {
    /// Reloads the file and asks plugins, until `stop`. Dropping the future stops it at once.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let reload = async {
            if let Some(reloader) = self.reloader {
                reloader.run(stop.clone()).await;
            }
        };
        tokio::join!(self.store.poll(stop.clone()), reload);
    }
}

/// The health check of plugins, by kube-apiserver's name.
#[derive(Debug)]
struct KmsProviders(EncryptedStore);

impl HealthCheck for KmsProviders {
    fn name(&self) -> &'static str {
        "kms-providers"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        async { Ok(self.0.check_plugins().await?) }.boxed()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::tests::once;
    use setpoint::store::MemoryStore;

    #[tokio::test]
    async fn the_configuration_and_its_digest_are_of_one_read() {
        let (path, _end) = once(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{identity: {}}]}]\n",
        );
        let options = EncryptionOptions {
            encryption_provider_config: Some(path.into()),
            encryption_provider_config_automatic_reload: false,
        };
        let (metrics, clock) = (Metrics::new(), Clock::wall());
        let store = Arc::new(MemoryStore::default());
        wrap(store, &options, &clock).await.unwrap().counted(&metrics, &clock, "sha256:5e");
        let text = metrics.prometheus();
        let hash = "8caf44c973dccc64ee8bbfbc18b34eabad6f6c9b9f6402919de1ff1783caa985";
        assert!(
            text.contains(&format!(
                "last_config_info{{apiserver_id_hash=\"sha256:5e\",hash=\"sha256:{hash}\"}} 1"
            )),
            "{text}"
        );
    }
}
