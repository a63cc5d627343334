//! Leases whose holders the server elects.

use crate::cluster::{Cluster, until_either};
use crate::storms::observer::{at_every_change, of};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{CoordinatedElection, Setup};
use setpoint_object::time::Timestamp;
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

const CANDIDATES: &str = "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/component";
/// How long a program holds the Lease, and after how long it renews it.
const HELD_SECONDS: u64 = 600;
const RENEWED: Duration = Duration::from_secs(200);
/// How long it takes a program to see a change: it has five seconds to answer.
const LOOK: Duration = Duration::from_secs(1);
/// Longer than any delay of a plan.
const LONG: Duration = Duration::from_secs(2_000);

/// A component that is upgraded: a new program waits until the old one ends.
struct Elections;

impl Scenario for Elections {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        let gates = [Feature::CoordinatedLeaderElection];
        let config = RuntimeConfig::with_gates("api/beta", gates).expect("a valid text");
        builder.controllers(false).runtime_config(config)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let mut manager = life.manager().build();
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        CoordinatedElection::new(setup).add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let programs = Programs::default();
        // Nobody is elected that never was a candidate.
        let watch = at_every_change(env, "/registry/leases/", |objects, change| {
            for lease in of(objects, "coordination.k8s.io/leases") {
                for member in ["holderIdentity", "preferredHolder"] {
                    let name = lease["spec"][member].as_str().unwrap_or_default();
                    assert!(["", "old", "new"].contains(&name), "{change}: {lease:#}");
                }
            }
        });
        until_either(watch, until_either(programs.live(env), upgrade(env, &programs))).await;
        // Times differ between plays.
        let cluster = Cluster::of(env);
        for name in ["old", "new"] {
            cluster.delete(&format!("{CANDIDATES}/{name}"), &json!({})).await;
        }
        tokio::time::sleep(LONG).await;
        cluster.delete(LEASE, &json!({})).await;
    }
}

async fn upgrade(env: &TestEnv, programs: &Programs) {
    let cluster = Cluster::of(env);
    let held = async |holder: &str| {
        cluster.until(LEASE, |lease| lease["spec"]["holderIdentity"] == holder).await;
    };
    // One of another component, which never answers.
    let time = env.clock().now().rfc3339_micro();
    cluster.create(CANDIDATES, &candidate("silent", "nobody", "1.36.0", &time)).await;
    programs.start("new", "1.36.0");
    held("new").await;
    // The holder is told, and gives it up.
    programs.start("old", "1.35.0");
    held("old").await;
    // It ends: its Lease expires, and it does not answer.
    programs.end("old");
    held("new").await;
    // Otherwise the others are asked about it as long as it counts.
    cluster.delete(&format!("{CANDIDATES}/old"), &json!({})).await;
    cluster.until(&format!("{CANDIDATES}/silent"), Value::is_null).await;
}

/// A program that may lead a component.
fn candidate(name: &str, component: &str, version: &str, renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate",
        "metadata": {"name": name},
        "spec": {
            "leaseName": component, "strategy": "OldestEmulationVersion",
            "binaryVersion": version, "emulationVersion": version, "renewTime": renewed,
        },
    })
}

/// The programs of the component that run, with their versions.
#[derive(Default)]
struct Programs(RefCell<BTreeMap<&'static str, &'static str>>);

impl Programs {
    fn start(&self, name: &'static str, version: &'static str) {
        self.0.borrow_mut().insert(name, version);
    }

    fn end(&self, name: &str) {
        self.0.borrow_mut().remove(name);
    }

    /// They answer when they are asked, renew what they hold, and give it up if they are told to.
    async fn live(&self, env: &TestEnv) {
        let cluster = Cluster::of(env);
        let mut changes = env.changes();
        loop {
            _ = tokio::time::timeout(RENEWED, changes.next()).await;
            tokio::time::sleep(LOOK).await;
            changes.skip();
            let time = env.clock().now();
            let now = time.rfc3339_micro();
            let programs = self.0.borrow().clone();
            for (name, version) in &programs {
                let path = format!("{CANDIDATES}/{name}");
                let Some(found) = cluster.get(&path).await else {
                    let new = candidate(name, "component", version, &now);
                    cluster.create(CANDIDATES, &new).await;
                    continue;
                };
                let at = |member: &str| found["spec"][member].as_str().map(str::to_owned);
                if at("pingTime") > at("renewTime") {
                    cluster.patch(&path, &json!({"spec": {"renewTime": now}})).await;
                }
            }
            let Some(lease) = cluster.get(LEASE).await else { continue };
            let name = |member: &str| lease["spec"][member].as_str().unwrap_or_default();
            let (holder, preferred) = (name("holderIdentity"), name("preferredHolder"));
            if !programs.contains_key(holder) {
                continue;
            }
            let renewed = Timestamp::parse(name("renewTime")).unwrap_or_default();
            let is_mine = lease["spec"]["leaseDurationSeconds"] == HELD_SECONDS;
            if !preferred.is_empty() && preferred != holder {
                let change = json!({"holderIdentity": "", "preferredHolder": null});
                cluster.patch(LEASE, &json!({"spec": change})).await;
            } else if !is_mine || time.since(renewed) >= RENEWED {
                let change = json!({"renewTime": now, "leaseDurationSeconds": HELD_SECONDS});
                cluster.patch(LEASE, &json!({"spec": change})).await;
            }
        }
    }
}

/// The oldest program holds the Lease, and candidates that do not answer end.
#[test]
fn the_oldest_program_that_answers_holds_the_lease_with_every_plan() {
    check(&Elections, &Plans::new().crashes().storms(8).one_clock());
}
