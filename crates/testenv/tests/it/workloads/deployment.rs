//! Deployments.

use super::cluster::{Rules, ask, cluster, run, settled, until};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};

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

impl Scenario for Rolled {
    type World = Rules;

    fn world(&self) -> Rules {
        Rules::new()
    }

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _: Rules) -> Result<(), BoxError> {
        run(life, "deployment,replicaset").await
    }

    async fn drive(&self, env: &TestEnv, rules: &Rules) {
        cluster(env, rules, self.users(env, rules)).await;
    }
}

impl Rolled {
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
    check(&rolled, &Plans::new().storms(9));
}

#[test]
fn rolling_update_without_unavailable_pods_keeps_its_limits() {
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}});
    let rolled = Rolled { strategy, surge: 2, unavailable: 0 };
    check(&rolled, &Plans::new().storms(6));
}

#[test]
fn recreated_deployment_never_has_pods_of_two_versions() {
    let rolled = Rolled { strategy: json!({"type": "Recreate"}), surge: 0, unavailable: 4 };
    check(&rolled, &Plans::new().storms(6));
}
