//! APIServices of definitions, and the condition of FlowSchemas.

use super::observer::at_every_change;
use crate::cluster::{Cluster, condition, has, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{ApiServices, FlowSchemas, Setup};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

/// A definition and a priority level come and go; users change what follows from them.
struct Catalog;

fn definition(name: &str) -> Value {
    let schema = json!({"type": "object"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": format!("{name}s"), "singular": name, "kind": name.to_uppercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

impl Scenario for Catalog {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let run = setup.run(life.stop.clone(), |setup, manager| {
            FlowSchemas::new(setup.clone()).add_to(manager)?;
            ApiServices::new(setup.clone()).add_to(manager)
        });
        run.await
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let watch = at_every_change(env, "/registry/apiregistration.k8s.io/", |_, change| {
            // What a user has made is left alone.
            if change.key.ends_with("/v1.own.example.com") && !change.creates() {
                assert!(!change.new.is_null(), "{change} is gone");
            }
        });
        until_either(watch, users(&cluster)).await;
    }
}

async fn users(cluster: &Cluster) {
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "mine"},
        "spec": {"priorityLevelConfiguration": {"name": "later"}, "matchingPrecedence": 500},
    });
    cluster.create(SCHEMAS, &schema).await;
    let service = |group: &str| format!("{SERVICES}/v1.{group}");
    let own = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.own.example.com"},
        "spec": {
            "group": "own.example.com", "version": "v1",
            "groupPriorityMinimum": 5, "versionPriority": 5,
        },
    });
    cluster.create(SERVICES, &own).await;
    for name in ["one", "two"] {
        cluster.create(DEFINITIONS, &definition(name)).await;
    }
    let is_right = |service: &Value| {
        has(service, "Available") && service["spec"]["groupPriorityMinimum"] == 1000
    };
    cluster.until(&service("example.com"), is_right).await;
    cluster.until(&service("own.example.com"), |found| has(found, "Available")).await;
    let is_dangling = |status: &'static str| {
        move |schema: &Value| condition(schema, "Dangling")["status"] == status
    };
    let mine = format!("{SCHEMAS}/mine");
    cluster.until(&mine, is_dangling("True")).await;

    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "later"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"},
        }},
    });
    cluster.create(LEVELS, &level).await;
    cluster.delete(&service("example.com"), &json!({})).await;
    cluster.until(&mine, is_dangling("False")).await;
    cluster.until(&service("example.com"), is_right).await;

    let other = json!({"spec": {"groupPriorityMinimum": 7}});
    cluster.patch(&service("example.com"), &other).await;
    cluster.delete(&format!("{DEFINITIONS}/ones.example.com"), &json!({})).await;
    cluster.until(&service("example.com"), is_right).await;
    cluster.delete(&format!("{DEFINITIONS}/twos.example.com"), &json!({})).await;
    cluster.delete(&format!("{LEVELS}/later"), &json!({})).await;
    cluster.until(&service("example.com"), Value::is_null).await;
    cluster.until(&mine, is_dangling("True")).await;
}

#[test]
fn registrations_follow_definitions_with_every_plan() {
    check(&Catalog, &Plans::new().storms(10));
}
