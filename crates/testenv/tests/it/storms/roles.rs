//! Aggregated ClusterRoles.

use super::observer::at_every_change;
use crate::cluster::{Cluster, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{ClusterRoleAggregation, Setup};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::collections::BTreeSet;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Roles that join others, also joined ones, while all of them come and go.
struct Joined;

fn rule(resource: &str) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]})
}

fn role(name: &str, to: &str, resource: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"to": to}}, "rules": [rule(resource)],
    })
}

fn joined(name: &str, to: &str, from: &str) -> Value {
    let mut role = role(name, to, "none");
    role["rules"] = json!([]);
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": from}}]});
    role
}

fn resources(role: &Value) -> Vec<&str> {
    let rules = role["rules"].as_array().into_iter().flatten();
    let mut all: Vec<&str> = rules.filter_map(|rule| rule["resources"][0].as_str()).collect();
    all.sort_unstable();
    all
}

impl Scenario for Joined {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let add = |setup: &Setup, manager: &mut _| {
            ClusterRoleAggregation::new(setup.clone()).add_to(manager)
        };
        setup.run(life.stop.clone(), add).await
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let mut created = BTreeSet::new();
        let watch = at_every_change(env, "/registry/clusterroles/", |_, change| {
            if change.creates() {
                assert!(created.insert(change.key.clone()), "{change} comes back");
            }
            // The rules of a joined role are those of others.
            if !change.new["aggregationRule"].is_null() {
                assert!(!resources(&change.new).contains(&"none"), "{change}");
            }
        });
        until_either(watch, users(&cluster)).await;
    }
}

async fn users(cluster: &Cluster) {
    let shows = async |name: &str, expected: &[&str]| {
        cluster.until(&format!("{ROLES}/{name}"), |role| resources(role) == expected).await;
    };
    cluster.create(ROLES, &joined("top", "", "top")).await;
    cluster.create(ROLES, &joined("middle", "top", "middle")).await;
    cluster.create(ROLES, &role("a", "middle", "pods")).await;
    cluster.create(ROLES, &role("b", "top", "secrets")).await;
    cluster.create(ROLES, &role("c", "else", "nodes")).await;
    shows("top", &["pods", "secrets"]).await;
    shows("middle", &["pods"]).await;
    let services = json!({"rules": [rule("services")]});
    cluster.patch(&format!("{ROLES}/a"), &services).await;
    let label = json!({"metadata": {"labels": {"to": "middle"}}});
    cluster.patch(&format!("{ROLES}/c"), &label).await;
    shows("top", &["nodes", "secrets", "services"]).await;
    // A joined role is deleted while its rules change.
    cluster.create(ROLES, &joined("short", "top", "middle")).await;
    shows("short", &["nodes", "services"]).await;
    cluster.create(ROLES, &role("d", "middle", "events")).await;
    cluster.delete(&format!("{ROLES}/short"), &json!({})).await;
    cluster.delete(&format!("{ROLES}/a"), &json!({})).await;
    shows("top", &["events", "nodes", "secrets"]).await;
    shows("middle", &["events", "nodes"]).await;
}

#[test]
fn roles_are_joined_with_every_plan() {
    check(&Joined, &Plans::new().storms(12));
}
