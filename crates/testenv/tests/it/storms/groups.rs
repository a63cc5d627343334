//! Protection of PodGroups.

use super::observer::{at_every_change, of};
use crate::cluster::{Cluster, until_either};
use crate::workloads::cluster::ask;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{GroupProtection, Setup};
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::time::Duration;

const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Groups that are deleted while pods of them run.
struct InUse;

fn group(name: &str) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    })
}

fn pod(name: &str, group: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": group},
        },
    })
}

impl Scenario for InUse {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        let gates = [Feature::GenericWorkload];
        let config = RuntimeConfig::with_gates("api/alpha", gates).expect("a valid text");
        builder.controllers(false).runtime_config(config)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let add =
            |setup: &Setup, manager: &mut _| GroupProtection::new(setup.clone()).add_to(manager);
        setup.run(life.stop.clone(), add).await
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if change.is_of("podgroups") && change.new.is_null() {
                let name = &change.old["metadata"]["name"];
                let keeps = |pod: &Value| {
                    pod["spec"]["schedulingGroup"]["podGroupName"] == *name
                        && pod["status"]["phase"] != "Failed"
                };
                assert!(!of(objects, "pods").any(keeps), "{change}: a pod of it runs");
            }
        });
        let at_once = json!({"gracePeriodSeconds": 0});
        let user = async {
            for name in ["free", "ends", "shared"] {
                cluster.create(GROUPS, &group(name)).await;
            }
            for (name, of) in [("p", "ends"), ("q", "shared"), ("r", "shared")] {
                cluster.create(PODS, &pod(name, of)).await;
            }
            for name in ["free", "ends", "shared"] {
                cluster.delete(&format!("{GROUPS}/{name}"), &json!({})).await;
            }
            cluster.until(&format!("{GROUPS}/free"), Value::is_null).await;
            cluster.delete(&format!("{PODS}/q"), &at_once).await;
            let failed = json!({"status": {"phase": "Failed"}});
            ask(env, "PATCH", &format!("{PODS}/p/status"), &failed).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            cluster.delete(&format!("{PODS}/r"), &at_once).await;
            for name in ["ends", "shared"] {
                cluster.until(&format!("{GROUPS}/{name}"), Value::is_null).await;
            }
        };
        until_either(watch, user).await;
    }
}

#[test]
fn groups_in_use_stay_with_every_plan() {
    check(&InUse, &Plans::new().storms(12));
}
