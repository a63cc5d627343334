//! Deletion of claims and volumes, observed by a client.

use crate::plane::{Person, with_person, with_person_of};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::registry::{Feature, FeatureGates, RuntimeConfig};
use std::time::Duration;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn pod(name: &str, node: Option<&str>, volume: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "volumes": [volume],
            "containers": [{"name": "c", "image": "i"}],
        },
    })
}

fn named(claim: &str) -> Value {
    json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
}

async fn stays(person: &Person, path: &str) {
    tokio::time::sleep(Duration::from_secs(120)).await;
    let object = person.get(path).await.expect("it is in use");
    assert!(object["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test(start_paused = true)]
async fn unused_claim_is_deleted_at_once() {
    with_person(async |person| {
        person.create(CLAIMS, &claim("free")).await;
        person.create(PODS, &pod("unscheduled", None, named("free"))).await;
        person.delete(&format!("{CLAIMS}/free"), "Background").await;
        person.gone(&format!("{CLAIMS}/free")).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_and_a_volume_that_lost_their_protection_get_it_again() {
    with_person(async |person| {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none", "hostPath": {"path": "/v"}},
        });
        let volumes = "/api/v1/persistentvolumes";
        person.create(volumes, &volume).await;
        person.create(CLAIMS, &claim("c")).await;
        for (path, finalizer) in [
            (format!("{volumes}/v"), "kubernetes.io/pv-protection"),
            (format!("{CLAIMS}/c"), "kubernetes.io/pvc-protection"),
        ] {
            let none = json!({"metadata": {"finalizers": ["example.com/own"]}});
            person.patch(&path, &none).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            let found = person.get(&path).await.unwrap();
            let expected = json!(["example.com/own", finalizer]);
            assert_eq!(found["metadata"]["finalizers"], expected);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn claim_remains_until_its_pod_is_gone() {
    with_person(async |person| {
        person.create(CLAIMS, &claim("used")).await;
        person.create(PODS, &pod("p", Some("n"), named("used"))).await;
        person.delete(&format!("{CLAIMS}/used"), "Background").await;
        stays(&person, &format!("{CLAIMS}/used")).await;
        let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let path = format!("{PODS}/p");
        person.request("DELETE", &path, "application/json", &now).await.unwrap();
        person.gone(&format!("{CLAIMS}/used")).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn claim_of_an_ephemeral_volume_belongs_to_its_pod() {
    with_person(async |person| {
        let template = json!({"spec": claim("")["spec"]});
        let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}});
        let owner = person.create(PODS, &pod("p", Some("n"), volume)).await;
        let mut own = claim("p-v");
        own["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner["metadata"]["uid"],
            "controller": true,
        }]);
        person.create(CLAIMS, &own).await;
        person.delete(&format!("{CLAIMS}/p-v"), "Background").await;
        stays(&person, &format!("{CLAIMS}/p-v")).await;
        // A pod that is shut down, and kept by a finalizer, does not protect its ephemeral claim.
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        person.patch(&format!("{PODS}/p"), &hold).await;
        let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let path = format!("{PODS}/p");
        person.request("DELETE", &path, "application/json", &now).await.unwrap();
        person.gone(&format!("{CLAIMS}/p-v")).await;
        assert!(person.get(&path).await.is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn volume_remains_while_it_is_bound() {
    with_person(async |person| {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/data"},
            },
        });
        let path = "/api/v1/persistentvolumes/v";
        let phase = |phase: &str| json!({"status": {"phase": phase}});
        person.create("/api/v1/persistentvolumes", &volume).await;
        person.patch(&format!("{path}/status"), &phase("Bound")).await;
        person.delete(path, "Background").await;
        stays(&person, path).await;
        person.patch(&format!("{path}/status"), &phase("Released")).await;
        person.gone(path).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn namespace_with_a_claim_is_deleted() {
    with_person(async |person| {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}});
        person.create("/api/v1/namespaces", &namespace).await;
        let claims = "/api/v1/namespaces/doomed/persistentvolumeclaims";
        person.create(claims, &claim("data")).await;
        person.create("/api/v1/namespaces/doomed/pods", &pod("p", Some("n"), named("data"))).await;
        let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        person.delete("/api/v1/namespaces/doomed", "Background").await;
        let p = "/api/v1/namespaces/doomed/pods/p";
        person
            .until(p, "it is being deleted", |p| {
                p.as_ref().is_none_or(|p| p["metadata"]["deletionTimestamp"].is_string())
            })
            .await;
        // The final delete of a kubelet.
        let _ = person.request("DELETE", p, "application/json", &now).await;
        person.gone("/api/v1/namespaces/doomed").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_says_since_when_no_pod_uses_it() {
    let gate = Feature::PersistentVolumeClaimUnusedSinceTime;
    let features = FeatureGates::default().with(gate, true);
    let plane = ControlPlane::builder()
        .runtime_config(RuntimeConfig::with_gates("", features).unwrap())
        .build();
    with_person_of(plane, async |person| {
        let until = async |name: &str, status: &str, reason: &str| {
            let is_so = |claim: &Option<Value>| {
                let claim = claim.as_ref().expect("it exists");
                let conditions = claim["status"]["conditions"].as_array();
                conditions.into_iter().flatten().any(|condition| {
                    condition["type"] == "Unused"
                        && condition["status"] == status
                        && condition["reason"] == reason
                        && condition["lastTransitionTime"].is_string()
                })
            };
            person.until(&format!("{CLAIMS}/{name}"), reason, is_so).await;
        };
        for name in ["data", "p-v", "q-v"] {
            person.create(CLAIMS, &claim(name)).await;
            until(name, "True", "NoPodsUsingPVC").await;
        }
        // Without a node, too.
        person.create(PODS, &pod("p", None, named("data"))).await;
        until("data", "False", "PodUsingPVC").await;
        let template = json!({"spec": claim("")["spec"]});
        let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}});
        let owner = person.create(PODS, &pod("q", None, volume)).await;
        let reference = json!([{"apiVersion": "v1", "kind": "Pod", "name": "q",
            "uid": owner["metadata"]["uid"], "controller": true}]);
        let owned = json!({"metadata": {"ownerReferences": reference}});
        person.patch(&format!("{CLAIMS}/q-v"), &owned).await;
        until("q-v", "False", "PodUsingPVC").await;
        until("p-v", "True", "NoPodsUsingPVC").await;
        let done = json!({"status": {"phase": "Succeeded"}});
        person.patch(&format!("{PODS}/p/status"), &done).await;
        until("data", "True", "NoPodsUsingPVC").await;
        person.delete(&format!("{PODS}/q"), "Background").await;
        person.gone(&format!("{CLAIMS}/q-v")).await;
    })
    .await;
}
