//! Creates over HTTPS, the client on the same cores: a load for other measures.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::PostParams;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long each load lasts.
pub(crate) const LOAD: Duration = Duration::from_secs(5);

/// ConfigMaps created one after the other on each of some connections.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    pub(crate) n_connections: usize,
    pub(crate) lasting: Duration,
    /// What each ConfigMap holds.
    pub(crate) data: &'a str,
    /// How their names begin.
    pub(crate) prefix: &'a str,
}

impl Load<'_> {
    /// How many were created a second.
    pub(crate) async fn run(&self, kubeconfig: &Path) -> anyhow::Result<f64> {
        let mut tasks = tokio::task::JoinSet::new();
        for connection in 0..self.n_connections {
            let api = connect(kubeconfig).await?;
            let mut config_map: ConfigMap =
                serde_json::from_value(json!({"metadata": {}, "data": {"payload": self.data}}))?;
            let (prefix, lasting) = (self.prefix.to_owned(), self.lasting);
            tasks.spawn(async move {
                let started = Instant::now();
                let mut n = 0_u64;
                while started.elapsed() < lasting {
                    config_map.metadata.name = Some(format!("{prefix}-{connection}-{n}"));
                    api.create(&PostParams::default(), &config_map).await?;
                    n += 1;
                }
                Ok::<_, kube_client::Error>(n as f64 / started.elapsed().as_secs_f64())
            });
        }
        let mut per_second = 0.0;
        while let Some(ended) = tasks.join_next().await {
            per_second += ended??;
        }
        Ok(per_second)
    }
}

/// A connection of its own, made before any clock runs.
pub(crate) async fn connect(kubeconfig: &Path) -> anyhow::Result<Api<ConfigMap>> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let api: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config)?);
    api.get_opt("warm").await?;
    Ok(api)
}
