//! Deployments.

use super::cluster::{InCluster, Rules, Workload, ask, settled, until};
use crate::cluster::{Cluster, condition};
use serde_json::{Value, json};
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Plans, TestEnv};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

fn deployment(replicas: i32, strategy: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
    "spec": {
        "replicas": replicas, "strategy": strategy, "revisionHistoryLimit": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "v1"}]},
        },
    }})
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Whether the rollout is complete, as `kubectl rollout status` sees it.
fn is_rolled_out(n: i64) -> impl Fn(&Value) -> bool {
    move |found: &Value| {
        let status = &found["status"];
        let progress = status["conditions"].as_array().into_iter().flatten();
        let mut progress = progress.filter(|condition| condition["type"] == "Progressing");
        status["observedGeneration"] == found["metadata"]["generation"]
            && status["replicas"] == n
            && status["updatedReplicas"] == n
            && status["availableReplicas"] == n
            && status["terminatingReplicas"] == 0
            && progress.next().is_some_and(|found| found["reason"] == "NewReplicaSetAvailable")
    }
}

struct Rolled {
    strategy: Value,
    /// More pods than wanted, and fewer available ones.
    surge: usize,
    unavailable: usize,
}

impl Workload for Rolled {
    const CONTROLLERS: &str = "deployment,replicaset";

    async fn users(&self, env: &TestEnv, rules: &Rules) {
        rules.set(4 + self.surge, 0);
        ask(env, "POST", DEPLOYMENTS, &deployment(4, &self.strategy)).await;
        until(env, WEB, "the first version is rolled out", is_rolled_out(4)).await;

        rules.set(4 + self.surge, 4 - self.unavailable);
        ask(env, "PATCH", WEB, &image("v2")).await;
        // A third version before the second is complete.
        env.eventually("the second version begins", async || {
            let sets = ask(env, "GET", SETS, &Value::Null).await?;
            (sets["items"].as_array()?.len() == 2).then_some(())
        })
        .await;
        ask(env, "PATCH", WEB, &image("v3")).await;
        until(env, WEB, "the third version is rolled out", is_rolled_out(4)).await;
        // Back to the second: history has kept it, or it is made again.
        ask(env, "PATCH", WEB, &image("v2")).await;
        until(env, WEB, "the second version is rolled out", is_rolled_out(4)).await;

        rules.set(6 + self.surge, 0);
        ask(env, "PATCH", WEB, &json!({"spec": {"replicas": 6}})).await;
        until(env, WEB, "it is scaled up", is_rolled_out(6)).await;
        rules.set(6, 3);
        ask(env, "PATCH", WEB, &json!({"spec": {"replicas": 3}})).await;
        until(env, WEB, "it is scaled down", is_rolled_out(3)).await;
        rules.clear();
        env.eventually("one old version is kept", async || {
            let sets = ask(env, "GET", SETS, &Value::Null).await?;
            (sets["items"].as_array()?.len() == 2).then_some(())
        })
        .await;
        settled(env).await;
    }
}

#[test]
fn rolling_update_keeps_its_limits_with_every_plan() {
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    let rolled = Rolled { strategy, surge: 1, unavailable: 1 };
    check(&InCluster(rolled), &Plans::new().storms(9));
}

#[test]
fn rolling_update_without_unavailable_pods_keeps_its_limits() {
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}});
    let rolled = Rolled { strategy, surge: 2, unavailable: 0 };
    check(&InCluster(rolled), &Plans::new().storms(6));
}

#[test]
fn recreated_deployment_never_has_pods_of_two_versions() {
    let rolled = Rolled { strategy: json!({"type": "Recreate"}), surge: 0, unavailable: 4 };
    check(&InCluster(rolled), &Plans::new().storms(6));
}

/// The texts that `kubectl rollout status` and `kubectl describe` show.
#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn progress_is_told_in_the_texts_of_the_reference(env: &TestEnv) {
    let cluster = Cluster::start(env, "deployment,replicaset");
    let progressing = |reason: &'static str| {
        move |found: &Value| condition(found, "Progressing")["reason"] == reason
    };
    let mut web = deployment(1, &json!({"type": "RollingUpdate"}));
    web["spec"]["progressDeadlineSeconds"] = 60.into();
    cluster.create(DEPLOYMENTS, &web).await;
    let begun = cluster.until(WEB, progressing("ReplicaSetUpdated")).await;
    let sets = cluster.list(SETS).await;
    let set = sets[0]["metadata"]["name"].as_str().unwrap();
    let of = |found: &Value| {
        let held = condition(found, "Progressing");
        format!("{} {}", held["status"].as_str().unwrap(), held["message"].as_str().unwrap())
    };
    assert_eq!(of(&begun), format!("True ReplicaSet \"{set}\" is progressing."));
    let late = cluster.until(WEB, progressing("ProgressDeadlineExceeded")).await;
    assert_eq!(of(&late), format!("False ReplicaSet \"{set}\" has timed out progressing."));
    let available = condition(&late, "Available");
    assert_eq!(available["reason"], "MinimumReplicasUnavailable");
    assert_eq!(available["message"], "Deployment does not have minimum availability.");

    let pods = cluster.list("/api/v1/namespaces/default/pods").await;
    let name = pods[0]["metadata"]["name"].as_str().unwrap();
    let ready = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    cluster.patch(&format!("/api/v1/namespaces/default/pods/{name}/status"), &ready).await;
    let done = cluster.until(WEB, progressing("NewReplicaSetAvailable")).await;
    assert_eq!(of(&done), format!("True ReplicaSet \"{set}\" has successfully progressed."));
    let available = condition(&done, "Available");
    assert_eq!(available["reason"], "MinimumReplicasAvailable");
    assert_eq!(available["message"], "Deployment has minimum availability.");
}
