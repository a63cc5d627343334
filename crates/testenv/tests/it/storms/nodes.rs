//! The life of nodes, and evictions by taints.

use super::observer::{at_every_change, of};
use crate::cluster::{Cluster, condition, controllers, has, until_either};
use crate::workloads::cluster::ask;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// The time between two heartbeats: less than half of what a silent node has.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// The time from a change of a node or pod to what its kubelet does about it.
const LOOK: Duration = Duration::from_secs(1);
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Pods per node: the name, and how long they stay on a node that cannot be reached. The shortest
/// time is longer than the pauses after failures that may keep a taint on a node that is back.
const PODS_OF_NODE: [(&str, Option<u64>); 3] =
    [("short", Some(1200)), ("long", Some(1800)), ("stay", None)];

/// Three nodes. One is silent for a while, one for long, and one gets a taint of a user.
struct Silence;

fn pod(node: &str, name: &str, seconds: Option<u64>) -> Value {
    let tolerations = match seconds {
        None => json!([{"operator": "Exists"}]),
        Some(seconds) => {
            let one = |key: &str| {
                json!({
                    "key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
                    "effect": "NoExecute", "tolerationSeconds": seconds,
                })
            };
            json!([one("not-ready"), one("unreachable")])
        }
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{name}-{node}")},
        "spec": {
            "nodeName": node, "tolerations": tolerations, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i"}],
        },
    })
}

/// The kubelets of the nodes that are not silent.
struct Kubelets<'a> {
    env: &'a TestEnv,
    cluster: Cluster,
    silent: &'a RefCell<BTreeSet<&'static str>>,
    /// Told when a node or pod has changed, and when a node is silent no more.
    work: &'a Notify,
}

