//! The controller over a cloud: what its user sees.

use super::cloud::Cloud;
use super::fake::Fake;
use network::api::{CRD_YAML, Network, NetworkSpec};
use network::backend::NeutronBackend;
use serde_json::{Value, json};
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::testenv::{TestEnv, gone, matches};
use std::sync::Arc;
use std::time::Duration;

/// Runs the controller in an environment.
pub(crate) async fn start(env: &TestEnv, backend: NeutronBackend) {
    env.install(&serde_saphyr::from_str(CRD_YAML).unwrap()).await.unwrap();
    let mut manager = env.manager().cache(network::controller::cache()).build();
    manager.add(network::controller::controller(Arc::new(backend)).unwrap()).unwrap();
    env.run(manager);
}

fn networks(env: &TestEnv) -> Api<Network> {
    Api::default_namespaced(env.client())
}

pub(crate) async fn declare(env: &TestEnv, name: &str, cidr: &str, gateway: &str) {
    let spec = NetworkSpec { cidr: cidr.into(), gateway: gateway.into() };
    networks(env).create(&PostParams::default(), &Network::new(name, spec)).await.unwrap();
}

/// Waits for a condition.
pub(crate) async fn judged(env: &TestEnv, name: &str, status: &str, reason: &str) {
    let (status, reason) = (status.to_owned(), reason.to_owned());
    let what = format!("Ready is {status} {reason}");
    let is_so = move |network: &Value| {
        let condition = &network["status"]["conditions"][0];
        condition["status"] == *status
            && condition["reason"] == *reason
            && network["status"]["observedGeneration"] == network["metadata"]["generation"]
    };
    env.until(&networks(env), name, matches(&what, is_so)).await;
}

async fn patch(env: &TestEnv, name: &str, patch: Value) {
    let params = PatchParams::default();
    networks(env).patch(name, &params, &Patch::Merge(patch)).await.unwrap();
}

/// Has the controller look at once.
async fn touch(env: &TestEnv, name: &str, value: &str) {
    patch(env, name, json!({ "metadata": { "annotations": { "touched": value } } })).await;
}

async fn message(env: &TestEnv, name: &str) -> String {
    let network = networks(env).get(name).await.unwrap();
    network.status.unwrap().conditions[0].message.clone()
}

/// From creation to deletion.
pub(crate) async fn tell(env: &TestEnv, cloud: &Cloud) {
    declare(env, "office", "10.0.0.0/24", "10.0.0.1").await;
    judged(env, "office", "True", "Synced").await;
    let office = cloud.only("networks").await;
    let status = networks(env).get("office").await.unwrap().status.unwrap();
    assert_eq!(json!(status.device), office["id"]);
    assert_eq!(status.cidr.as_deref(), Some("10.0.0.0/24"));

    // Somebody deletes the gateway's port: it is there again after the check period.
    let port = cloud.only("ports").await["id"].as_str().unwrap().to_owned();
    cloud.remove("port", &port).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while cloud.all("ports").await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the port does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    patch(env, "office", json!({ "spec": { "cidr": "10.0.0.0/16" } })).await;
    judged(env, "office", "True", "Synced").await;
    assert_eq!(cloud.only("subnets").await["cidr"], "10.0.0.0/16");

    // The quota is used up.
    cloud.quota(json!({ "network": 1 })).await;
    declare(env, "lab", "10.9.0.0/24", "10.9.0.1").await;
    judged(env, "lab", "False", "QuotaExceeded").await;
    assert!(message(env, "lab").await.ends_with("Quota exceeded for resources: ['network']."));
    cloud.quota(json!({ "network": 5 })).await;
    touch(env, "lab", "1").await;
    judged(env, "lab", "True", "Synced").await;
    networks(env).delete("lab", &DeleteParams::default()).await.unwrap();
    env.until(&networks(env), "lab", gone()).await;

    // A server is on the network when that is deleted.
    let server = cloud.make("port", json!({ "network_id": office["id"] })).await;
    networks(env).delete("office", &DeleteParams::default()).await.unwrap();
    let reason = |network: &Value| network["status"]["conditions"][0]["reason"] == "InUse";
    env.until(&networks(env), "office", matches("is in use", reason)).await;
    assert!(message(env, "office").await.contains(&server));
    assert_eq!(cloud.only("networks").await["id"], office["id"]);
    cloud.remove("port", &server).await;
    touch(env, "office", "1").await;
    env.until(&networks(env), "office", gone()).await;
    cloud.is_empty().await;
}

#[setpoint::test]
async fn user_sees_what_becomes_of_networks(env: &TestEnv) {
    let cloud = Fake::new(env.clock().clone()).cloud("p1");
    start(env, cloud.backend().check_every(Duration::from_secs(60))).await;
    tell(env, &cloud).await;
}

#[setpoint::test]
async fn network_in_use_and_a_used_up_quota_are_looked_at_again_by_themselves(env: &TestEnv) {
    let cloud = Fake::new(env.clock().clone()).cloud("p1");
    start(env, cloud.backend()).await;
    cloud.quota(json!({ "network": 0 })).await;
    declare(env, "office", "10.0.0.0/24", "10.0.0.1").await;
    judged(env, "office", "False", "QuotaExceeded").await;
    cloud.wire.take_log();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let tries = cloud.wire.take_writes().len();
    assert!((9..=11).contains(&tries), "one try a minute: {tries} in ten");
    cloud.quota(json!({ "network": 1 })).await;
    judged(env, "office", "True", "Synced").await;
    let network = cloud.only("networks").await["id"].clone();
    let server = cloud.make("port", json!({ "network_id": network })).await;
    networks(env).delete("office", &DeleteParams::default()).await.unwrap();
    judged_in_use(env).await;
    cloud.remove("port", &server).await;
    env.until(&networks(env), "office", gone()).await;
    cloud.is_empty().await;
}

async fn judged_in_use(env: &TestEnv) {
    let is_so = |network: &Value| network["status"]["conditions"][0]["reason"] == "InUse";
    env.until(&networks(env), "office", matches("is in use", is_so)).await;
}
