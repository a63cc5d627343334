//! DaemonSets.

use super::cluster::{InCluster, PODS, Rules, Workload, ask, settled, until};
use crate::cluster::Cluster;
use serde_json::{Value, json};
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Plans, TestEnv};
use std::time::Duration;

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const AGENT: &str = "/apis/apps/v1/namespaces/default/daemonsets/agent";
const NODES: &str = "/api/v1/nodes";

/// A set on three nodes that is rolled; a node comes and goes, and one is tainted.
struct OnNodes {
    rolling: Value,
    surge: usize,
    unavailable: usize,
}

fn is_ready(n: i64) -> impl Fn(&Value) -> bool {
    move |set: &Value| {
        let status = &set["status"];
        status["observedGeneration"] == set["metadata"]["generation"]
            && status["desiredNumberScheduled"] == n
            && status["updatedNumberScheduled"].as_i64().unwrap_or(0) == n
            && status["numberAvailable"].as_i64().unwrap_or(0) == n
            && status["numberMisscheduled"] == 0
    }
}

/// Adds a node that is ready: without the taint that admission gives to a new one.
async fn add_node(env: &TestEnv, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    ask(env, "POST", NODES, &node).await;
    ask(env, "PATCH", &format!("{NODES}/{name}"), &json!({"spec": {"taints": null}})).await;
}

impl Workload for OnNodes {
    const CONTROLLERS: &str = "daemonset";

    async fn users(&self, env: &TestEnv, rules: &Rules) {
        for name in ["n1", "n2", "n3"] {
            add_node(env, name).await;
        }
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": self.rolling},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": "v1"}]},
            },
        }});
        rules.set(3, 0);
        ask(env, "POST", SETS, &set).await;
        until(env, AGENT, "three nodes have a pod", is_ready(3)).await;
        let pods = ask(env, "GET", PODS, &Value::Null).await.unwrap();
        let pods = pods["items"].as_array().unwrap();
        let mut nodes: Vec<&Value> = pods.iter().map(|pod| &pod["spec"]["nodeName"]).collect();
        nodes.sort_by_key(|node| node.to_string());
        assert_eq!(nodes, ["n1", "n2", "n3"]);
        assert_eq!(pods[0]["metadata"]["labels"]["pod-template-generation"], "1");

        rules.set(3 + self.surge, 3 - self.unavailable);
        let containers = json!([{"name": "c", "image": "v2"}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        ask(env, "PATCH", AGENT, &patch).await;
        until(env, AGENT, "three pods are updated", is_ready(3)).await;
        settled(env).await;

        rules.clear();
        add_node(env, "n4").await;
        until(env, AGENT, "the fourth node has a pod", is_ready(4)).await;
        let taint = json!([{"key": "k", "value": "v", "effect": "NoExecute"}]);
        ask(env, "PATCH", &format!("{NODES}/n2"), &json!({"spec": {"taints": taint}})).await;
        until(env, AGENT, "the tainted node has none", is_ready(3)).await;
        settled(env).await;
    }
}

#[test]
fn daemon_set_keeps_nodes_available_with_every_plan() {
    let rolling = json!({"maxUnavailable": 1, "maxSurge": 0});
    check(&InCluster(OnNodes { rolling, surge: 0, unavailable: 1 }), &Plans::new().storms(6));
}

#[test]
fn daemon_set_with_surge_keeps_all_nodes_available() {
    let rolling = json!({"maxUnavailable": 0, "maxSurge": 1});
    check(&InCluster(OnNodes { rolling, surge: 1, unavailable: 0 }), &Plans::new().storms(6));
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn with_surge_a_ready_pod_stays_and_a_leaving_one_is_replaced(env: &TestEnv) {
    let cluster = Cluster::start(env, "daemonset");
    add_node(env, "n1").await;
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
    "spec": {
        "selector": {"matchLabels": {"app": "agent"}}, "minReadySeconds": 60,
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "c", "image": "v1"}]},
        },
    }});
    cluster.create(SETS, &set).await;
    let name = |pod: &Value| format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    let ready = || {
        let since = env.clock().now().rfc3339();
        let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": since});
        json!({"status": {"phase": "Running", "conditions": [condition]}})
    };
    let first = name(&cluster.until_all(PODS, |pods| pods.len() == 1).await[0]);
    cluster.patch(&format!("{first}/status"), &ready()).await;
    let containers = json!([{"name": "c", "image": "v2"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    cluster.patch(AGENT, &patch).await;
    let both = cluster.until_all(PODS, |pods| pods.len() == 2).await;
    let second = both.iter().map(name).find(|pod| *pod != first).unwrap();
    // The first one is ready, but not for long enough to be available.
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(cluster.get(&first).await.is_some(), "the only ready pod");
    cluster.patch(&format!("{second}/status"), &ready()).await;
    cluster.until(&first, Value::is_null).await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    cluster.patch(&second, &hold).await;
    cluster.delete(&second, &Value::Null).await;
    cluster.until_all(PODS, |pods| pods.len() == 2).await;
}

/// A set whose pods have a label `app` of its name.
fn named(name: &str, rolling: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "updateStrategy": {"rollingUpdate": rolling},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "v1"}]},
        },
    }})
}

