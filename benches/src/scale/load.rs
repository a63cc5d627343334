//! The work: Deployments, until all their pods are ready.

use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Client;
use kube_client::api::{Api, ListParams, PostParams};
use kube_runtime::watcher::{self, Event, watcher};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Deployments that are created at the same time.
const CREATES: usize = 16;
/// How long all pods may take: those of kube-controller-manager's default limits need 500 s.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Pods in a page.
const PAGE_PODS: u32 = 500;

/// Deployments of the same number of pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) n_deployments: usize,
    pub(super) replicas: i32,
}

impl Load {
    fn deployment(self, n: usize) -> anyhow::Result<Deployment> {
        let name = format!("web-{n}");
        Ok(serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{
                        "name": "web",
                        "image": "registry.k8s.io/pause:3.10",
                        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                    }]},
                },
            },
        }))?)
    }

    /// Creates the Deployments. Returns the time until their statuses say that all pods are ready.
    pub(super) async fn run(self, client: &Client) -> anyhow::Result<Duration> {
        let deployments = Api::<Deployment>::default_namespaced(client.clone());
        let seen = Box::pin(watcher(deployments.clone(), watcher::Config::default()));
        let began = Instant::now();
        let create = async {
            let all = stream::iter((0..self.n_deployments).map(|n| self.deployment(n)));
            let created = all.map(async |deployment| {
                deployments.create(&PostParams::default(), &deployment?).await?;
                anyhow::Ok(())
            });
            created.buffer_unordered(CREATES).try_collect::<()>().await
        };
        let ready = tokio::time::timeout(PATIENCE, self.all_ready(seen));
        let (created, ready) = tokio::join!(create, ready);
        created?;
        ready.context("the pods are not ready in time")??;
        Ok(began.elapsed())
    }

    async fn all_ready(
        self,
        mut seen: impl futures::Stream<Item = Result<Event<Deployment>, watcher::Error>> + Unpin,
    ) -> anyhow::Result<()> {
        let mut ready = BTreeMap::new();
        let wanted = i64::from(self.replicas) * self.n_deployments as i64;
        loop {
            // It lists and watches again after an error.
            let Ok(event) = seen.next().await.context("the watch has ended")? else { continue };
            let (Event::Apply(deployment) | Event::InitApply(deployment)) = event else { continue };
            let n = deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default();
            ready.insert(deployment.metadata.name, i64::from(n));
            if ready.values().sum::<i64>() == wanted {
                return Ok(());
            }
        }
    }

    /// Checks that the pods are what the statuses say.
    pub(super) async fn check(self, client: &Client) -> anyhow::Result<()> {
        let pods = Api::<Pod>::default_namespaced(client.clone());
        let (mut params, mut n_ready) = (ListParams::default().limit(PAGE_PODS), 0);
        loop {
            let page = pods.list(&params).await?;
            n_ready += page.items.iter().filter(|pod| is_ready(pod)).count();
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => break,
            }
        }
        let wanted = self.n_deployments * usize::try_from(self.replicas)?;
        ensure!(n_ready == wanted, "{n_ready} of {wanted} pods are ready");
        Ok(())
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| {
        all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}
