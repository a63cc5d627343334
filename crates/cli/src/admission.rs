//! The admission options of `setpoint up`.

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use setpoint::registry::{AdmissionOptions as Plugins, AdmissionPlugins, FeatureGates};
use setpoint::remote::ImagePolicyWebhook;
use setpoint::{
    AdmissionConfiguration, ConfigMetrics, ControlPlaneBuilder, ManifestsWorker, WebhookCredentials,
};
use std::path::PathBuf;
use std::sync::Arc;

/// The plugin that calls another server.
const IMAGE_POLICY: &str = "ImagePolicyWebhook";

/// The options, named as kube-apiserver's.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdmissionOptions {
    /// Additional admission plugins, separated by commas. Those that run by default need not be
    /// named.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    disable_admission_plugins: Vec<String>,
    /// Configurations of admission plugins: a file of kind AdmissionConfiguration.
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
    /// For how many seconds a new pod tolerates that its node is not ready, if it does not say so.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true)]
    default_not_ready_toleration_seconds: i64,
    /// For how many seconds a new pod tolerates that its node is unreachable, if it does not say
    /// so.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true)]
    default_unreachable_toleration_seconds: i64,
}

/// What the options name.
pub(crate) struct Opened {
    plugins: AdmissionPlugins,
    /// What webhooks are shown.
    credentials: WebhookCredentials,
    manifests: Option<ManifestsWorker>,
}

impl Opened {
    /// Counts loads of manifests.
    pub(crate) fn counted(mut self, metrics: impl FnOnce() -> ConfigMetrics) -> Self {
        self.manifests = self.manifests.map(|worker| worker.metrics(metrics()));
        self
    }

    /// Adds all to a control plane.
    pub(crate) fn apply(self, mut plane: ControlPlaneBuilder) -> ControlPlaneBuilder {
        if let Some(worker) = self.manifests {
            plane = plane.manifests(worker);
        }
        plane.admission_plugins(self.plugins).webhook_credentials(self.credentials)
    }
}

impl AdmissionOptions {
    /// Makes the plugins, and reads what webhooks are shown and the manifests.
    pub(crate) async fn open(&self, features: FeatureGates) -> anyhow::Result<Opened> {
        let (mut credentials, mut manifests) = (WebhookCredentials::default(), None);
        let mut options = Plugins::default().toleration_seconds(
            self.default_not_ready_toleration_seconds,
            self.default_unreachable_toleration_seconds,
        );
        for name in self.enable_admission_plugins.iter().filter(|name| !name.is_empty()) {
            options = options.enable(name);
        }
        for name in self.disable_admission_plugins.iter().filter(|name| !name.is_empty()) {
            options = options.disable(name);
        }
        if let Some(path) = &self.admission_control_config_file {
            let configuration =
                AdmissionConfiguration::load(path, features).with_context(|| {
                    format!("use --admission-control-config-file {}", path.display())
                })?;
            credentials = configuration.webhook_credentials()?;
            manifests = configuration.manifests();
            options = configuration.apply(options);
        }
        if options.enables(IMAGE_POLICY) {
            let configuration = options.configuration(IMAGE_POLICY).unwrap_or(&Value::Null);
            let plugin = ImagePolicyWebhook::open(configuration).await;
            let plugin = plugin
                .with_context(|| format!("couldn't init admission plugin {IMAGE_POLICY:?}"))?;
            options = options.provide(Arc::new(plugin));
        }
        Ok(Opened { plugins: options.build()?, credentials, manifests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unknown_names_are_refused_and_empty_ones_ignored() {
        let options = |enable: &str, disable: &str| AdmissionOptions {
            enable_admission_plugins: enable.split(',').map(str::to_owned).collect(),
            disable_admission_plugins: disable.split(',').map(str::to_owned).collect(),
            admission_control_config_file: None,
            default_not_ready_toleration_seconds: 300,
            default_unreachable_toleration_seconds: 300,
        };
        let features = FeatureGates::default();
        assert!(options("AlwaysPullImages,NodeRestriction", "").open(features).await.is_ok());
        let error = options("", "Foo").open(features).await.map(drop).unwrap_err();
        assert_eq!(error.to_string(), r#"disable-admission-plugins plugin "Foo" is unknown"#);
    }
}
