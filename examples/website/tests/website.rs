//! The operator beside a control plane in this process: no cluster, no socket, no waiting.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::kube_client::api::{Patch, PatchParams, PostParams};
use setpoint::kube_client::{Api, Client};
use setpoint::prelude::*;
use std::time::Duration;
use website::{Website, controller};

/// Time is paused: it moves on by itself when all have something to wait for.
#[tokio::test(start_paused = true)]
async fn website_gets_a_deployment_and_counts_its_ready_pods() -> anyhow::Result<()> {
    let plane = ControlPlane::builder().simulated(1).build();
    let client = plane.client();
    let stop = CancellationToken::new();
    let beside = async {
        let tested = beside_operator(client).await;
        stop.cancel();
        tested
    };
    let (ended, tested) = tokio::join!(plane.run(stop.clone()), beside);
    ended?;
    tested
}

async fn beside_operator(client: Client) -> anyhow::Result<()> {
    let mut manager = Manager::builder(client.clone()).seed(1).build();
    manager.install_crds([Website::crd()]).await?;
    manager.add(controller()?)?;
    let stop = CancellationToken::new();
    let user = async {
        let done = user(client).await;
        stop.cancel();
        done
    };
    let (ended, done) = tokio::join!(manager.run(stop.clone()), user);
    ended?;
    done
}

async fn user(client: Client) -> anyhow::Result<()> {
    let sites = Api::<Website>::default_namespaced(client.clone());
    let deployments = Api::<Deployment>::default_namespaced(client);
    let hello: Website = serde_json::from_str(include_str!("../website.json"))?;
    sites.create(&PostParams::default(), &hello).await?;

    // The operator makes a Deployment.
    let deployment = eventually(async || deployments.get_opt("hello").await.ok()?).await?;
    assert_eq!(deployment.spec.replicas, Some(2));

    // No kubelet is here: the test says what it would say.
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2}});
    deployments.patch_status("hello", &PatchParams::default(), &Patch::Merge(status)).await?;
    eventually(async || {
        let status = sites.get("hello").await.ok()?.status?;
        (status.ready_replicas == 2).then_some(())
    })
    .await
}

/// Looks until there is something to see, for a minute at most.
async fn eventually<T>(look: impl AsyncFn() -> Option<T>) -> anyhow::Result<T> {
    let looks = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    Ok(tokio::time::timeout(Duration::from_secs(60), looks).await?)
}
