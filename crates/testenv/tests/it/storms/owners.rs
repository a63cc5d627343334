//! Owners that are deleted while their controllers still see them: what they owned is collected,
//! and is not made again and again.

use super::observer::at_every_change;
use crate::cluster::{Cluster, Fate, controllers, pod_spec, until_either};
use serde_json::{Value, json};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::collections::BTreeMap;

const APPS: &str = "/apis/apps/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces/default";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
/// The most objects that are made for an owner that is gone: those of the pass that was under way.
const MADE_MAX: usize = 4;

/// Owners of every kind, deleted together.
struct Owners;

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": pod_spec()["containers"], "nodeName": "n1"}})
}

fn workload(kind: &str, name: &str) -> Value {
    let spec = json!({
        "replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template(name),
    });
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The owners: where they are, and what they are.
fn owners() -> Vec<(String, Value)> {
    let mut daemons = workload("DaemonSet", "daemons");
    daemons["spec"].as_object_mut().unwrap().remove("replicas");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": pod_spec()}},
    });
    let controller = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "rc"},
        "spec": {"replicas": 2, "selector": {"app": "rc"}, "template": template("rc")},
    });
    // Addresses of the server's choice differ between plays.
    let service = |name: &str, address: &str, selector: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"clusterIP": address, "selector": selector, "ports": [{"port": 80}]},
        })
    };
    let hand = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "hand"},
        "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 9000}]}],
    });
    vec![
        (format!("{APPS}/deployments"), workload("Deployment", "web")),
        (format!("{APPS}/replicasets"), workload("ReplicaSet", "set")),
        (format!("{APPS}/statefulsets"), workload("StatefulSet", "state")),
        (format!("{APPS}/daemonsets"), daemons),
        (format!("{CORE}/replicationcontrollers"), controller),
        (JOBS.to_owned(), job),
        (format!("{CORE}/services"), service("web", "10.0.0.51", json!({"app": "web"}))),
        (format!("{CORE}/services"), service("hand", "10.0.0.52", Value::Null)),
        (format!("{CORE}/endpoints"), hand),
    ]
}

impl Scenario for Owners {
    type World = ();

    fn world(&self) {}

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let names = "deployment,replicaset,statefulset,daemonset,replicationcontroller,job,\
                     endpointslice,endpointslicemirroring";
        let manager = controllers(life.manager(), &life.client, &life.clock, names)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    /// Twelve watches that begin anew, and keys that back off while the cache is behind.
    fn requests_afterwards_max(&self) -> usize {
        100
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let mut made: BTreeMap<String, usize> = BTreeMap::new();
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if !change.creates() {
                return;
            }
            for owner in change.new["metadata"]["ownerReferences"].as_array().into_iter().flatten()
            {
                if objects.values().any(|held| held["metadata"]["uid"] == owner["uid"]) {
                    continue;
                }
                let n = made.entry(format!("{} {}", owner["kind"], owner["name"])).or_default();
                *n += 1;
                assert!(
                    *n <= MADE_MAX,
                    "{change}: {n} objects were made for {owner}, which is gone"
                );
            }
        });
        until_either(watch, cluster.with_kubelets(|_| Fate::Run, users(&cluster))).await;
    }
}

async fn users(cluster: &Cluster) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    cluster.create("/api/v1/nodes", &node).await;
    // A new node has the taint of one that is not ready.
    cluster.patch("/api/v1/nodes/n1", &json!({"spec": {"taints": null}})).await;
    for (path, owner) in owners() {
        cluster.create(&path, &owner).await;
    }
    let pods = format!("{CORE}/pods");
    let run = |n: usize| {
        move |pods: &[Value]| {
            pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count() == n
        }
    };
    // Two of each, and one of the DaemonSet.
    cluster.until_all(&pods, run(11)).await;
    let has_both = |slices: &[Value]| {
        ["web", "hand"].iter().all(|name| {
            let of_service =
                |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == *name;
            slices.iter().filter(of_service).any(|slice| slice["endpoints"][0].is_object())
        })
    };
    cluster.until_all(SLICES, has_both).await;
    for (path, owner) in owners() {
        let name = owner["metadata"]["name"].as_str().unwrap();
        let background = json!({"propagationPolicy": "Background"});
        cluster.delete(&format!("{path}/{name}"), &background).await;
    }
    for path in [&*pods, &format!("{APPS}/replicasets"), &format!("{APPS}/controllerrevisions")] {
        cluster.until_all(path, <[Value]>::is_empty).await;
    }
    let are_gone =
        |slices: &[Value]| slices.iter().all(|slice| slice["metadata"]["name"] == "kubernetes");
    cluster.until_all(SLICES, are_gone).await;
}

#[test]
fn what_gone_owners_had_stays_gone_with_every_plan() {
    check(&Owners, &Plans::new().storms(10));
}
