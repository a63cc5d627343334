//! PodDisruptionBudgets and evictions.

use crate::workloads::cluster::{self, Rules, active_pods, ask, cluster, run, settled, until};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const BUDGET: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// Two users evict all pods of a ReplicaSet of four at the same time.
struct Drained {
    limit: Value,
    available_min: usize,
}

impl Scenario for Drained {
    type World = Rules;

    fn world(&self) -> Rules {
        Rules::new()
    }

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _: Rules) -> Result<(), BoxError> {
        run(life, "replicaset,disruption").await
    }

    async fn drive(&self, env: &TestEnv, rules: &Rules) {
        cluster(env, rules, self.users(env, rules)).await;
    }
}

/// Evicts pods one after the other.
async fn evict(env: &TestEnv, pods: impl Iterator<Item = &String>) {
    for pod in pods {
        cluster::evict(env, pod).await;
    }
}

impl Drained {
    async fn users(&self, env: &TestEnv, rules: &Rules) {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
            "spec": {
                "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        });
        let mut spec = self.limit.clone();
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": spec,
        });
        ask(env, "POST", BUDGETS, &budget).await;
        ask(env, "POST", SETS, &set).await;
        let n_allowed = 4 - self.available_min;
        let is_full = |budget: &Value| {
            let status = &budget["status"];
            status["disruptionsAllowed"] == n_allowed
                && status["currentHealthy"] == 4
                && status["expectedPods"] == 4
                && status["disruptedPods"].as_object().is_none_or(serde_json::Map::is_empty)
                && status["observedGeneration"] == budget["metadata"]["generation"]
        };
        until(env, BUDGET, "the budget allows evictions", is_full).await;

        rules.set(4, self.available_min);
        let pods = active_pods(env).await;
        tokio::join!(evict(env, pods.iter()), evict(env, pods.iter().rev()));
        let now = active_pods(env).await;
        assert!(now.iter().all(|pod| !pods.contains(pod)), "{now:?}");
        until(env, BUDGET, "the budget allows evictions again", is_full).await;
        settled(env).await;
    }
}

#[test]
fn evictions_leave_the_minimum_available_with_every_plan() {
    let drained = Drained { limit: json!({"minAvailable": 3}), available_min: 3 };
    check(&drained, &Plans::new().storms(10));
}

#[test]
fn evictions_stay_within_the_maximum_unavailable_with_every_plan() {
    let drained = Drained { limit: json!({"maxUnavailable": "50%"}), available_min: 2 };
    check(&drained, &Plans::new().storms(10));
}
