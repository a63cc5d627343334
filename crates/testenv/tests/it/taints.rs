//! Evictions by taints, as a user sees them.

use crate::cluster::{Cluster, condition, pod_spec};
use serde_json::{Value, json};
use setpoint_testenv::TestEnv;
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const NODE: &str = "/api/v1/nodes/n1";

/// A node, and a pod that stands the taint `maintenance` for a minute.
async fn pod_for_a_minute(cluster: &Cluster) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    cluster.create("/api/v1/nodes", &node).await;
    let mut spec = pod_spec();
    spec["nodeName"] = "n1".into();
    spec["tolerations"] = json!([{
        "key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60,
    }]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "finalizers": ["example.com/hold"]}, "spec": spec,
    });
    cluster.create(PODS, &pod).await;
}

/// As `kubectl taint` does: without a time.
async fn taint(cluster: &Cluster, keys: &[&str]) {
    let taint = |key: &&str| json!({"key": key, "effect": "NoExecute"});
    let taints: Vec<Value> = keys.iter().map(taint).collect();
    cluster.patch(NODE, &json!({"spec": {"taints": taints}})).await;
}

/// The time began again whenever it was over, so such a pod never left.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_pod_leaves_when_its_time_is_over_though_the_taint_has_no_time(env: &TestEnv) {
    let cluster = Cluster::start(env, "taint-eviction-controller");
    pod_for_a_minute(&cluster).await;
    taint(&cluster, &["maintenance"]).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    let path = format!("{PODS}/p");
    let pod = cluster.get(&path).await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let pod = cluster.get(&path).await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let target = condition(&pod, "DisruptionTarget");
    assert_eq!(target["reason"], "DeletionByTaintManager");
    assert_eq!(target["observedGeneration"], 1);
    let marked = "Normal TaintManagerEviction Marking for deletion Pod default/p";
    assert_eq!(cluster.events("Pod").await, [marked]);
}

/// A node that says that it is not ready still reports its pods. One that falls silent when it was
/// ready does not; as in the reference, pods of others that fall silent are left alone.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn pods_of_a_silent_node_are_not_ready_and_those_of_others_are_as_reported(env: &TestEnv) {
    let cluster = Cluster::start(env, "nodelifecycle");
    pod_for_a_minute(&cluster).await;
    let path = format!("{PODS}/p");
    let ready = json!([{"type": "Ready", "status": "True", "reason": "R", "message": "m"}]);
    let running = json!({"status": {"phase": "Running", "conditions": ready}});
    cluster.patch(&format!("{path}/status"), &running).await;
    let report = async |status: &str, at: u32| {
        let beat = format!("2026-01-01T00:00:0{at}Z");
        let ready = json!([{"type": "Ready", "status": status, "lastHeartbeatTime": beat}]);
        let patch = json!({"status": {"conditions": ready}});
        cluster.patch(&format!("{NODE}/status"), &patch).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    report("True", 1).await;
    report("False", 2).await;
    let node = cluster.get(NODE).await.unwrap();
    let taints = node["spec"]["taints"].to_string();
    assert!(taints.contains("node.kubernetes.io/not-ready"), "{taints}");
    let pod = cluster.get(&path).await.unwrap();
    assert_eq!(condition(&pod, "Ready")["status"], "True");
    let falls_silent = async || {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let node = cluster.get(NODE).await.unwrap();
        assert_eq!(condition(&node, "Ready")["status"], "Unknown");
        cluster.get(&path).await.unwrap()
    };
    let pod = falls_silent().await;
    assert_eq!(condition(&pod, "Ready")["status"], "True");
    assert_eq!(cluster.events("Pod").await, [""; 0]);
    report("True", 3).await;
    let pod = falls_silent().await;
    let held = condition(&pod, "Ready");
    assert_eq!((&held["status"], &held["reason"]), (&json!("False"), &json!("R")));
    let events = cluster.events("Pod").await;
    assert_eq!(events, ["Warning NodeNotReady Node is not ready"]);
}

/// If no node is ready, the controller suspects itself.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn pods_stay_if_no_node_is_ready_and_leave_if_another_one_is(env: &TestEnv) {
    let cluster = Cluster::start(env, "nodelifecycle");
    let ready = async |name: &str, at: u32| {
        let beat = format!("2026-01-01T00:00:{at:02}Z");
        let ready = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]);
        let status = json!({"status": {"conditions": ready}});
        cluster.patch(&format!("/api/v1/nodes/{name}/status"), &status).await;
    };
    let taints = async || {
        let node = cluster.get(NODE).await.unwrap();
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.map(|taint| format!("{}:{}", taint["key"], taint["effect"])).collect::<Vec<_>>()
    };
    for name in ["n1", "n2"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        cluster.create("/api/v1/nodes", &node).await;
    }
    ready("n1", 1).await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    let unreachable = |effect: &str| format!("\"node.kubernetes.io/unreachable\":\"{effect}\"");
    assert_eq!(taints().await, [unreachable("NoSchedule")]);

    ready("n2", 2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(taints().await, [unreachable("NoSchedule"), unreachable("NoExecute")]);

    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(taints().await, [unreachable("NoSchedule")], "n2 is silent, too");
}

/// A DaemonSet had no pod on a node that somebody had only created.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_new_node_has_no_taints_until_it_was_silent_for_a_minute(env: &TestEnv) {
    let cluster = Cluster::start(env, "nodelifecycle,daemonset");
    let labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels},
    });
    cluster.create("/api/v1/nodes", &node).await;
    let labels = json!({"a": "b"});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    cluster.create("/apis/apps/v1/namespaces/default/daemonsets", &set).await;
    cluster.until_all(PODS, |pods| pods.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    let node = cluster.get(NODE).await.unwrap();
    assert_eq!(node["spec"]["taints"], Value::Null);
    assert_eq!(node["metadata"]["labels"]["beta.kubernetes.io/os"], "linux");
    assert_eq!(node["metadata"]["labels"]["beta.kubernetes.io/arch"], "arm64");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let node = cluster.get(NODE).await.unwrap();
    let taints = node["spec"]["taints"].to_string();
    assert!(taints.contains("node.kubernetes.io/unreachable"), "{taints}");
    assert!(!taints.contains("not-ready"), "{taints}");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn an_eviction_that_is_cancelled_is_an_event(env: &TestEnv) {
    let cluster = Cluster::start(env, "taint-eviction-controller");
    pod_for_a_minute(&cluster).await;
    taint(&cluster, &["maintenance"]).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    taint(&cluster, &[]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let cancelled = "Normal TaintManagerEviction Cancelling deletion of Pod default/p";
    assert_eq!(cluster.events("Pod").await, [cancelled]);
    // The pod has its whole time again.
    taint(&cluster, &["maintenance"]).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    let pod = cluster.get(&format!("{PODS}/p")).await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
}
