//! Storage protection.

use super::observer::{at_every_change, of};
use crate::cluster::{Cluster, until_either};
use crate::workloads::cluster::ask;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{ProtectionController, Setup, UnusedClaims};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::time::Duration;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Claims and volumes that are deleted while they are in use.
struct InUse;

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/data"},
        },
    })
}

fn pod(name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": "n1", "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

impl Scenario for InUse {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let add = |setup: &Setup, manager: &mut _| {
            ProtectionController::new(setup.clone()).add_to(manager)
        };
        setup.run(life.stop.clone(), add).await
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if change.is_of("persistentvolumeclaims") && change.new.is_null() {
                let name = &change.old["metadata"]["name"];
                let uses = |pod: &Value| {
                    pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == *name
                };
                assert!(!of(objects, "pods").any(uses), "{change}: a pod uses it");
            }
            if change.is_of("persistentvolumes") && change.new.is_null() {
                assert_ne!(change.old["status"]["phase"], "Bound", "{change}");
            }
        });
        let at_once = json!({"gracePeriodSeconds": 0});
        let user = async {
            for name in ["used", "free", "shared"] {
                cluster.create(CLAIMS, &claim(name)).await;
            }
            for name in ["bound", "loose"] {
                cluster.create(VOLUMES, &volume(name)).await;
            }
            for (name, of) in [("p", "used"), ("q", "shared"), ("r", "shared")] {
                cluster.create(PODS, &pod(name, of)).await;
            }
            let phase = |phase: &str| json!({"status": {"phase": phase}});
            cluster.patch(&format!("{VOLUMES}/bound/status"), &phase("Bound")).await;
            for name in ["used", "free", "shared"] {
                cluster.delete(&format!("{CLAIMS}/{name}"), &json!({})).await;
            }
            for name in ["bound", "loose"] {
                cluster.delete(&format!("{VOLUMES}/{name}"), &json!({})).await;
            }
            cluster.until(&format!("{CLAIMS}/free"), Value::is_null).await;
            cluster.until(&format!("{VOLUMES}/loose"), Value::is_null).await;
            cluster.delete(&format!("{PODS}/q"), &at_once).await;
            // If the answer is lost, the volume may be gone at the second attempt.
            ask(env, "PATCH", &format!("{VOLUMES}/bound/status"), &phase("Released")).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            for name in ["p", "r"] {
                cluster.delete(&format!("{PODS}/{name}"), &at_once).await;
            }
            for name in ["used", "shared"] {
                cluster.until(&format!("{CLAIMS}/{name}"), Value::is_null).await;
            }
            cluster.until(&format!("{VOLUMES}/bound"), Value::is_null).await;
        };
        until_either(watch, user).await;
    }
}

#[test]
fn storage_in_use_stays_with_every_plan() {
    check(&InUse, &Plans::new().storms(12));
}

/// Claims that pods begin and cease to use.
struct Used;

impl Scenario for Used {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let add = |setup: &Setup, manager: &mut _| UnusedClaims::new(setup.clone()).add_to(manager);
        setup.run(life.stop.clone(), add).await
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let until = async |name: &str, status: &str| {
            let is_so = |claim: &Value| {
                let conditions = claim["status"]["conditions"].as_array();
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|c| c["type"] == "Unused" && c["status"] == status)
            };
            cluster.until(&format!("{CLAIMS}/{name}"), is_so).await;
        };
        for name in ["a", "b"] {
            cluster.create(CLAIMS, &claim(name)).await;
            cluster.create(PODS, &pod(&format!("of-{name}"), name)).await;
        }
        until("a", "False").await;
        until("b", "False").await;
        let done = json!({"status": {"phase": "Failed"}});
        ask(env, "PATCH", &format!("{PODS}/of-a/status"), &done).await;
        cluster.delete(&format!("{PODS}/of-b"), &json!({"gracePeriodSeconds": 0})).await;
        until("a", "True").await;
        until("b", "True").await;
        cluster.create(PODS, &pod("again", "a")).await;
        until("a", "False").await;
    }
}

#[test]
fn claims_say_whether_they_are_used_with_every_plan() {
    check(&Used, &Plans::new().storms(12));
}
