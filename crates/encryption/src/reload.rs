//! A configuration file that changes while the program runs.

use crate::config::{self, ConfigError, EncryptionConfig};
use crate::store::EncryptedStore;
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often the file is looked at: every minute, as kube-apiserver does.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(60);

/// Takes a file's changes over into a store. It is run by its owner, and does nothing by itself.
#[derive(Debug)]
#[must_use = "a reloader does nothing until it is run"]
pub struct Reloader {
    path: PathBuf,
    store: EncryptedStore,
    /// The content that was refused last: told once.
    refused: Option<[u8; 32]>,
}

/// What a look at the file found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Look {
    /// What the store works by.
    Same,
    /// Another configuration, by which the store works now.
    Taken,
    /// It cannot be read or does not hold: the store works on as before.
    Refused(ConfigError),
    /// The same that was refused before.
    StillRefused,
}

impl Reloader {
    /// A reloader of `path` into `store`.
    pub fn new(path: impl Into<PathBuf>, store: EncryptedStore) -> Self {
        Self { path: path.into(), store, refused: None }
    }

    /// Looks at the file every [`RELOAD_PERIOD`] until `stop`. Dropping it stops it at once.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(RELOAD_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a dropped tick comes next time.
                _ = ticks.tick() => {}
            }
            let path = self.path.display().to_string();
            match self.look() {
                Look::Taken => tracing::info!(path, "the encryption configuration is taken over"),
                Look::Refused(error) => tracing::error!(
                    path,
                    error = &error as &dyn std::error::Error,
                    "the encryption configuration is not taken over: what was before goes on"
                ),
                Look::Same | Look::StillRefused => {}
            }
        }
    }

    /// Looks at the file now. It is small: reading it blocks for a moment.
    pub fn look(&mut self) -> Look {
        let text = match config::read_file(&self.path) {
            Ok(text) => text,
            // Told each time that it changes between there and not there.
            Err(_) if self.refused == Some([0; 32]) => return Look::StillRefused,
            Err(error) => {
                self.refused = Some([0; 32]);
                return Look::Refused(error);
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