/// The pods of a set with this image.
fn of_image<'a>(pods: &'a [Value], set: &str, image: &str) -> Vec<&'a Value> {
    let is_meant = |pod: &&Value| {
        pod["metadata"]["labels"]["app"] == set && pod["spec"]["containers"][0]["image"] == image
    };
    pods.iter().filter(is_meant).collect()
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_node_without_an_old_pod_takes_no_room_of_a_surge(env: &TestEnv) {
    let cluster = Cluster::start(env, "daemonset");
    for name in ["n1", "n2", "n3"] {
        add_node(env, name).await;
    }
    cluster.create(SETS, &named("agent", &json!({"maxUnavailable": 0, "maxSurge": 1}))).await;
    let pods = cluster.until_all(PODS, |pods| pods.len() == 3).await;
    let ready = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let path = |pod: &Value| format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
    for pod in &pods[1..] {
        cluster.patch(&path(pod), &ready).await;
    }
    let is_counted = |set: &Value| set["status"]["numberReady"] == 2;
    cluster.until(AGENT, is_counted).await;
    let containers = json!([{"name": "c", "image": "v2"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    cluster.patch(AGENT, &patch).await;
    // The first node stays broken, and has only a new pod. One other node begins.
    let is_so = |pods: &[Value]| {
        (of_image(pods, "agent", "v1").len(), of_image(pods, "agent", "v2").len()) == (2, 2)
    };
    let pods = cluster.until_all(PODS, is_so).await;
    let node = |pod: &Value| {
        let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
        let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
        required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].clone()
    };
    let old: Vec<Value> = of_image(&pods, "agent", "v1").into_iter().map(node).collect();
    let new = of_image(&pods, "agent", "v2");
    let second = new.into_iter().find(|pod| old.contains(&node(pod))).unwrap();
    cluster.patch(&path(second), &ready).await;
    cluster.until_all(PODS, |pods| of_image(pods, "agent", "v2").len() == 3).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn old_pods_leave_nodes_that_get_no_new_ones(env: &TestEnv) {
    let cluster = Cluster::start(env, "daemonset");
    for name in ["n1", "n2"] {
        add_node(env, name).await;
    }
    cluster.create(SETS, &named("plain", &json!({"maxUnavailable": 1}))).await;
    cluster.create(SETS, &named("surging", &json!({"maxUnavailable": 0, "maxSurge": 1}))).await;
    cluster.until_all(PODS, |pods| pods.len() == 4).await;
    let taint = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    ask(env, "PATCH", &format!("{NODES}/n1"), &json!({"spec": {"taints": taint}})).await;
    for set in ["plain", "surging"] {
        let path = format!("{SETS}/{set}");
        cluster.until(&path, |set| set["status"]["numberMisscheduled"] == 1).await;
        let containers = json!([{"name": "c", "image": "v2"}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        cluster.patch(&path, &patch).await;
        let is_so = |pods: &[Value]| {
            (of_image(pods, set, "v1").len(), of_image(pods, set, "v2").len()) == (0, 1)
        };
        cluster.until_all(PODS, is_so).await;
    }
}

/// What a pod has of the template, and which pods are the set's, is as in the reference.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn pods_are_tied_by_a_field_alone_and_known_by_hash_or_generation(env: &TestEnv) {
    let cluster = Cluster::start(env, "daemonset");
    add_node(env, "n1").await;
    cluster.patch(&format!("{NODES}/n1"), &json!({"metadata": {"labels": {"g": "x"}}})).await;
    // Somebody else's pod, which is on no node.
    let containers = json!([{"name": "c", "image": "v1"}]);
    let free = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "free", "labels": {"app": "tied"}}, "spec": {"containers": containers}});
    cluster.create(PODS, &free).await;
    let mut set = named("tied", &json!({}));
    let terms = json!([{"matchExpressions": [{"key": "g", "operator": "In", "values": ["x"]}]}]);
    set["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    cluster.create(SETS, &set).await;
    let pods = cluster.until_all(PODS, |pods| pods.len() == 2).await;
    let pod = pods.iter().find(|pod| pod["metadata"]["name"] != "free").unwrap();
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    assert_eq!(
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
        json!([{"matchFields": [field]}])
    );
    let name = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    let no_hash = json!({"metadata": {"labels": {"controller-revision-hash": null}}});
    cluster.patch(&name, &no_hash).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let found = cluster.get(&name).await.expect("its generation says that it is new");
    assert_eq!(found["metadata"]["uid"], pod["metadata"]["uid"]);
    let set = cluster.get(&format!("{SETS}/tied")).await.unwrap();
    assert_eq!(set["status"]["updatedNumberScheduled"], 1);
    assert!(cluster.get(&format!("{PODS}/free")).await.is_some(), "it is left alone");
}
