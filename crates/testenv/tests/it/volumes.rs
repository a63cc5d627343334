//! PersistentVolumes and claims, as a user sees them.

use crate::cluster::{Cluster, controllers, until_either};
use crate::storms::observer::at_every_change;
use serde_json::{Value, json};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::time::Duration;

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const SIMULATED: &str = "volumes.setpoint.dev/simulated";
const CONTROLLER: &str = "persistentvolume-binder";

fn with(mut object: Value, spec: Value) -> Value {
    for (member, value) in spec.as_object().unwrap() {
        object["spec"][member] = value.clone();
    }
    object
}

/// A volume of this size, with these members of its spec.
fn volume(name: &str, size: &str, spec: Value) -> Value {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"}, "storageClassName": "",
        },
    });
    with(volume, spec)
}

fn claim(name: &str, size: &str, spec: Value) -> Value {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
            "storageClassName": "",
        },
    });
    with(claim, spec)
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode,
    })
}

fn is(phase: &str) -> impl Fn(&Value) -> bool {
    move |object| object["status"]["phase"] == phase
}

fn of_claim(name: &str) -> String {
    format!("{CLAIMS}/{name}")
}

fn of_volume(name: &str) -> String {
    format!("{VOLUMES}/{name}")
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn claims_get_the_volume_that_fits(env: &TestEnv) {
    let cluster = Cluster::start(env, CONTROLLER);
    cluster.create(VOLUMES, &volume("large", "10Gi", json!({}))).await;
    cluster.create(VOLUMES, &volume("fits", "3Gi", json!({}))).await;
    let reserved = json!({"claimRef": {"namespace": "default", "name": "later"}});
    cluster.create(VOLUMES, &volume("reserved", "5Gi", reserved)).await;
    for name in ["large", "fits", "reserved"] {
        cluster.until(&of_volume(name), is("Available")).await;
    }
    cluster.create(CLAIMS, &claim("c", "2Gi", json!({}))).await;
    let held = cluster.until(&of_claim("c"), is("Bound")).await;
    assert_eq!(held["spec"]["volumeName"], "fits");
    assert_eq!(held["status"]["capacity"], json!({"storage": "3Gi"}));
    assert_eq!(held["status"]["accessModes"], json!(["ReadWriteOnce"]));
    for name in ["bind-completed", "bound-by-controller"] {
        assert_eq!(held["metadata"]["annotations"][format!("pv.kubernetes.io/{name}")], "yes");
    }
    let bound = cluster.until(&of_volume("fits"), is("Bound")).await;
    assert_eq!(bound["spec"]["claimRef"]["uid"], held["metadata"]["uid"]);
    assert_eq!(bound["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"], "yes");
    let manager = &held["metadata"]["managedFields"][1]["manager"];
    assert_eq!(manager, "kube-controller-manager");

    // The volume that is reserved for it, although it is not the smallest.
    cluster.create(VOLUMES, &volume("small", "1Gi", json!({}))).await;
    cluster.create(CLAIMS, &claim("later", "1Gi", json!({}))).await;
    let held = cluster.until(&of_claim("later"), is("Bound")).await;
    assert_eq!(held["spec"]["volumeName"], "reserved");

    // Nothing fits, until there is a volume.
    cluster.create(CLAIMS, &claim("huge", "50Gi", json!({}))).await;
    cluster.until(&of_claim("huge"), is("Pending")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.create(VOLUMES, &volume("huge", "50Gi", json!({}))).await;
    let held = cluster.until(&of_claim("huge"), is("Bound")).await;
    assert_eq!(held["spec"]["volumeName"], "huge");

    // A claim that names its volume.
    cluster.create(CLAIMS, &claim("named", "20Gi", json!({"volumeName": "large"}))).await;
    cluster.create(CLAIMS, &claim("taken", "1Gi", json!({"volumeName": "fits"}))).await;
    cluster.create(CLAIMS, &claim("fine", "1Gi", json!({"volumeName": "large"}))).await;
    cluster.until(&of_claim("fine"), is("Bound")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    for name in ["named", "taken"] {
        assert!(is("Pending")(&cluster.get(&of_claim(name)).await.unwrap()));
    }
    let events = cluster.events("PersistentVolumeClaim").await;
    for event in [
        "Normal FailedBinding no persistent volumes available for this claim and no storage class is set",
        "Warning VolumeMismatch Cannot bind to requested volume \"large\": requested PV is too small",
        "Warning FailedBinding volume \"fits\" already bound to a different claim.",
    ] {
        assert!(events.iter().any(|held| held == event), "{event}\n{events:#?}");
    }
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn volumes_are_made_for_claims(env: &TestEnv) {
    let cluster = Cluster::start(env, CONTROLLER);
    cluster.create(CLASSES, &class("fast", SIMULATED, "Immediate")).await;
    cluster.create(CLASSES, &class("late", SIMULATED, "WaitForFirstConsumer")).await;
    cluster.create(CLASSES, &class("far", "csi.example.com", "Immediate")).await;
    let of_class = |name: &str, class: &str| claim(name, "2Gi", json!({"storageClassName": class}));
    for name in ["fast", "late", "far", "none"] {
        cluster.create(CLAIMS, &of_class(name, name)).await;
    }
    let held = cluster.until(&of_claim("fast"), is("Bound")).await;
    let name = format!("pvc-{}", held["metadata"]["uid"].as_str().unwrap());
    assert_eq!(held["spec"]["volumeName"], name);
    let made = cluster.until(&of_volume(&name), is("Bound")).await;
    assert_eq!(made["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], SIMULATED);
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(made["spec"]["capacity"], json!({"storage": "2Gi"}));

    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(is("Pending")(&cluster.get(&of_claim("late")).await.unwrap()));
    // The scheduler has chosen a node.
    let chosen = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    cluster.patch(&of_claim("late"), &chosen).await;
    cluster.until(&of_claim("late"), is("Bound")).await;

    let far = cluster.get(&of_claim("far")).await.unwrap();
    let annotation = &far["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"];
    assert_eq!((annotation, is("Pending")(&far)), (&json!("csi.example.com"), true));
    let events = cluster.events("PersistentVolumeClaim").await;
    for event in [
        format!("Normal ProvisioningSucceeded Successfully provisioned volume {name} using {SIMULATED}"),
        "Normal WaitForFirstConsumer waiting for first consumer to be created before binding".to_owned(),
        "Warning ProvisioningFailed storageclass.storage.k8s.io \"none\" not found".to_owned(),
        "Normal ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'csi.example.com' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.".to_owned(),
    ] {
        assert!(events.contains(&event), "{event}\n{events:#?}");
    }

    // Its volume goes with the claim.
    cluster.delete(&of_claim("fast"), &json!({})).await;
    cluster.until(&of_volume(&name), Value::is_null).await;

    // A claim that names no class gets the default one, also later.
    let mut plain = claim("plain", "1Gi", json!({}));
    plain["spec"].as_object_mut().unwrap().remove("storageClassName");
    cluster.create(CLAIMS, &plain).await;
    cluster.until(&of_claim("plain"), is("Pending")).await;
    let mut default = class("default", SIMULATED, "Immediate");
    default["metadata"]["annotations"] =
        json!({"storageclass.kubernetes.io/is-default-class": "true"});
    cluster.create(CLASSES, &default).await;
    let held = cluster.until(&of_claim("plain"), is("Bound")).await;
    assert_eq!(held["spec"]["storageClassName"], "default");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn volumes_outlive_their_claims_by_their_policy(env: &TestEnv) {
    let cluster = Cluster::start(env, CONTROLLER);
    for (name, policy) in [("keep", "Retain"), ("drop", "Delete"), ("clean", "Recycle")] {
        let policy = json!({"persistentVolumeReclaimPolicy": policy});
        cluster.create(VOLUMES, &volume(name, "1Gi", policy)).await;
        let spec = json!({"volumeName": name});
        cluster.create(CLAIMS, &claim(name, "1Gi", spec)).await;
        cluster.until(&of_claim(name), is("Bound")).await;
        cluster.delete(&of_claim(name), &json!({})).await;
    }
    cluster.until(&of_volume("keep"), is("Released")).await;
    let failed = cluster.until(&of_volume("drop"), is("Failed")).await;
    assert_eq!(
        failed["status"]["message"],
        "error getting deleter volume plugin for volume \"drop\": no deletable volume plugin matched"
    );
    let failed = cluster.until(&of_volume("clean"), is("Failed")).await;
    assert_eq!(failed["status"]["message"], "No recycler plugin found for the volume!");
    // A new claim of the same name does not get the old data.
    cluster.create(CLAIMS, &claim("keep", "1Gi", json!({}))).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(is("Pending")(&cluster.get(&of_claim("keep")).await.unwrap()));
    assert!(is("Released")(&cluster.get(&of_volume("keep")).await.unwrap()));

    // A claim whose volume is removed is lost.
    cluster.create(VOLUMES, &volume("gone", "1Gi", json!({}))).await;
    cluster.until(&of_claim("keep"), is("Bound")).await;
    let free = json!({"metadata": {"finalizers": null}});
    cluster.delete(&of_volume("gone"), &json!({})).await;
    cluster.patch(&of_volume("gone"), &free).await;
    cluster.until(&of_claim("keep"), is("Lost")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let events = cluster.events("PersistentVolumeClaim").await;
    let lost =
        "Warning ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    assert!(events.iter().any(|event| event == lost), "{events:#?}");
}

/// Claims that compete for volumes, and one that a volume is made for.
struct Binding;

impl Scenario for Binding {
    type World = ();

    fn world(&self) {}

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let manager = controllers(life.manager(), &life.client, &life.clock, CONTROLLER)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let user = async {
            cluster.create(CLASSES, &class("fast", SIMULATED, "Immediate")).await;
            cluster.create(VOLUMES, &volume("v1", "1Gi", json!({}))).await;
            cluster.create(VOLUMES, &volume("v2", "2Gi", json!({}))).await;
            for name in ["v1", "v2"] {
                cluster.until(&of_volume(name), is("Available")).await;
            }
            // Both want the smaller one; which gets it is open.
            cluster.create(CLAIMS, &claim("a", "1Gi", json!({}))).await;
            cluster.create(CLAIMS, &claim("b", "1Gi", json!({}))).await;
            let made = json!({"storageClassName": "fast"});
            cluster.create(CLAIMS, &claim("made", "1Gi", made)).await;
            for name in ["a", "b", "made"] {
                cluster.until(&of_claim(name), is("Bound")).await;
            }
            cluster.delete(&of_claim("made"), &json!({})).await;
            cluster.until_all(VOLUMES, |volumes| volumes.len() == 2).await;
            // A reference to a claim has its uid, which differs between plays.
            for name in ["a", "b"] {
                cluster.delete(&of_claim(name), &json!({})).await;
            }
            for name in ["v1", "v2"] {
                cluster.until(&of_volume(name), is("Released")).await;
            }
            for name in ["v1", "v2"] {
                cluster.delete(&of_volume(name), &json!({})).await;
            }
            cluster.until_all(VOLUMES, <[Value]>::is_empty).await;
        };
        let watch = at_every_change(env, "/registry/persistentvolumeclaims/", |claims, change| {
            let mut names: Vec<&str> =
                claims.values().filter_map(|claim| claim["spec"]["volumeName"].as_str()).collect();
            names.sort_unstable();
            let n = names.len();
            names.dedup();
            assert_eq!(names.len(), n, "{change}: a volume has two claims: {claims:#?}");
        });
        until_either(watch, user).await;
    }
}

#[test]
fn volumes_have_one_claim_with_every_plan() {
    let n = check(&Binding, &Plans::new().crashes().storms(15));
    assert!(n > 20, "{n} plans");
}
