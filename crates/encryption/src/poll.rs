//! Asks the plugins of a store how they are.

use crate::config::EncryptionConfig;
use crate::environment::Environment;
use crate::kms::{NEGATIVE_INTERVAL, POSITIVE_INTERVAL, Plugin, UnhealthyPlugins};
use crate::store::EncryptedStore;
use futures::future::join_all;
use setpoint_object::error::chain;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The pause before a seed that a reader lacks is asked for again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How often plugins of a new configuration are asked whether they are healthy.
const TRIAL_PERIOD: Duration = Duration::from_millis(100);
/// The least time in which they have to be: ten seconds, as in Kubernetes.
const TRIAL_TIME_MIN: Duration = Duration::from_secs(10);

impl EncryptedStore {
    /// Whether the current configuration has plugins.
    pub fn has_plugins(&self) -> bool {
        !self.config().plugins().is_empty()
    }

    /// Checks every plugin, at most once in some seconds. Ends within the sum of their timeouts.
    /// Dropping the future cancels calls.
    ///
    /// # Errors
    ///
    /// The plugins that are not healthy.
    pub async fn check_plugins(&self) -> Result<(), UnhealthyPlugins> {
        check(&self.config(), self.environment()).await
    }

    /// Keeps plugins ready until `stop`: asks for their key ids, makes seeds, and asks again for
    /// what readers lack. Without plugins it waits for a configuration with some. Dropping the
    /// future stops it at once.
    pub async fn poll(self, stop: CancellationToken) {
        let mut configs = self.configs();
        loop {
            configs.mark_unchanged();
            let config = self.config();
            let kept = async {
                join_all(config.plugins().iter().map(|plugin| self.keep(plugin))).await;
                // There are no plugins.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: it is state. The sender is in this store.
                _ = configs.changed() => {}
                // Cancel safe: a cancelled call changes nothing.
                () = kept => {}
            }
        }
    }

    /// Keeps one plugin ready.
    async fn keep(&self, plugin: &Arc<Plugin>) {
        let environment = self.environment();
        let mut was_healthy = true;
        loop {
            let checked = plugin.check(environment).await;
            if checked.is_ok() && plugin.retry(environment).await {
                self.restart_feeds();
            }
            if was_healthy != checked.is_ok() {
                was_healthy = checked.is_ok();
                match &checked {
                    Ok(()) => tracing::info!(name = plugin.name(), "the KMS plugin is healthy"),
                    Err(error) => {
                        tracing::error!(
                            name = plugin.name(),
                            error = chain(&error),
                            "the KMS plugin is not healthy"
                        );
                    }
                }
            }
            let pause = match checked.is_ok() && !plugin.has_wanted() {
                true => POSITIVE_INTERVAL,
                false => NEGATIVE_INTERVAL,
            };
            tokio::select! {
                biased;
                // Cancel safe: the pause starts anew, and is shorter.
                () = plugin.until_wanted() => sleep(RETRY_PAUSE).await,
                // Cancel safe: a dropped sleep has no effect.
                () = sleep(pause) => {}
            }
        }
    }

    /// Waits until all plugins of a new configuration are healthy: at most ten seconds, or twice
    /// the sum of their timeouts, as Kubernetes' API server.
    pub(crate) async fn try_plugins(
        &self,
        config: &EncryptionConfig,
    ) -> Result<(), UnhealthyPlugins> {
        let timeouts: Duration = config.plugins().iter().map(|plugin| plugin.timeout()).sum();
        let deadline = Instant::now() + TRIAL_TIME_MIN.max(2 * timeouts);
        loop {
            match check(config, self.environment()).await {
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => sleep(TRIAL_PERIOD).await,
                Ok(()) => return Ok(()),
            }
        }
    }
}

/// Checks every plugin, one after the other.
async fn check(
    config: &EncryptionConfig,
    environment: &Arc<Environment>,
) -> Result<(), UnhealthyPlugins> {
    let mut unhealthy = Vec::new();
    for (idx, plugin) in config.plugins().iter().enumerate() {
        if let Err(error) = plugin.check(environment).await {
            unhealthy.push((idx, error));
        }
    }
    if unhealthy.is_empty() { Ok(()) } else { Err(UnhealthyPlugins(unhealthy)) }
}
