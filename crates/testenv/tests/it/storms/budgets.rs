//! PodDisruptionBudgets and evictions.

use crate::workloads::cluster::{
    self, InCluster, Rules, Workload, active_pods, ask, settled, until,
};
use serde_json::{Value, json};
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Plans, TestEnv};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const BUDGET: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// Two users evict all pods of a ReplicaSet of four at the same time.
struct Drained {
    limit: Value,
    available_min: usize,
}

/// Evicts pods one after the other.
async fn evict(env: &TestEnv, pods: impl Iterator<Item = &String>) {
    for pod in pods {
        cluster::evict(env, pod).await;
    }
}

impl Workload for Drained {
    const CONTROLLERS: &str = "replicaset,disruption";

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
    check(&InCluster(drained), &Plans::new().storms(10));
}

#[test]
fn evictions_stay_within_the_maximum_unavailable_with_every_plan() {
    let drained = Drained { limit: json!({"maxUnavailable": "50%"}), available_min: 2 };
    check(&InCluster(drained), &Plans::new().storms(10));
}