impl Kubelets<'_> {
    async fn run(&self) {
        tokio::join!(self.beats(), self.looks());
    }

    async fn beats(&self) {
        loop {
            for node in ["n1", "n2", "n3"] {
                if !self.silent.borrow().contains(node) {
                    self.beat(node).await;
                }
            }
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    async fn beat(&self, node: &str) {
        let now = self.env.clock().now().rfc3339().replace('Z', ".000000Z");
        let mut lease = json!({"spec": {"renewTime": now}});
        if ask(self.env, "PATCH", &format!("{LEASES}/{node}"), &lease).await.is_none() {
            lease["apiVersion"] = "coordination.k8s.io/v1".into();
            lease["kind"] = "Lease".into();
            lease["metadata"] = json!({"name": node});
            lease["spec"]["holderIdentity"] = node.into();
            self.cluster.create(LEASES, &lease).await;
        }
    }

    async fn looks(&self) {
        loop {
            for node in ["n1", "n2", "n3"] {
                if !self.silent.borrow().contains(node) {
                    self.look(node).await;
                }
            }
            self.work.notified().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Makes a node ready, and does what its pods need.
    async fn look(&self, node: &str) {
        let now = self.env.clock().now();
        let path = format!("{NODES}/{node}");
        let Some(found) = self.cluster.get(&path).await else { return };
        if !has(&found, "Ready") {
            let condition = |kind: &str, status: &str| {
                json!({
                    "type": kind, "status": status, "reason": "Kubelet", "message": "",
                    "lastHeartbeatTime": now.rfc3339(), "lastTransitionTime": now.rfc3339(),
                })
            };
            let pressures = ["MemoryPressure", "DiskPressure", "PIDPressure"];
            let mut conditions = pressures.map(|kind| condition(kind, "False")).to_vec();
            conditions.push(condition("Ready", "True"));
            let status = json!({"status": {"conditions": conditions}});
            self.cluster.patch(&format!("{path}/status"), &status).await;
        }
        for pod in self.cluster.list(PODS).await {
            if pod["spec"]["nodeName"] == node {
                self.step(&pod).await;
            }
        }
    }

    /// Ends a pod that is being deleted, and makes another one ready.
    async fn step(&self, pod: &Value) {
        let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
        if pod["metadata"]["deletionTimestamp"].is_string() {
            self.cluster.delete(&path, &json!({"gracePeriodSeconds": 0})).await;
        } else if !has(pod, "Ready") {
            let now = self.env.clock().now().rfc3339();
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
            let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
            self.cluster.patch(&format!("{path}/status"), &status).await;
        }
    }
}

fn is_tainted(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.into_iter().any(|taint| taint["key"] == UNREACHABLE && taint["effect"] == "NoExecute")
}

impl Scenario for Silence {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let names = "nodelifecycle,taint-eviction-controller";
        let manager = controllers(life.manager(), &life.client, &life.clock, names)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let silent = RefCell::new(BTreeSet::new());
        let is_over = Cell::new(false);
        let work = Notify::new();
        let kubelets = Kubelets { env, cluster: cluster.clone(), silent: &silent, work: &work };
        // When nodes got the taint.
        let mut tainted: BTreeMap<String, Instant> = BTreeMap::new();
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if change.is_of("minions") || change.is_of("pods") {
                work.notify_one();
            }
            if change.is_of("minions") {
                let name = change.new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                match is_tainted(&change.new) {
                    true => _ = tainted.entry(name).or_insert_with(Instant::now),
                    false => _ = tainted.remove(&name),
                }
            }
            if change.is_of("pods") && change.begins_deletion() && !is_over.get() {
                let node = change.old["spec"]["nodeName"].as_str().unwrap();
                let name = change.old["metadata"]["name"].as_str().unwrap();
                let (_, seconds) =
                    PODS_OF_NODE.iter().find(|(start, _)| name.starts_with(start)).unwrap();
                let is_by_user = of(objects, "minions").any(|found| {
                    let taints = found["spec"]["taints"].as_array().into_iter().flatten();
                    found["metadata"]["name"] == node
                        && taints.into_iter().any(|taint| taint["key"] == "maintenance")
                });
                assert!(seconds.is_some(), "{change}: it tolerates everything");
                if !is_by_user {
                    let since = tainted.get(node);
                    let since = since.unwrap_or_else(|| panic!("{change}: {node} has no taint"));
                    // The time of a taint has whole seconds.
                    let stayed = since.elapsed() + Duration::from_secs(1);
                    assert!(stayed.as_secs() >= seconds.unwrap(), "{change} stayed {stayed:?}");
                }
            }
        });
        let user = async {
            for node in ["n1", "n2", "n3"] {
                let object =
                    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
                cluster.create(NODES, &object).await;
                for (name, seconds) in PODS_OF_NODE {
                    cluster.create(PODS, &pod(node, name, seconds)).await;
                }
            }
            let is_clean = |node: &Value| has(node, "Ready") && node["spec"]["taints"].is_null();
            for node in ["n1", "n2", "n3"] {
                cluster.until(&format!("{NODES}/{node}"), is_clean).await;
            }
            // One comes back before the first pod has to leave.
            silent.borrow_mut().extend(["n2", "n3"]);
            let is_silent =
                |node: &Value| condition(node, "Ready")["status"] == "Unknown" && is_tainted(node);
            cluster.until(&format!("{NODES}/n2"), is_silent).await;
            silent.borrow_mut().remove("n2");
            work.notify_one();
            cluster.until(&format!("{NODES}/n2"), is_clean).await;
            let is_going = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
            for name in ["short", "long"] {
                cluster.until(&format!("{PODS}/{name}-n3"), is_going).await;
            }
            // The other one comes back late.
            silent.borrow_mut().clear();
            work.notify_one();
            cluster.until(&format!("{NODES}/n3"), is_clean).await;
            let taint = json!([{"key": "maintenance", "effect": "NoExecute"}]);
            cluster.patch(&format!("{NODES}/n1"), &json!({"spec": {"taints": taint}})).await;
            for gone in ["short-n3", "long-n3", "short-n1", "long-n1"] {
                cluster.until(&format!("{PODS}/{gone}"), Value::is_null).await;
            }
            cluster.patch(&format!("{NODES}/n1"), &json!({"spec": {"taints": null}})).await;
            let all_ready =
                |pods: &[Value]| pods.len() == 5 && pods.iter().all(|p| has(p, "Ready"));
            cluster.until_all(PODS, all_ready).await;
            // The kubelets end with the scenario, so nodes would be silent.
            for pod in cluster.list(PODS).await {
                is_over.set(true);
                let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
                cluster.delete(&path, &json!({"gracePeriodSeconds": 0})).await;
            }
            for node in ["n1", "n2", "n3"] {
                cluster.delete(&format!("{NODES}/{node}"), &json!({})).await;
            }
        };
        until_either(watch, until_either(user, kubelets.run())).await;
    }
}

#[test]
fn pods_leave_silent_nodes_when_their_time_is_over_with_every_plan() {
    check(&Silence, &Plans::new().storms(10));
}
