//! The operator beside a control plane in this process: no cluster, no socket, no waiting.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::scenario::check;
use setpoint::testenv::{Life, Plans, Scenario, TestEnv, exists, gone, has_condition};
use website::{Website, manager};

/// What a user does, and waits for.
async fn user(env: &TestEnv) -> Result<(), BoxError> {
    let sites = Api::<Website>::default_namespaced(env.client());
    let deployments = Api::<Deployment>::default_namespaced(env.client());
    let hello: Website = serde_json::from_str(include_str!("../website.json"))?;
    sites.create(&PostParams::default(), &hello).await?;

    // The operator makes a Deployment.
    let deployment = env.until(&deployments, "hello", exists()).await;
    assert_eq!(deployment.and_then(|deployment| deployment.spec.replicas), Some(2));
    env.until(&sites, "hello", has_condition("Ready", "False")).await;

    // There is no kubelet, so the test writes the status.
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2}});
    deployments.patch_status("hello", &PatchParams::default(), &Patch::Merge(status)).await?;
    env.until(&sites, "hello", has_condition("Ready", "True")).await;
    Ok(())
}

#[setpoint::test]
async fn website_is_ready_when_its_pods_are(env: &TestEnv) -> Result<(), BoxError> {
    env.run(manager(env.manager()).await?);
    user(env).await?;

    let sites = Api::<Website>::default_namespaced(env.client());
    let deployments = Api::<Deployment>::default_namespaced(env.client());
    sites.delete("hello", &DeleteParams::background()).await?;
    env.until(&deployments, "hello", gone()).await;
    Ok(())
}

/// The same while the operator dies and the server fails.
struct Hello;

impl Scenario for Hello {
    type World = ();

    fn world(&self) {}

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        Ok(manager(life.manager()).await?.run(life.stop).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        env.install(&Website::crd()).await.expect("the definition is served");
        user(env).await.expect("do what the user does");
    }
}

#[test]
fn website_is_ready_in_the_end_whatever_happens() {
    check(&Hello, &Plans::new().crashes().storms(20));
}
