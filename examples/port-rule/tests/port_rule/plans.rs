//! Agents and controller through crashes and faults: wherever they are stopped, firewalls and
//! objects end where they would have ended without.

use crate::definitions;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use port_rule::agent::{self, Agent};
use port_rule::api::{NodeFirewall, PortRule};
use port_rule::backend::{Backend, BackendError, Unsupported};
use port_rule::controller;
use port_rule::ruleset::{Rule, Ruleset};
use serde_json::{Value, json};
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::scenario::check;
use setpoint::testenv::{Life, Plans, Scenario, TestEnv, gone, has_condition, matches};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The firewalls of all nodes. They outlive the agents.
#[derive(Debug, Clone, Default)]
struct Firewalls(Arc<Mutex<BTreeMap<String, Firewall>>>);

#[derive(Debug, Clone, Default)]
struct Firewall {
    ruleset: Ruleset,
    /// Whether it ignores what it is told.
    is_deaf: bool,
}

impl Firewalls {
    fn with<T>(&self, node: &str, f: impl FnOnce(&mut Firewall) -> T) -> T {
        f(self.0.lock().unwrap().entry(node.to_owned()).or_default())
    }

    /// The names of the rules in a node's firewall.
    fn rules(&self, node: &str) -> Vec<String> {
        let names = |firewall: &mut Firewall| {
            firewall.ruleset.rules().iter().map(|rule| rule.name.clone()).collect()
        };
        self.with(node, names)
    }
}

/// The firewall of one node. It has no zones.
struct OfNode {
    node: &'static str,
    firewalls: Firewalls,
}

impl Backend for OfNode {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn check(&self, rule: &Rule) -> Result<(), Unsupported> {
        match rule.zone {
            Some(_) => Err(Unsupported { backend: "memory", what: "zones" }),
            None => Ok(()),
        }
    }

    fn holds<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<bool, BackendError>> {
        let is_held = self.firewalls.with(self.node, |firewall| firewall.ruleset == *ruleset);
        Box::pin(async move { Ok(is_held) })
    }

    fn replace<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<(), BackendError>> {
        self.firewalls.with(self.node, |firewall| {
            if !firewall.is_deaf {
                firewall.ruleset = ruleset.clone();
            }
        });
        Box::pin(async { Ok(()) })
    }
}

/// The managers of a controller and of the agents of `a` and `b`.
fn managers(
    manager: impl Fn() -> ManagerBuilder,
    firewalls: &Firewalls,
) -> Result<Vec<Manager>, BoxError> {
    let mut managers = vec![manager().build()];
    managers[0].add(controller::controller()?)?;
    for node in ["a", "b"] {
        let mut manager = manager().cache(agent::cache(node)?).build();
        let backend = OfNode { node, firewalls: firewalls.clone() };
        Agent::new(node, Arc::new(backend)).add_to(&mut manager)?;
        managers.push(manager);
    }
    Ok(managers)
}

