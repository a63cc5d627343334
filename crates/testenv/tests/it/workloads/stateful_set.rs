//! StatefulSets.

use super::cluster::{InCluster, PODS, Rules, Workload, ask, settled, until};
use crate::cluster::Cluster;
use serde_json::{Value, json};
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Plans, TestEnv};
use std::time::Duration;

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DB: &str = "/apis/apps/v1/namespaces/default/statefulsets/db";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

/// A set that is created, rolled, partly rolled, scaled and rolled back.
struct Numbered {
    policy: &'static str,
}

fn is_ready(n: i64) -> impl Fn(&Value) -> bool {
    move |set: &Value| {
        let status = &set["status"];
        status["observedGeneration"] == set["metadata"]["generation"]
            && status["replicas"] == n
            && status["availableReplicas"] == n
            && status["updatedReplicas"] == n
            && status["currentRevision"] == status["updateRevision"]
    }
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

async fn image_of(env: &TestEnv, pod: &str) -> Value {
    let pod = ask(env, "GET", &format!("{PODS}/{pod}"), &Value::Null).await.unwrap();
    pod["spec"]["containers"][0]["image"].clone()
}

impl Workload for Numbered {
    const CONTROLLERS: &str = "statefulset";

    async fn users(&self, env: &TestEnv, rules: &Rules) {
        let claim = json!({
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "serviceName": "db", "podManagementPolicy": self.policy,
            "ordinals": {"start": 1}, "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": "v1"}]},
            },
            "volumeClaimTemplates": [claim],
        }});
        rules.set(3, 0);
        ask(env, "POST", SETS, &set).await;
        until(env, DB, "three are ready", is_ready(3)).await;
        let pod = ask(env, "GET", &format!("{PODS}/db-3"), &Value::Null).await.unwrap();
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-3");
        assert_eq!(labels["apps.kubernetes.io/pod-index"], "3");
        assert_eq!(
            (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
            (&json!("db-3"), &json!("db"))
        );
        let volume = &pod["spec"]["volumes"][0];
        assert_eq!(volume["persistentVolumeClaim"]["claimName"], "data-db-3", "{pod}");
        let claim = ask(env, "GET", &format!("{CLAIMS}/data-db-1"), &Value::Null).await.unwrap();
        assert_eq!(claim["metadata"]["labels"]["app"], "db");

        // Only the pods from the partition on are updated, one at a time.
        rules.set(3, 2);
        let patch = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}});
        ask(env, "PATCH", DB, &patch).await;
        ask(env, "PATCH", DB, &image("v2")).await;
        let is_partly_updated = |set: &Value| {
            let status = &set["status"];
            status["updatedReplicas"] == 1 && status["availableReplicas"] == 3
        };
        until(env, DB, "the last pod is updated", is_partly_updated).await;
        let images = (image_of(env, "db-2").await, image_of(env, "db-3").await);
        assert_eq!(images, (json!("v1"), json!("v2")));
        let patch = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
        ask(env, "PATCH", DB, &patch).await;
        until(env, DB, "all are updated", is_ready(3)).await;

        // The revision of a template that comes back is renumbered.
        ask(env, "PATCH", DB, &image("v1")).await;
        until(env, DB, "all are rolled back", is_ready(3)).await;
        let revisions = ask(env, "GET", REVISIONS, &Value::Null).await.unwrap();
        let mut numbers: Vec<i64> = revisions["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|revision| revision["revision"].as_i64())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3]);

        // Claims go with the set if the policy says so, also those of pods that are gone.
        rules.set(3, 1);
        let policy = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
        let patch =
            json!({"spec": {"replicas": 1, "persistentVolumeClaimRetentionPolicy": policy}});
        ask(env, "PATCH", DB, &patch).await;
        until(env, DB, "one is left", is_ready(1)).await;
        settled(env).await;
        let claim = ask(env, "GET", &format!("{CLAIMS}/data-db-3"), &Value::Null).await.unwrap();
        let owner = &claim["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["name"]), (&json!("StatefulSet"), &json!("db")));
    }
}

