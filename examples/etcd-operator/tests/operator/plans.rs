//! The operator through crashes and faults: wherever it is stopped, clusters and objects end where
//! they would have ended without.

use crate::world::{World, kubelet};
use etcd_operator::api::{EtcdBackup, EtcdCluster};
use etcd_operator::backup::Agent;
use etcd_operator::manager;
use serde_json::{Value, json};
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{Patch, PatchParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::scenario::check;
use setpoint::testenv::wire::Crash;
use setpoint::testenv::{Life, Plan, Plans, Scenario, TestEnv, exists, gone, matches};
use std::sync::Arc;

pub(crate) fn agent() -> Agent {
    Agent { image: "etcd-operator".to_owned(), command: "/etcd-operator".to_owned() }
}

pub(crate) fn cluster(name: &str, size: u32, restore_from: Value) -> EtcdCluster {
    let mut object = json!({
        "apiVersion": "etcd.example.dev/v1", "kind": "EtcdCluster",
        "metadata": {"name": name},
        "spec": {
            "size": size, "version": "3.5.1", "storage": {"size": "1Gi"}, "addresses": "PodIp",
        },
    });
    if !restore_from.is_null() {
        object["spec"]["restoreFrom"] = restore_from;
    }
    serde_json::from_value(object).unwrap()
}

pub(crate) fn backup(name: &str, cluster: &str) -> EtcdBackup {
    let object = json!({
        "apiVersion": "etcd.example.dev/v1", "kind": "EtcdBackup",
        "metadata": {"name": name},
        "spec": {"cluster": cluster, "destination": {"hostPath": "/backups"}},
    });
    serde_json::from_value(object).unwrap()
}

/// Waits until a cluster runs as its spec says.
pub(crate) async fn settled(env: &TestEnv, name: &str) -> EtcdCluster {
    let clusters: Api<EtcdCluster> = Api::default_namespaced(env.client());
    let is_settled = |found: &Value| {
        let (status, size) = (&found["status"], &found["spec"]["size"]);
        status["observedGeneration"] == found["metadata"]["generation"]
            && status["phase"] == "Running"
            && status["readyMembers"] == *size
            && status["version"] == found["spec"]["version"]
    };
    env.until(&clusters, name, matches("runs as declared", is_settled)).await.unwrap()
}

async fn change(env: &TestEnv, spec: Value) {
    let clusters: Api<EtcdCluster> = Api::default_namespaced(env.client());
    let patch = Patch::Merge(json!({"spec": spec}));
    clusters.patch("demo", &PatchParams::default(), &patch).await.unwrap();
}

/// A cluster grows, loses the data of a member, is upgraded and shrinks.
struct OneCluster;

impl Scenario for OneCluster {
    type World = World;

    fn world(&self) -> World {
        World::default()
    }

    async fn live(&self, life: Life, world: World) -> Result<(), BoxError> {
        Ok(manager(life.manager(), Arc::new(world), agent()).await?.run(life.stop).await?)
    }

    async fn drive(&self, env: &TestEnv, world: &World) {
        tokio::select! {
            biased;
            () = kubelet(env, world) => {}
            () = life(env, world) => {}
        }
    }

    fn definitions(&self) -> Vec<CustomResourceDefinition> {
        vec![EtcdCluster::crd(), EtcdBackup::crd()]
    }

    fn outside(&self, world: &World) -> Value {
        world.outside()
    }
}

async fn life(env: &TestEnv, world: &World) {
    let clusters: Api<EtcdCluster> = Api::default_namespaced(env.client());
    clusters.create(&PostParams::default(), &cluster("demo", 1, Value::Null)).await.unwrap();
    settled(env, "demo").await;
    change(env, json!({"size": 3})).await;
    let before = settled(env, "demo").await;
    world.lose("demo", "demo-1");
    let is_new = move |found: &Value| {
        let old = before.status.as_ref().unwrap().members[1].id.as_str();
        let members = found["status"]["members"].as_array().into_iter().flatten();
        members.clone().count() == 3 && members.clone().all(|member| member["id"] != old)
    };
    env.until(&clusters, "demo", matches("has another member", is_new)).await;
    settled(env, "demo").await;
    change(env, json!({"version": "3.5.2", "size": 2})).await;
    settled(env, "demo").await;
}

/// Some crashes and storms, since a play takes about a second; with the environment variable
/// `SEEDS`, a crash at every write and that many storms.
fn plans() -> Plans {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    if let Some(n_storms) = seeds {
        return Plans::new().crashes().storms(n_storms);
    }
    let crashes = (4..100).step_by(12).flat_map(|n| [Crash::Before(n), Crash::After(n + 5)]);
    let crashes = crashes.map(|crash| {
        let mut plan = Plan::clean(0);
        plan.crash = Some(crash);
        plan
    });
    let storms = (1..8).map(|seed| {
        let mut plan = Plan::storm(seed);
        // If the store fails between the two writes of a pod's end, the pod stays for good.
        plan.store_chance = 0.0;
        plan
    });
    crashes.chain(storms).fold(Plans::new(), Plans::plan)
}

#[test]
fn cluster_ends_the_same_by_every_plan() {
    check(&OneCluster, &plans());
}

#[setpoint::test]
async fn backup_is_taken_and_restored_into_a_new_cluster(env: &TestEnv) -> Result<(), BoxError> {
    let world = World::default();
    env.run(manager(env.manager(), Arc::new(world.clone()), agent()).await?);
    let user = async {
        let clusters: Api<EtcdCluster> = Api::default_namespaced(env.client());
        let backups: Api<EtcdBackup> = Api::default_namespaced(env.client());
        let params = PostParams::default();
        // Neither the backup nor the cluster that it is of is there yet.
        clusters.create(&params, &cluster("copy", 1, json!({"backup": "b"}))).await?;
        let waits = |found: &Value| {
            let conditions = found["status"]["conditions"].as_array().into_iter().flatten();
            let message = "the EtcdBackup b is not complete";
            conditions.clone().any(|condition| condition["message"] == message)
        };
        env.until(&clusters, "copy", matches("waits for the backup", waits)).await;
        backups.create(&params, &backup("b", "source")).await?;
        let is_pending = |found: &Value| found["status"]["phase"] == "Pending";
        env.until(&backups, "b", matches("is pending", is_pending)).await;
        clusters.create(&params, &cluster("source", 1, Value::Null)).await?;
        let is_complete = |found: &Value| {
            let status = &found["status"];
            status["phase"] == "Complete" && status["revision"] == 5 && status["sizeBytes"] == 100
        };
        env.until(&backups, "b", matches("is complete", is_complete)).await;
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(env.client());
        env.until(&pods, "b-backup", gone()).await;
        settled(env, "copy").await;
        let pod = env.until(&pods, "copy-0", exists()).await.unwrap();
        let init = pod.spec.unwrap().init_containers.unwrap();
        let words = init[0].command.iter().chain(&init[0].args).flatten();
        let words: Vec<&str> = words.map(String::as_str).take(4).collect();
        assert_eq!(words, ["etcdutl", "snapshot", "restore", "/var/lib/backup/b.db"]);
        Ok::<_, BoxError>(())
    };
    tokio::select! {
        biased;
        () = kubelet(env, &world) => Ok(()),
        done = user => done,
    }
}

#[setpoint::test]
async fn specs_that_cannot_be_are_refused(env: &TestEnv) -> Result<(), BoxError> {
    env.install(&EtcdCluster::crd()).await?;
    env.install(&EtcdBackup::crd()).await?;
    let clusters: Api<EtcdCluster> = Api::default_namespaced(env.client());
    let params = PostParams::default();
    for bad in [
        cluster("a", 0, Value::Null),
        cluster("a", 10, Value::Null),
        cluster("a", 1, json!({})),
        cluster("a", 1, json!({"backup": "b", "location": {"hostPath": "/x", "file": "f"}})),
        cluster("a", 1, json!({"location": {"hostPath": "/x", "file": "../f"}})),
    ] {
        assert!(clusters.create(&params, &bad).await.is_err(), "{bad:?}");
    }
    clusters.create(&params, &cluster("a", 1, Value::Null)).await?;
    for change in [
        json!({"restoreFrom": {"backup": "b"}}),
        json!({"addresses": "Dns"}),
        json!({"storage": {"size": "2Gi"}}),
    ] {
        let patch = Patch::Merge(json!({"spec": change}));
        assert!(clusters.patch("a", &PatchParams::default(), &patch).await.is_err(), "{change}");
    }
    Ok(())
}
