//! Conditions that others write beside the controllers'.

use crate::cluster::{Cluster, condition};
use serde_json::{Value, json};
use setpoint_testenv::TestEnv;
use std::time::Duration;

fn types(found: &Value) -> Vec<&str> {
    let conditions = found["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter_map(|condition| condition["type"].as_str()).collect()
}

fn template(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "v1"}]}})
}

/// A Deployment `a` without pods.
fn deployment() -> Value {
    let labels = json!({"app": "a"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
        "replicas": 0, "selector": {"matchLabels": labels}, "template": template(&labels)}})
}

/// A time may be null, or missing: it is not known.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_condition_without_times_does_not_end_the_work_on_an_object(env: &TestEnv) {
    let cluster = Cluster::start(env, "*");
    for (kind, place) in [
        ("Deployment", "/apis/apps/v1/namespaces/default/deployments"),
        ("StatefulSet", "/apis/apps/v1/namespaces/default/statefulsets"),
        ("ReplicaSet", "/apis/apps/v1/namespaces/default/replicasets"),
        ("ReplicationController", "/api/v1/namespaces/default/replicationcontrollers"),
    ] {
        let labels = json!({"of": kind.to_lowercase()});
        let is_old = kind == "ReplicationController";
        let selector = if is_old { labels.clone() } else { json!({"matchLabels": labels}) };
        let mut spec = json!({"replicas": 0, "selector": selector, "template": template(&labels)});
        if kind == "StatefulSet" {
            spec["serviceName"] = "s".into();
        }
        let version = if is_old { "v1" } else { "apps/v1" };
        let object =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        cluster.create(place, &object).await;
        let is_observed = |found: &Value| {
            found["status"]["observedGeneration"] == found["metadata"]["generation"]
        };
        let path = format!("{place}/a");
        cluster.until(&path, is_observed).await;
        let others = json!([{"type": "Other", "status": "True"}]);
        let status = json!({"status": {"conditions": others}});
        let written = cluster.patch(&format!("{path}/status"), &status).await;
        assert_eq!(condition(&written, "Other")["lastTransitionTime"], Value::Null, "{kind}");
        cluster.patch(&path, &json!({"spec": {"replicas": 1}})).await;
        let found =
            cluster.until(&path, |found| is_observed(found) && found["status"]["replicas"] == 1);
        let found = found.await;
        // Kubernetes writes the conditions of StatefulSets anew: there are none.
        let kept = if kind == "StatefulSet" { Value::Null } else { Value::from("True") };
        assert_eq!(condition(&found, "Other")["status"], kept, "{kind}");
    }
}

/// A rollout that waits for the end of old pods has not begun, however long it waits.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_recreated_deployment_that_waits_for_old_pods_is_not_late(env: &TestEnv) {
    let cluster = Cluster::start(env, "deployment,replicaset");
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let mut deployment = deployment();
    let spec = &mut deployment["spec"];
    spec["replicas"] = 1.into();
    spec["strategy"] = json!({"type": "Recreate"});
    spec["progressDeadlineSeconds"] = 60.into();
    spec["template"]["spec"]["nodeName"] = "n".into();
    cluster.create(path, &deployment).await;
    let pods = cluster.until_all("/api/v1/namespaces/default/pods", |pods| pods.len() == 1).await;
    let pod = format!(
        "/api/v1/namespaces/default/pods/{}",
        pods[0]["metadata"]["name"].as_str().unwrap()
    );
    let ready = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    cluster.patch(&format!("{pod}/status"), &ready).await;
    let path = format!("{path}/a");
    let reason = |found: &Value| condition(found, "Progressing")["reason"].clone();
    cluster.until(&path, |found| reason(found) == "NewReplicaSetAvailable").await;
    let containers = json!([{"name": "c", "image": "v2"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    cluster.patch(&path, &patch).await;
    cluster.until(&pod, |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let found = cluster.get(&path).await.unwrap();
    assert_eq!(reason(&found), "NewReplicaSetAvailable");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn the_condition_of_a_deployment_that_has_changed_last_is_last(env: &TestEnv) {
    let cluster = Cluster::start(env, "deployment,replicaset");
    let path = "/apis/apps/v1/namespaces/default/deployments";
    cluster.create(path, &deployment()).await;
    let is_done =
        |found: &Value| condition(found, "Progressing")["reason"] == "NewReplicaSetAvailable";
    let found = cluster.until(&format!("{path}/a"), is_done).await;
    assert_eq!(types(&found), ["Available", "Progressing"]);
}
