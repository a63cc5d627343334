//! The environment of a workload controller: a stand-in for scheduler and kubelet, and an observer
//! of all pods.

use crate::cluster::until_either;
use crate::storms::observer::at_every_change;
use http::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{Selection, Setup, WorkloadControllers};
use setpoint_runtime::BoxError;
use setpoint_testenv::{Life, Scenario, TestEnv};
use std::sync::Arc;
use std::time::Duration;

/// How long a pod takes to start, and to end.
const STEP: Duration = Duration::from_millis(300);

/// An invariant that must hold at every change of a pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// The maximum number of pods that are neither finished nor being deleted.
    pub(crate) active_max: usize,
    /// The minimum number of pods that are ready and not being deleted.
    pub(crate) available_min: usize,
}

/// Waits until no pod is being deleted, so that all plays end alike.
pub(crate) async fn settled(env: &TestEnv) {
    env.eventually("no pod is being deleted", async || {
        let pods = ask(env, "GET", PODS, &Value::Null).await?;
        let is_going = |pod: &Value| !text(pod, "deletionTimestamp").is_empty();
        (!pods["items"].as_array()?.iter().any(is_going)).then_some(())
    })
    .await;
}

/// No rule.
pub(crate) const ANY: Rule = Rule { active_max: usize::MAX, available_min: 0 };

/// The current rule.
#[derive(Debug, Clone)]
pub(crate) struct Rules(Arc<Mutex<Rule>>);

impl Rules {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(ANY)))
    }

    pub(crate) fn set(&self, active_max: usize, available_min: usize) {
        *self.0.lock() = Rule { active_max, available_min };
    }

    pub(crate) fn clear(&self) {
        *self.0.lock() = ANY;
    }
}

/// Runs the named controllers.
async fn run(life: Life, controllers: &str) -> Result<(), BoxError> {
    let selection: Selection = controllers.parse()?;
    let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
    WorkloadControllers::new(setup, selection).run(life.stop.clone()).await
}

/// Runs the actions of users in a cluster with nodes, and observes the pods.
async fn cluster(env: &TestEnv, rules: &Rules, users: impl Future<Output = ()>) {
    until_either(observe(env, rules), until_either(kubelet(env), users)).await;
}

/// What users do in a [`cluster`] with some workload controllers.
pub(crate) trait Workload {
    /// The controllers, by kube-controller-manager's names.
    const CONTROLLERS: &str;

    /// What users do; it sets the rules for the pods.
    async fn users(&self, env: &TestEnv, rules: &Rules);
}

/// The scenario of a workload.
pub(crate) struct InCluster<W>(pub(crate) W);

impl<W: Workload> Scenario for InCluster<W> {
    type World = Rules;

    fn world(&self) -> Rules {
        Rules::new()
    }

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _: Rules) -> Result<(), BoxError> {
        run(life, W::CONTROLLERS).await
    }

    async fn drive(&self, env: &TestEnv, rules: &Rules) {
        cluster(env, rules, self.0.users(env, rules)).await;
    }
}

/// Sends a request; returns the answer, or `None` for a 404, 409 or 422.
pub(crate) async fn ask(env: &TestEnv, method: &str, path: &str, body: &Value) -> Option<Value> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    match env.client().request(request.body(body).unwrap()).await {
        Ok(answer) => Some(answer),
        Err(kube_client::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => None,
        Err(error) => panic!("{method} {path}: {error:?}"),
    }
}

/// Evicts a pod as `kubectl drain` does: waits while a budget refuses, also for longer than the
/// client repeats a request.
pub(crate) async fn evict(env: &TestEnv, pod: &str) {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod},
    });
    env.eventually("the pod is evicted", async || {
        let request = Request::post(format!("{PODS}/{pod}/eviction"))
            .header("content-type", "application/json")
            .body(eviction.to_string().into_bytes());
        match env.client().request::<Value>(request.unwrap()).await {
            Err(kube_client::Error::Api(status)) if status.code == 429 => None,
            Err(kube_client::Error::Api(status)) if matches!(status.code, 404 | 409) => Some(()),
            Err(error) => panic!("eviction of {pod}: {error:?}"),
            Ok(_) => Some(()),
        }
    })
    .await;
}

/// Waits until an object matches; returns it.
pub(crate) async fn until(
    env: &TestEnv,
    path: &str,
    what: &str,
    is_met: impl Fn(&Value) -> bool,
) -> Value {
    env.eventually(what, async || {
        let found = ask(env, "GET", path, &Value::Null).await?;
        is_met(&found).then_some(found)
    })
    .await
}

/// Pods of the default namespace.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// The names of the pods that are neither finished nor being deleted.
pub(crate) async fn active_pods(env: &TestEnv) -> Vec<String> {
    let pods = ask(env, "GET", PODS, &Value::Null).await.unwrap();
    let pods = pods["items"].as_array().into_iter().flatten().filter(|pod| is_active(pod));
    pods.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Schedules pods, makes them ready, and ends those that are being deleted.
async fn kubelet(env: &TestEnv) {
    let mut changes = env.changes();
    loop {
        changes.next().await;
        tokio::time::sleep(STEP).await;
        // What changes from here on is for the next look.
        changes.skip();
        let pods = ask(env, "GET", "/api/v1/pods", &Value::Null).await.unwrap();
        for pod in pods["items"].as_array().into_iter().flatten() {
            step(env, pod).await;
        }
    }
}

async fn step(env: &TestEnv, pod: &Value) {
    let (namespace, name) = (text(pod, "namespace"), text(pod, "name"));
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    if !text(pod, "deletionTimestamp").is_empty() {
        let options = json!({
            "gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]},
        });
        ask(env, "DELETE", &path, &options).await;
    } else if pod["spec"]["nodeName"].is_null() {
        let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
        let terms =
            &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let node = terms[0]["matchFields"][0]["values"][0].as_str().unwrap_or("n0");
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        });
        ask(env, "POST", &format!("{path}/binding"), &binding).await;
    } else if pod["status"]["phase"] == "Pending" {
        let at = env.clock().now().rfc3339();
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
        let conditions = [condition("PodScheduled"), condition("Ready")];
        let status = json!({
            "metadata": {"uid": pod["metadata"]["uid"]},
            "status": {"phase": "Running", "conditions": conditions},
        });
        ask(env, "PATCH", &format!("{path}/status"), &status).await;
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn is_active(pod: &Value) -> bool {
    let is_finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    !is_finished && text(pod, "deletionTimestamp").is_empty()
}

fn is_available(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    is_active(pod)
        && conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Checks the rule at every change of a pod.
async fn observe(env: &TestEnv, rules: &Rules) {
    at_every_change(env, "/registry/pods/", |pods, change| {
        let n_active = pods.values().filter(|pod| is_active(pod)).count();
        let n_available = pods.values().filter(|pod| is_available(pod)).count();
        let rule = *rules.0.lock();
        assert!(n_active <= rule.active_max, "{change}: {n_active} pods, {rule:?}");
        assert!(n_available >= rule.available_min, "{change}: {n_available} available, {rule:?}");
    })
    .await;
}
