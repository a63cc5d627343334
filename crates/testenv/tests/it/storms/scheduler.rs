//! The scheduler.

use super::observer::{Objects, at_every_change, of};
use crate::cluster::{Cluster, Fate, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_runtime::BoxError;
use setpoint_runtime::events::EventApi;
use setpoint_scheduler::Scheduler;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
/// The processor time of a node and of a pod, in thousandths: two pods fit.
const NODE_MILLI: u64 = 2000;
const POD_MILLI: u64 = 750;

/// Three nodes with room for six pods, and more pods than that.
struct Crowd;

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": "i",
                "resources": {"requests": {"cpu": format!("{POD_MILLI}m")}},
            }],
        },
    })
}

fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The processor time that pods use of each node.
fn used(objects: &Objects) -> BTreeMap<&str, u64> {
    let mut used = BTreeMap::new();
    for pod in of(objects, "pods").filter(|pod| !is_over(pod)) {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *used.entry(node).or_default() += POD_MILLI;
        }
    }
    used
}

fn is_placed(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

impl Scenario for Crowd {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let mut manager = life.manager().events(EventApi::Core).build();
        Scheduler::new(life.seed).add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let n_preempted = Cell::new(0);
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if !change.is_of("pods") {
                return;
            }
            for (node, milli) in used(objects) {
                assert!(milli <= NODE_MILLI, "{change}: {node} has {milli} of {NODE_MILLI}");
            }
            let is_gated = |pod: &Value| {
                pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
            };
            assert!(!(is_gated(&change.new) && is_placed(&change.new)), "{change}: it is gated");
            if change.begins_deletion() && crate::cluster::has(&change.old, "DisruptionTarget") {
                n_preempted.set(n_preempted.get() + 1);
                let needs = |pod: &Value| {
                    pod["spec"]["priority"].as_i64() > change.old["spec"]["priority"].as_i64()
                        && !is_placed(pod)
                };
                assert!(of(objects, "pods").any(needs), "{change}: nobody needs its place");
            }
        });
        let user = async {
            for name in ["n1", "n2", "n3"] {
                let node = json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                    "status": {"allocatable": {"cpu": format!("{NODE_MILLI}m"), "pods": "10"},
                               "capacity": {"cpu": format!("{NODE_MILLI}m"), "pods": "10"}},
                });
                cluster.create(NODES, &node).await;
                let path = format!("{NODES}/{name}");
                cluster.patch(&path, &json!({"spec": {"taints": null}})).await;
            }
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "high"}, "value": 1000,
            });
            cluster.create(CLASSES, &class).await;
            for n in 0..8 {
                cluster.create(PODS, &pod(&format!("p{n}"))).await;
            }
            let names = |pods: &[Value], is_so: &dyn Fn(&Value) -> bool| -> Vec<String> {
                let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
                pods.iter().filter(|pod| is_so(pod)).map(name).collect()
            };
            let is_refused = |pod: &Value| {
                crate::cluster::condition(pod, "PodScheduled")["reason"] == "Unschedulable"
            };
            let full = async |n_waiting: usize| {
                let is_full = |pods: &[Value]| {
                    names(pods, &|pod| is_placed(pod) && !is_over(pod)).len() == 6
                        && names(pods, &|pod| !is_placed(pod) && is_refused(pod)).len() == n_waiting
                        && pods.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null())
                };
                cluster.until_all(PODS, is_full).await
            };
            let pods = full(2).await;

            // A place becomes free: the pod is deleted, and one of the same name waits.
            let first = names(&pods, &is_placed)[0].clone();
            cluster.delete(&format!("{PODS}/{first}"), &json!({})).await;
            cluster.until(&format!("{PODS}/{first}"), Value::is_null).await;
            cluster.create(PODS, &pod(&first)).await;
            full(2).await;

            // A gated pod waits, even if there is room.
            let mut gated = pod("gated");
            gated["spec"]["schedulingGates"] = json!([{"name": "example.com/later"}]);
            gated["spec"]["priorityClassName"] = "high".into();
            cluster.create(PODS, &gated).await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(n_preempted.get(), 0);
            // Now it replaces one of the others, and only one.
            let free = json!({"spec": {"schedulingGates": null}});
            cluster.patch(&format!("{PODS}/gated"), &free).await;
            cluster.until(&format!("{PODS}/gated"), is_placed).await;
            full(2).await;
            assert_eq!(n_preempted.get(), 1);

            // Pods end, and the others follow.
            cluster.until_all(PODS, |pods| pods.len() == 8).await;
            let pods = cluster.list(PODS).await;
            for name in names(&pods, &is_placed).iter().filter(|name| *name != "gated").take(2) {
                let over = json!({"status": {"phase": "Succeeded"}});
                cluster.patch(&format!("{PODS}/{name}/status"), &over).await;
            }
            full(0).await;

            // Which pods are where differs between plays.
            for name in names(&cluster.list(PODS).await, &|_| true) {
                cluster.delete(&format!("{PODS}/{name}"), &json!({})).await;
            }
            cluster.until_all(PODS, <[Value]>::is_empty).await;
        };
        until_either(watch, cluster.with_kubelets(|_| Fate::Run, user)).await;
    }
}

#[test]
fn nodes_are_never_overcommitted_with_any_plan() {
    check(&Crowd, &Plans::new().storms(10));
}
