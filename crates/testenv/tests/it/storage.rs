//! Ephemeral volumes, growing claims, attributes classes, and the annotations of nodes.

use crate::cluster::{Cluster, controllers};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{AttributesClassProtection, Selection, Setup};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::time::Duration;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const ATTRIBUTES_CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const SIMULATED: &str = "volumes.setpoint.dev/simulated";
const TTL: &str = "node.alpha.kubernetes.io/ttl";

fn claim_spec() -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
    })
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": claim_spec(),
    })
}

/// A pod with an ephemeral volume `data`.
fn pod(name: &str) -> Value {
    let template = json!({
        "metadata": {"labels": {"of": name}, "annotations": {"note": "kept"}},
        "spec": claim_spec(),
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "data", "ephemeral": {"volumeClaimTemplate": template}},
            ],
        },
    })
}

fn attributes_class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": {"name": name}, "driverName": "csi.example.com",
        "parameters": {"iops": "100"},
    })
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn of_claim(name: &str) -> String {
    format!("{CLAIMS}/{name}")
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn ephemeral_volumes_get_claims_of_their_pod(env: &TestEnv) {
    let cluster = Cluster::start(env, "ephemeral-volume");
    let made = cluster.create(PODS, &pod("web")).await;
    let held = cluster.until(&of_claim("web-data"), |claim| !claim.is_null()).await;
    assert_eq!(held["metadata"]["labels"], json!({"of": "web"}));
    assert_eq!(held["metadata"]["annotations"], json!({"note": "kept"}));
    assert_eq!(held["spec"]["resources"]["requests"]["storage"], "1Gi");
    let owner = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": made["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(held["metadata"]["ownerReferences"], owner);

    // A deleted claim is made again.
    let again =
        |claim: &Value| !claim.is_null() && claim["metadata"]["uid"] != held["metadata"]["uid"];
    cluster.delete(&of_claim("web-data"), &json!({})).await;
    cluster.until(&of_claim("web-data"), again).await;

    // A claim of somebody else is not used.
    cluster.create(CLAIMS, &claim("other-data")).await;
    cluster.create(PODS, &pod("other")).await;
    let refusal = "Warning FailedBinding ephemeral volume data: PVC default/other-data was not created for pod default/other (pod is not owner)";
    let seen = async {
        while !cluster.events("Pod").await.iter().any(|event| event == refusal) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), seen).await.unwrap();
    // Until it is gone.
    cluster.delete(&of_claim("other-data"), &json!({})).await;
    let is_own = |claim: &Value| claim["metadata"]["ownerReferences"][0]["name"] == "other";
    cluster.until(&of_claim("other-data"), is_own).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn simulated_volumes_follow_their_claims(env: &TestEnv) {
    let cluster = Cluster::start(env, "persistentvolume-binder");
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": SIMULATED, "allowVolumeExpansion": true,
    });
    cluster.create(CLASSES, &class).await;
    cluster.create(ATTRIBUTES_CLASSES, &attributes_class("gold")).await;
    cluster.create(CLAIMS, &claim("c")).await;
    let held = cluster.until(&of_claim("c"), |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(held["status"]["capacity"]["storage"], "1Gi");
    let larger = json!({"spec": {
        "resources": {"requests": {"storage": "3Gi"}}, "volumeAttributesClassName": "gold",
    }});
    cluster.patch(&of_claim("c"), &larger).await;
    let grown = |claim: &Value| {
        claim["status"]["capacity"]["storage"] == "3Gi"
            && claim["status"]["currentVolumeAttributesClassName"] == "gold"
    };
    cluster.until(&of_claim("c"), grown).await;
    let volume = held["spec"]["volumeName"].as_str().unwrap();
    let volume = cluster.get(&format!("{VOLUMES}/{volume}")).await.unwrap();
    assert_eq!(volume["spec"]["capacity"]["storage"], "3Gi");
    assert_eq!(volume["spec"]["volumeAttributesClassName"], "gold");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn attributes_classes_stay_while_they_are_used(env: &TestEnv) {
    let cluster = Cluster::of(env);
    let path = |name: &str| format!("{ATTRIBUTES_CLASSES}/{name}");
    for name in ["used", "free"] {
        cluster.create(ATTRIBUTES_CLASSES, &attributes_class(name)).await;
    }
    let mut user = claim("c");
    user["spec"]["volumeAttributesClassName"] = "used".into();
    cluster.create(CLAIMS, &user).await;
    for name in ["used", "free"] {
        cluster.delete(&path(name), &json!({})).await;
    }
    cluster.until(&path("free"), Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let used = cluster.get(&path("used")).await.unwrap();
    assert_eq!(used["metadata"]["finalizers"], json!(["kubernetes.io/vac-protection"]));
    cluster.delete(&of_claim("c"), &json!({})).await;
    cluster.until(&path("used"), Value::is_null).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn nodes_say_how_long_what_was_read_may_be_used(env: &TestEnv) {
    let cluster = Cluster::start(env, "ttl");
    let is =
        |seconds: &'static str| move |node: &Value| node["metadata"]["annotations"][TTL] == seconds;
    for n in 0..101 {
        cluster.create(NODES, &node(&format!("n{n}"))).await;
    }
    for n in [0, 50, 100] {
        cluster.until(&format!("{NODES}/n{n}"), is("15")).await;
    }
    cluster.patch(&format!("{NODES}/n0"), &json!({"metadata": {"annotations": {TTL: "7"}}})).await;
    cluster.until(&format!("{NODES}/n0"), is("15")).await;
    for n in 89..101 {
        cluster.delete(&format!("{NODES}/n{n}"), &json!({})).await;
    }
    cluster.until(&format!("{NODES}/n0"), is("0")).await;
}

/// Pods with ephemeral volumes that come and go, a class in use, and nodes.
struct Storage;

impl Scenario for Storage {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers("garbagecollector,pvc-protection".parse::<Selection>().unwrap())
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let names = "ephemeral-volume,ttl";
        let mut manager = controllers(life.manager(), &life.client, &life.clock, names)?;
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        AttributesClassProtection::new(setup).add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let class = format!("{ATTRIBUTES_CLASSES}/gold");
        cluster.create(ATTRIBUTES_CLASSES, &attributes_class("gold")).await;
        let mut user = claim("user");
        user["spec"]["volumeAttributesClassName"] = "gold".into();
        cluster.create(CLAIMS, &user).await;
        cluster.delete(&class, &json!({})).await;
        for name in ["a", "b"] {
            cluster.create(NODES, &node(name)).await;
            cluster.create(PODS, &pod(name)).await;
        }
        for name in ["a", "b"] {
            let is_own = |claim: &Value| claim["metadata"]["ownerReferences"][0]["name"] == name;
            cluster.until(&of_claim(&format!("{name}-data")), is_own).await;
            let is_annotated = |node: &Value| node["metadata"]["annotations"][TTL] == "0";
            cluster.until(&format!("{NODES}/{name}"), is_annotated).await;
        }
        assert!(cluster.get(&class).await.is_some(), "a claim uses the class");
        cluster.delete(&of_claim("user"), &json!({})).await;
        cluster.until(&class, Value::is_null).await;
        cluster.delete(&format!("{PODS}/a"), &json!({"gracePeriodSeconds": 0})).await;
        cluster.until(&of_claim("a-data"), Value::is_null).await;
        let claims = cluster.list(CLAIMS).await;
        assert_eq!(claims.len(), 1, "a claim per volume: {claims:#?}");
    }
}

#[test]
fn claims_classes_and_nodes_end_the_same_with_every_plan() {
    check(&Storage, &Plans::new().crashes().storms(8));
}
