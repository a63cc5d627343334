//! ReplicaSets and ReplicationControllers.

use super::cluster::{InCluster, PODS, Rules, Workload, active_pods, ask, settled, until};
use serde_json::{Value, json};
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Plans, TestEnv};

const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const REPLICATION_CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";

fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

/// A ReplicaSet that is scaled, loses a pod, and adopts and releases pods.
struct Scaled;

impl Workload for Scaled {
    const CONTROLLERS: &str = "replicaset";

    async fn users(&self, env: &TestEnv, rules: &Rules) {
        let web = format!("{SETS}/web");
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                     "template": template("web")}});
        rules.set(3, 0);
        ask(env, "POST", SETS, &set).await;
        let has = |n: i32| {
            move |set: &Value| {
                let status = &set["status"];
                status["replicas"] == n
                    && status["availableReplicas"].as_i64().unwrap_or(0) == i64::from(n)
                    && status["terminatingReplicas"] == 0
                    && status["observedGeneration"] == set["metadata"]["generation"]
            }
        };
        until(env, &web, "three are available", has(3)).await;
        rules.set(5, 3);
        ask(env, "PATCH", &web, &json!({"spec": {"replicas": 5}})).await;
        until(env, &web, "five are available", has(5)).await;

        rules.set(5, 0);
        let pods = active_pods(env).await;
        ask(env, "DELETE", &format!("{PODS}/{}", pods[0]), &Value::Null).await;
        env.eventually("the pod is replaced", async || {
            let now = active_pods(env).await;
            (now.len() == 5 && !now.contains(&pods[0])).then_some(())
        })
        .await;
        until(env, &web, "five are available again", has(5)).await;

        // Its labels do not match any more: it is released and replaced.
        rules.clear();
        let patch = json!({"metadata": {"labels": {"app": "other"}}});
        ask(env, "PATCH", &format!("{PODS}/{}", pods[1]), &patch).await;
        let is_free = |pod: &Value| pod["metadata"]["ownerReferences"].is_null();
        until(env, &format!("{PODS}/{}", pods[1]), "the pod is released", is_free).await;
        // The status may still be that of before, also when it is asked for below.
        let is_replaced = async || (active_pods(env).await.len() == 6).then_some(());
        env.eventually("it is replaced", is_replaced).await;
        until(env, &web, "five are available without it", has(5)).await;
        // They match again: it is adopted, and one is too many.
        let patch = json!({"metadata": {"labels": {"app": "web"}}});
        ask(env, "PATCH", &format!("{PODS}/{}", pods[1]), &patch).await;
        env.eventually("one is deleted", async || {
            (active_pods(env).await.len() == 5).then_some(())
        })
        .await;
        until(env, &web, "five are available with it", has(5)).await;

        rules.set(5, 2);
        ask(env, "PATCH", &web, &json!({"spec": {"replicas": 2}})).await;
        until(env, &web, "two are available", has(2)).await;
        rules.clear();
        ask(env, "PATCH", &web, &json!({"spec": {"replicas": 0}})).await;
        until(env, &web, "none is left", has(0)).await;
    }
}

#[test]
fn replica_set_keeps_its_number_with_every_plan() {
    check(&InCluster(Scaled), &Plans::new().storms(12));
}

/// A ReplicationController.
struct Classic;

impl Workload for Classic {
    const CONTROLLERS: &str = "replicationcontroller";

    async fn users(&self, env: &TestEnv, rules: &Rules) {
        let old = format!("{REPLICATION_CONTROLLERS}/old");
        let controller = json!({"apiVersion": "v1", "kind": "ReplicationController",
            "metadata": {"name": "old"},
            "spec": {"replicas": 2, "selector": {"app": "old"}, "template": template("old")}});
        rules.set(2, 0);
        ask(env, "POST", REPLICATION_CONTROLLERS, &controller).await;
        let has = |n: i32| move |found: &Value| found["status"]["readyReplicas"] == n;
        let found = until(env, &old, "two are ready", has(2)).await;
        assert!(found["status"]["terminatingReplicas"].is_null(), "{found}");
        rules.set(2, 1);
        ask(env, "PATCH", &old, &json!({"spec": {"replicas": 1}})).await;
        until(env, &old, "one is ready", has(1)).await;
        settled(env).await;
    }
}

#[test]
fn replication_controller_keeps_its_number_with_every_plan() {
    check(&InCluster(Classic), &Plans::new().storms(9));
}
