//! Controllers that remove what is over: finished Jobs after their time, and pods that nobody ends.

use super::observer::{at_every_change, of};
use crate::cluster::{Cluster, controllers, has, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// How far the process's clock may be from the server's.
const SKEW: Duration = Duration::from_secs(31);
/// How long a node must be missing before its pods go: that of kube-controller-manager.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Jobs that end and stay for some time, and pods of a node that goes.
struct Leftovers;

fn job(name: &str, ttl: Option<u64>) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}},
    });
    if let Some(ttl) = ttl {
        job["spec"]["ttlSecondsAfterFinished"] = ttl.into();
    }
    job
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    })
}

impl Scenario for Leftovers {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let manager =
            controllers(life.manager(), &life.client, &life.clock, "ttl-after-finished,podgc")?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let mut ended: BTreeMap<String, Instant> = BTreeMap::new();
        let mut gone: BTreeMap<String, Instant> = BTreeMap::new();
        let watch = at_every_change(env, "/registry/", |objects, change| {
            let name =
                |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if change.is_of("minions") {
                match change.new.is_null() {
                    true => _ = gone.insert(name(&change.old), Instant::now()),
                    false => _ = gone.remove(&name(&change.new)),
                }
            }
            if change.is_of("jobs") && has(&change.new, "Complete") {
                ended.entry(name(&change.new)).or_insert_with(Instant::now);
            }
            if change.is_of("jobs") && change.begins_deletion() {
                let ttl = change.old["spec"]["ttlSecondsAfterFinished"].as_u64();
                let ttl =
                    Duration::from_secs(ttl.unwrap_or_else(|| panic!("{change} has no time")));
                let ended = ended.get(&name(&change.old));
                let stayed = ended.unwrap_or_else(|| panic!("{change} has not ended")).elapsed();
                assert!(stayed + SKEW >= ttl, "{change} stayed {stayed:?} instead of {ttl:?}");
            }
            if change.is_of("pods") && change.begins_deletion() {
                let node = change.old["spec"]["nodeName"].as_str().unwrap();
                let is_there =
                    of(objects, "minions").any(|found| found["metadata"]["name"] == node);
                assert!(!is_there, "{change}: its node exists");
                let missing = gone.get(node).map(Instant::elapsed);
                let is_late = missing.is_some_and(|missing| missing >= QUARANTINE);
                assert!(is_late, "{change}: its node is missing for {missing:?}");
            }
        });
        until_either(watch, users(env, &cluster)).await;
    }
}

async fn users(env: &TestEnv, cluster: &Cluster) {
    for node in ["n1", "n2", "n3"] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        cluster.create(NODES, &object).await;
        cluster.create(PODS, &pod(&format!("first-{node}"), node)).await;
        cluster.create(PODS, &pod(&format!("second-{node}"), node)).await;
    }
    for (name, ttl) in
        [("now", Some(0)), ("soon", Some(40)), ("later", Some(90)), ("runs", Some(0))]
    {
        cluster.create(JOBS, &job(name, ttl)).await;
    }
    cluster.create(JOBS, &job("stays", None)).await;
    for name in ["now", "soon", "later", "stays"] {
        let now = env.clock().now().rfc3339();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now});
        let status = json!({"status": {
            "startTime": now, "completionTime": now, "succeeded": 1, "ready": 0,
            "uncountedTerminatedPods": {},
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        }});
        cluster.patch(&format!("{JOBS}/{name}/status"), &status).await;
    }
    // One node comes back in time, one never.
    for node in ["n2", "n3"] {
        cluster.delete(&format!("{NODES}/{node}"), &json!({})).await;
    }
    // It stays after all.
    let forever = json!({"spec": {"ttlSecondsAfterFinished": null}});
    cluster.patch(&format!("{JOBS}/soon"), &forever).await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    let again = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}});
    cluster.create(NODES, &again).await;
    for name in ["first-n3", "second-n3"] {
        cluster.until(&format!("{PODS}/{name}"), Value::is_null).await;
    }
    // Jobs are deleted in the foreground: the garbage collector would remove the finalizer.
    for name in ["now", "later"] {
        let is_going = |job: &Value| job["metadata"]["deletionTimestamp"].is_string();
        cluster.until(&format!("{JOBS}/{name}"), is_going).await;
    }
}

#[test]
fn leftovers_go_when_their_time_is_over_with_every_plan() {
    check(&Leftovers, &Plans::new().storms(10));
}