#[test]
fn ordered_set_has_its_numbers_with_every_plan() {
    check(&InCluster(Numbered { policy: "OrderedReady" }), &Plans::new().storms(6));
}

#[test]
fn parallel_set_has_its_numbers_with_every_plan() {
    check(&InCluster(Numbered { policy: "Parallel" }), &Plans::new().storms(6));
}

fn set(replicas: i32, policy: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
        "replicas": replicas, "serviceName": "db", "podManagementPolicy": policy,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {"containers": [{"name": "c", "image": "v1"}]},
        },
    }})
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let pods = cluster.list(PODS).await;
    pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_pod_that_stays_does_not_hold_a_parallel_set(env: &TestEnv) {
    let cluster = Cluster::start(env, "statefulset");
    cluster.create(SETS, &set(3, "Parallel")).await;
    cluster.until_all(PODS, |pods| pods.len() == 3).await;
    let first = format!("{PODS}/db-0");
    cluster.patch(&first, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    cluster.patch(&format!("{first}/status"), &json!({"status": {"phase": "Failed"}})).await;
    cluster.until(&first, |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    cluster.patch(DB, &json!({"spec": {"replicas": 2}})).await;
    cluster.until(&format!("{PODS}/db-2"), Value::is_null).await;
    assert_eq!(names(&cluster).await, ["db-0", "db-1"]);
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_set_may_want_two_billion_pods(env: &TestEnv) {
    let cluster = Cluster::start(env, "statefulset");
    cluster.create(SETS, &set(i32::MAX, "OrderedReady")).await;
    cluster.until(&format!("{PODS}/db-0"), Value::is_object).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(names(&cluster).await, ["db-0"]);
    let ready = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    cluster.patch(&format!("{PODS}/db-0/status"), &ready).await;
    cluster.until(&format!("{PODS}/db-1"), Value::is_object).await;
    cluster.patch(DB, &json!({"spec": {"replicas": 1}})).await;
    cluster.until(&format!("{PODS}/db-1"), Value::is_null).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn as_many_pods_are_replaced_as_may_be_unavailable(_: &TestEnv) {
    let env = TestEnv::builder()
        .simulated(7)
        .control_plane(|plane| {
            let features = [Feature::MaxUnavailableStatefulSet];
            plane.runtime_config(RuntimeConfig::with_gates("", features).unwrap())
        })
        .start()
        .await
        .unwrap();
    let cluster = Cluster::start(&env, "statefulset");
    let mut five = set(5, "Parallel");
    five["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "40%"}});
    cluster.create(SETS, &five).await;
    let ready = async |n: i32| {
        let ready = json!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        }});
        cluster.patch(&format!("{PODS}/db-{n}/status"), &ready).await;
    };
    cluster.until_all(PODS, |pods| pods.len() == 5).await;
    for n in 0..5 {
        ready(n).await;
    }
    cluster.until(DB, |set| set["status"]["availableReplicas"] == 5).await;
    cluster.patch(DB, &image("v2")).await;
    let updated = async |n: i32| {
        let is_new = |pod: &Value| pod["spec"]["containers"][0]["image"] == "v2";
        cluster.until(&format!("{PODS}/db-{n}"), is_new).await;
    };
    let images = async || {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut images = Vec::new();
        for n in 0..5 {
            images.push(image_of(&env, &format!("db-{n}")).await);
        }
        images
    };
    updated(4).await;
    updated(3).await;
    assert_eq!(images().await, ["v1", "v1", "v1", "v2", "v2"]);
    ready(3).await;
    updated(2).await;
    assert_eq!(images().await, ["v1", "v1", "v2", "v2", "v2"]);
    ready(2).await;
    ready(4).await;
    updated(1).await;
    updated(0).await;
}
