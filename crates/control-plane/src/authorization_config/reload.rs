//! The file of an authorization configuration, read again while the server runs.

use super::document::{AuthorizationConfig, AuthorizationConfigError, FILE_BYTES_MAX};
use super::{ConfiguredAuthorizers, validate};
use crate::config_metrics::ConfigMetrics;
use crate::reload::Reloads;
use setpoint_object::error::chain;
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the file is read even if nothing seems to have changed: every 10 s. A change is
/// noticed within a second. kube-apiserver watches it, and reads it every minute besides.
pub const RELOAD_PERIOD: Duration = crate::reload::RELOAD_PERIOD;

/// Reads the file of a chain of authorizers again. Its owner runs it.
#[derive(Debug)]
#[must_use = "a changed file has no effect unless it runs"]
pub struct AuthorizationWorker {
    chain: Arc<ConfiguredAuthorizers>,
    path: PathBuf,
    loaded: AuthorizationConfig,
    /// SHA-256 of the file with it.
    hash: [u8; 32],
    /// The content that was read last.
    seen: Option<Vec<u8>>,
    /// Types that must stay.
    required: Vec<String>,
    period: Duration,
    metrics: Option<ConfigMetrics>,
}

impl AuthorizationWorker {
    pub(super) fn new(
        chain: Arc<ConfiguredAuthorizers>,
        (loaded, hash): (AuthorizationConfig, [u8; 32]),
        path: &Path,
    ) -> Self {
        let kinds = loaded.authorizers.iter().map(|one| one.kind.clone());
        let required = kinds.filter(|kind| kind != "Webhook").collect();
        let (path, period) = (path.to_owned(), RELOAD_PERIOD);
        Self { chain, path, loaded, hash, seen: None, required, period, metrics: None }
    }

    /// The configuration of the chain, as it was read last.
    pub fn config(&self) -> &AuthorizationConfig {
        &self.loaded
    }

    /// How often the file is read without a change. Default: [`RELOAD_PERIOD`].
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Shows the digest of the file, and counts reloads. Default: they are only logged.
    pub fn metrics(mut self, metrics: ConfigMetrics) -> Self {
        metrics.loaded(&self.hash);
        self.metrics = Some(metrics);
        self
    }

    /// Reads the file again and again until `stop`. Dropping the future stops it at once.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut reloads = Reloads::of([self.path.clone()], self.period);
        while reloads.next(&stop).await {
            let file = self.path.display().to_string();
            let result = match self.look().await {
                Ok(false) => continue,
                Ok(true) => {
                    tracing::info!(file, "reloaded the authorization configuration");
                    Some(&self.hash)
                }
                Err(error) => {
                    tracing::error!(
                        file,
                        error = chain(&error),
                        "the authorization configuration cannot be used: the earlier one stays"
                    );
                    None
                }
            };
            if let Some(metrics) = &self.metrics {
                metrics.reloaded(result);
            }
        }
    }

    /// Takes the file's configuration if it is another one. Returns whether it is.
    async fn look(&mut self) -> Result<bool, AuthorizationConfigError> {
        let document = setpoint_small_file::read_async(&self.path, FILE_BYTES_MAX).await?;
        if self.seen.as_ref() == Some(&document) {
            return Ok(false);
        }
        let hash = Sha256::digest(&document).into();
        // It is tried once, as in kube-apiserver.
        let document = self.seen.insert(document);
        let config = AuthorizationConfig::parse(document)?;
        config.validate()?;
        let mut required: Vec<&str> = self.required.iter().map(String::as_str).collect();
        required.dedup();
        validate::names(&config, &required).map_err(AuthorizationConfigError::Names)?;
        if config == self.loaded {
            return Ok(false);
        }
        let has = |kind| config.authorizers.iter().any(|one| one.kind == kind);
        for (kind, is_there) in [
            ("Node", self.chain.node.is_some()),
            ("ABAC", self.chain.abac.is_some()),
            ("RBAC", self.chain.rbac.is_some()),
        ] {
            if has(kind) && !is_there {
                return Err(AuthorizationConfigError::Names(format!(
                    "authorizer type {kind} is not allowed if it was not enabled at initial server startup"
                )));
            }
        }
        let authorizers = self.chain.make(&config).await?;
        self.chain.replace(authorizers);
        (self.loaded, self.hash) = (config, hash);
        Ok(true)
    }
}
