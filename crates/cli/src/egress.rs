//! `--egress-selector-config-file`: proxies by the kind of traffic.

use clap::Args;
use setpoint::EgressMetrics;
use setpoint::egress::{EgressConfig, EgressSelector};
use setpoint::object::time::Clock;
use setpoint::registry::{Feature, FeatureGates};
use setpoint::runtime::metrics::Metrics;
use std::path::PathBuf;
use std::sync::Arc;

/// The options, named as kube-apiserver's.
#[derive(Debug, Args)]
pub(crate) struct EgressOptions {
    /// An EgressSelectorConfiguration (`apiserver.k8s.io/v1beta1`): the proxies to nodes and
    /// webhooks (`cluster`), to other servers of the control plane (`controlplane`) and to `etcd`,
    /// by `CONNECT` or as tunnels of konnectivity. Read at start. Default: all is direct.
    #[arg(long, value_name = "FILE")]
    egress_selector_config_file: Option<PathBuf>,
}

/// How other servers are reached.
#[derive(Debug, Default)]
pub(crate) struct Egress {
    pub(crate) selector: EgressSelector,
    /// Whether issuers of tokens may name a kind of traffic.
    pub(crate) has_issuers: bool,
}

impl EgressOptions {
    /// The dialers of the file. Dials through proxies are counted in `metrics`.
    pub(crate) async fn open(
        self,
        features: FeatureGates,
        clock: &Clock,
        metrics: &Metrics,
    ) -> anyhow::Result<Egress> {
        let gate = Feature::StructuredAuthenticationConfigurationEgressSelector;
        let has_issuers = features.is_on(gate);
        let Some(path) = self.egress_selector_config_file else {
            return Ok(Egress { has_issuers, ..Egress::default() });
        };
        let config = tokio::task::spawn_blocking(move || EgressConfig::load(&path)).await??;
        let seed = setpoint::object::seed::from_entropy();
        let observer = Arc::new(EgressMetrics::register(metrics));
        let selector = config.selector(clock, seed, observer).await?;
        Ok(Egress { selector, has_issuers })
    }
}