async fn create_nodes(env: &TestEnv) {
    let nodes = Api::<Node>::all(env.client());
    for (name, role) in [("a", "db"), ("b", "web")] {
        let metadata = json!({"name": name, "labels": {"role": role}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        let node: Node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
}

async fn create(env: &TestEnv, name: &str, spec: Value) {
    let rule = PortRule::new(name, serde_json::from_value(spec).unwrap());
    Api::<PortRule>::all(env.client()).create(&PostParams::default(), &rule).await.unwrap();
}

/// Waits until a rule is applied on so many nodes, in a generation.
async fn applied(env: &TestEnv, name: &str, generation: i64, n_nodes: i64) {
    let is_applied = move |rule: &Value| {
        let (status, ready) = (&rule["status"], &rule["status"]["conditions"][0]);
        status["observedGeneration"] == generation
            && ready["status"] == "True"
            && status["nodes"] == n_nodes
            && status["applied"] == n_nodes
    };
    let rules = Api::<PortRule>::all(env.client());
    env.until(&rules, name, matches("is applied", is_applied)).await;
}

/// Three rules; somebody empties a firewall; edits of a rule and of a node; deletions.
struct ThreeRules;

impl Scenario for ThreeRules {
    type World = Firewalls;

    fn world(&self) -> Firewalls {
        Firewalls::default()
    }

    fn definitions(&self) -> Vec<CustomResourceDefinition> {
        definitions()
    }

    async fn live(&self, life: Life, firewalls: Firewalls) -> Result<(), BoxError> {
        let managers = managers(|| life.manager(), &firewalls)?;
        let running = managers.into_iter().map(|manager| manager.run(life.stop.clone()));
        futures::future::try_join_all(running).await?;
        Ok(())
    }

    async fn drive(&self, env: &TestEnv, firewalls: &Firewalls) {
        create_nodes(env).await;
        create(env, "closed", json!({"action": "Drop", "ports": [{"port": 5432}]})).await;
        let open = json!({"action": "Allow", "ports": [{"port": 5432}], "peers": ["10.0.0.0/8"],
            "nodeSelector": {"role": "db"}});
        create(env, "open", open).await;
        let zoned = json!({"action": "Allow", "ports": [{"port": 80}], "zone": "dmz"});
        create(env, "zoned", zoned).await;
        applied(env, "closed", 1, 2).await;
        applied(env, "open", 1, 1).await;
        let rules = Api::<PortRule>::all(env.client());
        let is_refused = |rule: &Value| rule["status"]["conditions"][0]["reason"] == "Refused";
        env.until(&rules, "zoned", matches("is refused", is_refused)).await;
        assert_eq!(firewalls.rules("a"), ["open", "closed"]);
        assert_eq!(firewalls.rules("b"), ["closed"]);

        firewalls.with("b", |firewall| firewall.ruleset = Ruleset::default());
        let is_repaired = async || (firewalls.rules("b") == ["closed"]).then_some(());
        env.eventually("the firewall of b is repaired", is_repaired).await;

        let wider = json!({"spec": {"ports": [{"port": 5432, "endPort": 5440}]}});
        rules.patch("closed", &PatchParams::default(), &Patch::Merge(wider)).await.unwrap();
        applied(env, "closed", 2, 2).await;
        let as_db = json!({"metadata": {"labels": {"role": "db"}}});
        let nodes = Api::<Node>::all(env.client());
        nodes.patch("b", &PatchParams::default(), &Patch::Merge(as_db)).await.unwrap();
        applied(env, "open", 1, 2).await;
        assert_eq!(firewalls.rules("b"), ["open", "closed"]);

        rules.delete("open", &DeleteParams::default()).await.unwrap();
        env.until(&rules, "open", gone()).await;
        for node in ["a", "b"] {
            assert_eq!(firewalls.rules(node), ["closed"], "a rule that is gone is in no firewall");
        }
        rules.delete("zoned", &DeleteParams::default()).await.unwrap();
        env.until(&rules, "zoned", gone()).await;
    }

    fn outside(&self, firewalls: &Firewalls) -> Value {
        let firewalls = firewalls.0.lock().unwrap();
        let lines = |firewall: &Firewall| format!("{:?}", firewall.ruleset.lines());
        firewalls.iter().map(|(node, firewall)| (node.clone(), lines(firewall))).collect()
    }
}

#[test]
fn firewalls_end_the_same_by_every_plan() {
    let n = check(&ThreeRules, &Plans::new().crashes().storms(20));
    assert!(n > 30, "{n} plans");
}

#[setpoint::test]
async fn firewall_that_fails_is_named_and_holds_a_deleted_rule(
    env: &TestEnv,
) -> Result<(), BoxError> {
    for definition in definitions() {
        env.install(&definition).await?;
    }
    let firewalls = Firewalls::default();
    for manager in managers(|| env.manager(), &firewalls)? {
        env.run(manager);
    }
    create_nodes(env).await;
    create(env, "closed", json!({"action": "Drop", "ports": [{"port": 5432}]})).await;
    applied(env, "closed", 1, 2).await;

    firewalls.with("b", |firewall| firewall.is_deaf = true);
    create(env, "web", json!({"action": "Reject", "ports": [{"port": 80}]})).await;
    let rules = Api::<PortRule>::all(env.client());
    let message =
        "applied on 1 of 2 nodes; failed on b: the firewall does not list what it was given";
    let has_failed = move |rule: &Value| rule["status"]["conditions"][0]["message"] == message;
    env.until(&rules, "web", matches("has failed on b", has_failed)).await;

    // Its table could have the rule still.
    rules.delete("closed", &DeleteParams::default()).await?;
    let is_held = |rule: &Value| {
        rule["status"]["conditions"][0]["message"] == "waiting until it is removed from b"
    };
    env.until(&rules, "closed", matches("is held by b", is_held)).await;
    firewalls.with("b", |firewall| firewall.is_deaf = false);
    env.until(&rules, "closed", gone()).await;
    env.until(&rules, "web", has_condition("Ready", "True")).await;
    assert_eq!(firewalls.rules("b"), ["web"]);
    Ok(())
}

#[setpoint::test]
async fn node_that_is_gone_holds_nothing(env: &TestEnv) -> Result<(), BoxError> {
    for definition in definitions() {
        env.install(&definition).await?;
    }
    let firewalls = Firewalls::default();
    for manager in managers(|| env.manager(), &firewalls)? {
        env.run(manager);
    }
    create_nodes(env).await;
    create(env, "closed", json!({"action": "Drop", "ports": [{"port": 5432}]})).await;
    applied(env, "closed", 1, 2).await;
    firewalls.with("b", |firewall| firewall.is_deaf = true);
    Api::<Node>::all(env.client()).delete("b", &DeleteParams::default()).await?;
    env.until(&Api::<NodeFirewall>::all(env.client()), "b", gone()).await;
    applied(env, "closed", 1, 1).await;
    let rules = Api::<PortRule>::all(env.client());
    rules.delete("closed", &DeleteParams::default()).await?;
    env.until(&rules, "closed", gone()).await;
    assert!(firewalls.rules("a").is_empty());
    Ok(())
}
