//! The operator through crashes and faults: wherever it is stopped, clusters and objects end where
//! they would have ended without.

use crate::world::{World, kubelet};
use etcd_operator::api::{EtcdBackup, EtcdCluster};
use etcd_operator::backup::Agent;
use etcd_operator::manager;
use serde_json::{Value, json};
use setpoint::k8s_openapi::api::core::v1::Pod;
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{Patch, PatchParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::scenario::check;
use setpoint::testenv::wire::Crash;
use setpoint::testenv::{Life, Plan, Plans, Scenario, TestEnv, exists, gone, matches};
use std::sync::Arc;
use std::time::Duration;

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

/// Waits until the nodes have said that all members' pods are ready: etcd answers before that.
async fn all_ready(env: &TestEnv, size: u32) {
    let pods: Api<Pod> = Api::default_namespaced(env.client());
    for ordinal in 0..size {
        let is_ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
        env.until(&pods, &format!("demo-{ordinal}"), matches("is ready", is_ready)).await;
    }
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
    all_ready(env, 2).await;
}

/// Some of the crashes, since a play takes about a second, and storms.
fn plans() -> Plans {
    let crashes = (4..100).step_by(12).flat_map(|n| [Crash::Before(n), Crash::After(n + 5)]);
    let crashes = crashes.map(|crash| {
        let mut plan = Plan::clean(0);
        plan.crash = Some(crash);
        plan
    });
    crashes.fold(Plans::new().storms(8), Plans::plan)
}

#[test]
fn cluster_ends_the_same_by_every_plan() {
    check(&OneCluster, &plans());
}

/// Nodes fail under the members of a cluster, and the folder of its backups cannot be written.
struct Outages;

impl Scenario for Outages {
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
            () = outages(env, world) => {}
        }
    }

    fn definitions(&self) -> Vec<CustomResourceDefinition> {
        vec![EtcdCluster::crd(), EtcdBackup::crd()]
    }

    fn outside(&self, world: &World) -> Value {
        world.outside()
    }
}

/// Matches a cluster with a condition of this status and reason.
fn says(kind: &'static str, status: &'static str, reason: &'static str) -> impl Fn(&Value) -> bool {
    move |found: &Value| {
        let conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .clone()
            .any(|one| one["type"] == kind && one["status"] == status && one["reason"] == reason)
    }
}

async fn outages(env: &TestEnv, world: &World) {
    let clusters: Api<EtcdCluster> = Api::default_namespaced(env.client());
    let mut demo = cluster("demo", 3, Value::Null);
    // More than the second outage takes, with clocks that differ.
    demo.spec.replace_after_seconds = 300;
    clusters.create(&PostParams::default(), &demo).await.unwrap();
    settled(env, "demo").await;

    // A member goes, and then another: the majority is gone, and nobody is removed.
    world.set_down(&["demo-1"]);
    let is_degraded = says("Degraded", "True", "MembersDown");
    env.until(&clusters, "demo", matches("says that a member is down", is_degraded)).await;
    world.set_down(&["demo-1", "demo-2"]);
    let is_unavailable = says("Available", "False", "NoQuorum");
    env.until(&clusters, "demo", matches("says that no majority answers", is_unavailable)).await;
    // The cluster should be smaller: not while nobody agrees to it.
    change(env, json!({"size": 1})).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(world.voters("demo"), (3, 1));
    change(env, json!({"size": 3})).await;

    // The second is back. The first is silent for too long, and is replaced under its number, where
    // no pod becomes ready.
    world.set_down(&["demo-1"]);
    let is_silent = says("Degraded", "True", "PodSilent");
    env.until(&clusters, "demo", matches("says that a new pod is silent", is_silent)).await;
    assert_eq!(world.voters("demo"), (2, 2));

    // A backup whose folder cannot be written does not fail for good.
    world.fail_saves(2);
    let backups: Api<EtcdBackup> = Api::default_namespaced(env.client());
    backups.create(&PostParams::default(), &backup("b", "demo")).await.unwrap();
    let has_failed = says("Complete", "False", "AttemptFailed");
    env.until(&backups, "b", matches("says that it cannot be written", has_failed)).await;
    let is_complete = says("Complete", "True", "Complete");
    let found = env.until(&backups, "b", matches("is complete", is_complete)).await.unwrap();
    assert_eq!(found.status.unwrap().failed_attempts, 2);

    world.set_down(&[]);
    settled(env, "demo").await;
    let is_healthy = says("Degraded", "False", "Healthy");
    env.until(&clusters, "demo", matches("says that all is well", is_healthy)).await;
    let pods: Api<Pod> = Api::default_namespaced(env.client());
    for name in ["b-backup", "b-backup-1", "b-backup-2"] {
        env.until(&pods, name, gone()).await;
    }
    all_ready(env, 3).await;
}

#[test]
fn outages_cost_no_majority_by_any_plan() {
    // A play has an hour of outages and takes some ten seconds: `SEEDS` plays more of them.
    check(&Outages, &Plans::new().storms(3));
}

#[setpoint::test]
async fn a_backup_fails_when_its_deadline_is_over(env: &TestEnv) -> Result<(), BoxError> {
    let world = World::default();
    world.fail_saves(u32::MAX);
    env.run(manager(env.manager(), Arc::new(world.clone()), agent()).await?);
    let user = async {
        let clusters: Api<EtcdCluster> = Api::default_namespaced(env.client());
        clusters.create(&PostParams::default(), &cluster("source", 1, Value::Null)).await?;
        let mut object = backup("b", "source");
        object.spec.deadline_seconds = 60;
        let backups: Api<EtcdBackup> = Api::default_namespaced(env.client());
        backups.create(&PostParams::default(), &object).await?;
        let has_failed = says("Complete", "False", "Failed");
        let found = env.until(&backups, "b", matches("has failed", has_failed)).await.unwrap();
        let status = found.status.unwrap();
        // At once, after 10 s and after 20 s more.
        assert_eq!((&*status.phase, status.failed_attempts), ("Failed", 3));
        let message =
            "no snapshot was written within 60 s: write the snapshot: No space left on device";
        assert_eq!(status.message.as_deref(), Some(message));
        Ok::<_, BoxError>(())
    };
    tokio::select! {
        biased;
        () = kubelet(env, &world) => Ok(()),
        done = user => done,
    }
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
        let pods: Api<Pod> = Api::default_namespaced(env.client());
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
