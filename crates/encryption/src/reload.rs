//! Reloading a configuration file that changes while the program runs.

use crate::config::{ConfigError, EncryptionConfig, FILE_BYTES_MAX};
use crate::store::EncryptedStore;
use setpoint_object::error::chain;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Period of checks of the file: every minute, as kube-apiserver.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(60);

/// What is called after each change of the file.
type Report = Box<dyn Fn(Option<&[u8; 32]>) + Send>;

/// Applies changes of a file to a store. Its owner runs it; it does nothing by itself.
#[must_use = "a reloader does nothing until it is run"]
pub struct Reloader {
    path: PathBuf,
    store: EncryptedStore,
    /// The hash of the content that was refused last, so that it is reported once.
    refused: Option<[u8; 32]>,
    report: Report,
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The result of a check of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Look {
    /// The content is the store's configuration.
    Same,
    /// The store now uses another configuration.
    Taken,
    /// The file cannot be read or is invalid. The store keeps its configuration.
    Refused(ConfigError),
    /// The same content that was refused before.
    StillRefused,
}

impl Reloader {
    /// A reloader of `path` into `store`.
    pub fn new(path: impl Into<PathBuf>, store: EncryptedStore) -> Self {
        Self { path: path.into(), store, refused: None, report: Box::new(|_| {}) }
    }

    /// Calls `report` after each change of the file: with the digest of the configuration that is
    /// in use now, or without one if the file was refused. Must not block.
    pub fn report(mut self, report: impl Fn(Option<&[u8; 32]>) + Send + 'static) -> Self {
        self.report = Box::new(report);
        self
    }

    /// Checks the file every [`RELOAD_PERIOD`] until `stop`. Dropping the future stops it at once.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(RELOAD_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a dropped tick fires next time.
                _ = ticks.tick() => {}
            }
            let path = self.path.display().to_string();
            let look = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a configuration is applied at the end, in one step.
                look = self.look() => look,
            };
            match look {
                Look::Taken => {
                    tracing::info!(path, "reloaded the encryption configuration");
                    (self.report)(Some(self.store.config().hash()));
                }
                Look::Refused(error) => {
                    tracing::error!(
                        path,
                        error = chain(&error),
                        "the new encryption configuration is invalid; the earlier one stays in use"
                    );
                    (self.report)(None);
                }
                Look::Same | Look::StillRefused => {}
            }
        }
    }

    /// Checks the file now, which is read on a thread that may block. Waits for new plugins until
    /// they are healthy, or for ten seconds or twice the sum of their timeouts, as Kubernetes' API
    /// server; a configuration with plugins that are not healthy is tried again at the next check.
    pub async fn look(&mut self) -> Look {
        let text = match setpoint_small_file::read_async(&self.path, FILE_BYTES_MAX).await {
            Ok(text) => text,
            // Reported each time that the file disappears.
            Err(_) if self.refused == Some([0; 32]) => return Look::StillRefused,
            Err(error) => {
                self.refused = Some([0; 32]);
                return Look::Refused(error.into());
            }
        };
        let hash: [u8; 32] = Sha256::digest(&text).into();
        if hash == *self.store.config().hash() {
            self.refused = None;
            return Look::Same;
        }
        if self.refused == Some(hash) {
            return Look::StillRefused;
        }
        match EncryptionConfig::parse(&text) {
            Ok(config) => {
                if let Err(error) = self.store.try_plugins(&config).await {
                    return Look::Refused(ConfigError::Plugins(error));
                }
                self.store.set_config(config);
                self.refused = None;
                Look::Taken
            }
            Err(error) => {
                self.refused = Some(hash);
                Look::Refused(error)
            }
        }
    }
}
