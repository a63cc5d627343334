//! Objects that others have written, with what no controller of ours writes.

use crate::cluster::{Cluster, condition};
use serde_json::{Value, json};
use setpoint_testenv::TestEnv;
use std::time::Duration;

const APPS: &str = "/apis/apps/v1/namespaces/default";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "v1"}]}})
}

fn set(kind: &str, app: &str) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": app}}, "template": template(app)});
    if kind == "StatefulSet" {
        spec["serviceName"] = "s".into();
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app}, "spec": spec})
}

fn revision(app: &str, data: &Value, number: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": format!("{app}-odd"), "labels": {"app": app}},
        "data": data, "revision": number})
}

fn has_pods(n: i64) -> impl Fn(&Value) -> bool {
    move |found| found["status"]["replicas"].as_i64().unwrap_or(0) == n
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_revision_may_have_any_data_and_number(env: &TestEnv) {
    let cluster = Cluster::start(env, "*");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    cluster.create("/api/v1/nodes", &node).await;
    for (n, data, number) in [
        (0, json!({"spec": {"template": "x"}}), 1),
        (1, json!({"spec": {"template": {"metadata": {"labels": "x"}, "spec": 1}}}), 1),
        (2, json!({"spec": "x"}), 2),
        (3, json!({"spec": {"template": template("x")}}), i64::MAX),
    ] {
        for (kind, place) in [("StatefulSet", "statefulsets"), ("DaemonSet", "daemonsets")] {
            let app = format!("{}-{n}", kind.to_lowercase());
            let odd = revision(&app, &data, number);
            cluster.create(&format!("{APPS}/controllerrevisions"), &odd).await;
            cluster.create(&format!("{APPS}/{place}"), &set(kind, &app)).await;
            let pods = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}");
            let has_pod = |found: &Value| found["items"].as_array().is_some_and(|i| !i.is_empty());
            cluster.until(&pods, has_pod).await;
        }
    }
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn an_old_set_may_have_the_last_revision(env: &TestEnv) {
    let cluster = Cluster::start(env, "*");
    let mut old = set("ReplicaSet", "a");
    old["metadata"]["name"] = "old".into();
    old["metadata"]["annotations"] =
        json!({"deployment.kubernetes.io/revision": i64::MAX.to_string()});
    old["spec"]["template"]["spec"]["containers"][0]["image"] = "v0".into();
    old["spec"]["replicas"] = 0.into();
    cluster.create(&format!("{APPS}/replicasets"), &old).await;
    cluster.create(&format!("{APPS}/deployments"), &set("Deployment", "a")).await;
    cluster.until(&format!("{APPS}/deployments/a"), has_pods(1)).await;
}

/// Another client that adds a condition with its resourceVersion.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_condition_that_is_added_during_a_rollout_stays(env: &TestEnv) {
    let cluster = Cluster::start(env, "*");
    let path = format!("{APPS}/deployments/a");
    cluster.create(&format!("{APPS}/deployments"), &set("Deployment", "a")).await;
    cluster.until(&path, has_pods(1)).await;
    for n in 0..20 {
        let other = format!("Other{n}");
        cluster.patch(&path, &json!({"spec": {"replicas": 1 + n % 3}})).await;
        loop {
            let mut found = cluster.get(&path).await.unwrap();
            let mut conditions =
                found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.push(json!({"type": other, "status": "True"}));
            found["status"]["conditions"] = conditions.into();
            let put = format!("{path}/status");
            if cluster.send("PUT", &put, "application/json", &found).await.is_ok() {
                break;
            }
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let found = cluster.get(&path).await.unwrap();
        assert_eq!(condition(&found, &other)["status"], "True", "{found:#}");
    }
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_job_that_has_lost_its_owner_is_replaced(env: &TestEnv) {
    let cluster = Cluster::start(env, "job,cronjob");
    let spec = json!({"schedule": "*/10 * * * *", "concurrencyPolicy": "Replace",
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "v1"}]}}}}});
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"}, "spec": spec});
    cluster.create(CRON_JOBS, &cron_job).await;
    tokio::time::sleep(Duration::from_secs(11 * 60)).await;
    let [first] = &cluster.list(JOBS).await[..] else { panic!("one Job") };
    let name = first["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.patch(&format!("{JOBS}/{name}"), &json!({"metadata": {"ownerReferences": null}})).await;
    tokio::time::sleep(Duration::from_secs(11 * 60)).await;
    let [second] = &cluster.list(JOBS).await[..] else { panic!("one Job") };
    assert_ne!(second["metadata"]["name"], *name);
}
