//! Nodes without containers.

use super::observer::at_every_change;
use crate::cluster::{Cluster, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::Setup;
use setpoint_nodes::Nodes;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plan, Plans, Scenario, TestEnv};
use std::cell::RefCell;
use std::collections::BTreeMap;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Pods of a node that simulates their containers.
struct Simulated;

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": "node-0", "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}],
        },
    })
}

/// When a pod's container has started; null if it has not.
fn started(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
}

impl Scenario for Simulated {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let nodes = Nodes::new(1, life.seed);
        setup.run(life.stop.clone(), |_, manager| Ok(nodes.add_to(manager)?)).await
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let starts: RefCell<BTreeMap<String, Value>> = RefCell::default();
        let watch = at_every_change(env, "/registry/", |_, change| {
            if !change.is_of("pods") || started(&change.new).is_null() {
                return;
            }
            let (mut starts, at) = (starts.borrow_mut(), started(&change.new));
            let uid = change.new["metadata"]["uid"].to_string();
            let first = starts.entry(uid).or_insert_with(|| at.clone());
            assert_eq!(first, at, "{change}: a container starts once");
        });
        let user = async {
            for name in ["a", "b", "c"] {
                cluster.create(PODS, &pod(name)).await;
            }
            for name in ["a", "b", "c"] {
                let path = format!("{PODS}/{name}");
                cluster.until(&path, |pod| !started(pod).is_null()).await;
                cluster.delete(&path, &json!({})).await;
            }
            for name in ["a", "b", "c"] {
                cluster.until(&format!("{PODS}/{name}"), Value::is_null).await;
            }
        };
        until_either(watch, user).await;
    }
}

#[test]
fn containers_start_once_with_every_plan() {
    check(&Simulated, &Plans::new().storms(12).plan(Plan::storm(95)));
}
