//! Leases whose holders the server elects.

use crate::cluster::Cluster;
use crate::storms::observer::{at_every_change, of};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{CoordinatedElection, Setup};
use setpoint_registry::RuntimeConfig;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

const CANDIDATES: &str = "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/component";
/// How often a program looks: it has five seconds to answer.
const LOOK: Duration = Duration::from_secs(4);
/// Longer than any delay of a plan.
const LONG: Duration = Duration::from_secs(20_000);

/// A component that is upgraded: a new program waits until the old one ends.
struct Elections;

impl Scenario for Elections {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        let gates = ["CoordinatedLeaderElection"];
        let config = RuntimeConfig::with_gates("api/beta", &gates).expect("a valid text");
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
        tokio::select! {
            biased;
            () = watch => {}
            () = programs.live(env) => {}
            () = upgrade(env, &programs) => {}
        }
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
    programs.start("new", "1.36.0");
    held("new").await;
    // The holder is told, and gives it up.
    programs.start("old", "1.35.0");
    held("old").await;
    // It ends: its Lease expires, and it does not answer.
    programs.end("old");
    held("new").await;
    cluster.until(&format!("{CANDIDATES}/old"), Value::is_null).await;
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
        loop {
            tokio::time::sleep(LOOK).await;
            let now = env.clock().now().rfc3339_micro();
            let programs = self.0.borrow().clone();
            for (name, version) in &programs {
                let path = format!("{CANDIDATES}/{name}");
                let Some(found) = cluster.get(&path).await else {
                    let new = json!({
                        "apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate",
                        "metadata": {"name": name},
                        "spec": {
                            "leaseName": "component", "strategy": "OldestEmulationVersion",
                            "binaryVersion": version, "emulationVersion": version, "renewTime": now,
                        },
                    });
                    cluster.create(CANDIDATES, &new).await;
                    continue;
                };
                let time = |member: &str| found["spec"][member].as_str().map(str::to_owned);
                if time("pingTime") > time("renewTime") {
                    cluster.patch(&path, &json!({"spec": {"renewTime": now}})).await;
                }
            }
            let Some(lease) = cluster.get(LEASE).await else { continue };
            let name = |member: &str| lease["spec"][member].as_str().unwrap_or_default();
            let (holder, preferred) = (name("holderIdentity"), name("preferredHolder"));
            if programs.contains_key(holder) {
                let change = match preferred.is_empty() || preferred == holder {
                    true => json!({"renewTime": now, "leaseDurationSeconds": 15}),
                    false => json!({"holderIdentity": "", "preferredHolder": null}),
                };
                cluster.patch(LEASE, &json!({"spec": change})).await;
            }
        }
    }
}

/// The oldest program holds the Lease, and candidates that do not answer end.
#[test]
fn the_oldest_program_that_answers_holds_the_lease_with_every_plan() {
    check(&Elections, &Plans::new().crashes().storms(8));
}
