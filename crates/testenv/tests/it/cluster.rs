//! A user's client that writes and reads plain JSON, and a stand-in for the kubelets.

use kube_client::Client;
use serde_json::{Value, json};
use setpoint_controllers::{Selection, Setup, WorkloadControllers};
use setpoint_runtime::BoxError;
use setpoint_runtime::events::EventApi;
use setpoint_runtime::{Manager, ManagerBuilder};
use setpoint_testenv::{Changes, TestEnv};
use std::time::Duration;
use tokio::time::Instant;

/// The time until a pod's next state.
const LOOK: Duration = Duration::from_secs(1);

/// How long a wait may take: longer than the back-offs of all faults of a storm.
const PATIENCE: Duration = Duration::from_secs(45_000);
/// Between a change of any object and the next look at one.
const PAUSE: Duration = Duration::from_millis(200);

/// A manager of the named controllers.
pub(crate) fn controllers(
    builder: ManagerBuilder,
    client: &Client,
    clock: &setpoint_object::time::Clock,
    names: &str,
) -> Result<Manager, BoxError> {
    let selection: Selection = names.parse()?;
    let setup = Setup::new(client.clone(), clock.clone());
    let mut manager = builder.events(EventApi::Core).build();
    WorkloadControllers::new(setup, selection).add_to(&mut manager)?;
    Ok(manager)
}

/// A cluster as its user sees it.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    changes: Changes,
}

/// The outcome of a running pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Run,
    Succeed,
    /// Its container ends with this exit code.
    Fail(i32),
}

impl Cluster {
    pub(crate) fn of(env: &TestEnv) -> Self {
        Self { client: env.client(), changes: env.changes() }
    }

    /// Runs the named controllers in an environment.
    pub(crate) fn start(env: &TestEnv, names: &str) -> Self {
        env.run(controllers(env.manager(), &env.client(), env.clock(), names).unwrap());
        Self::of(env)
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, kube_client::Error> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", content_type).body(body).unwrap();
        self.client.request(request).await
    }

    /// The object; `None` if it does not exist.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        match self.send("GET", path, "application/json", &Value::Null).await {
            Ok(object) => Some(object),
            Err(kube_client::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        let list = self.get(path).await.unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        self.send("POST", path, "application/json", object).await.unwrap()
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Value {
        self.send("PATCH", path, "application/merge-patch+json", patch).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) {
        match self.send("DELETE", path, "application/json", options).await {
            Ok(_) => {}
            Err(kube_client::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Waits until the object fulfils a condition, and returns it. `None` stands for no object.
    pub(crate) async fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut changes = self.changes();
        let end = Instant::now() + PATIENCE;
        loop {
            let object = self.get(path).await.unwrap_or(Value::Null);
            if is_so(&object) {
                return object;
            }
            if tokio::time::timeout_at(end, changes.next()).await.is_err() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            changes.skip();
        }
        panic!("{path} is\n{:#}", self.get(path).await.unwrap_or(Value::Null));
    }

    /// Waits until a collection fulfils a condition, and returns its objects.
    pub(crate) async fn until_all(
        &self,
        path: &str,
        is_so: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let list = self.until(path, |list| {
            is_so(list["items"].as_array().map(Vec::as_slice).unwrap_or_default())
        });
        list.await["items"].as_array().cloned().unwrap_or_default()
    }

    /// Events about objects of a kind: type, reason and message, in the order of their creation.
    pub(crate) async fn events(&self, kind: &str) -> Vec<String> {
        let events = self.list("/api/v1/namespaces/default/events").await;
        let mut events: Vec<Value> =
            events.into_iter().filter(|event| event["involvedObject"]["kind"] == kind).collect();
        let version = |event: &Value| -> u64 {
            event["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
        };
        events.sort_by_key(version);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |event: &Value| {
            let words = [&event["type"], &event["reason"], &event["message"]];
            words.map(text).join(" ")
        };
        events.iter().map(line).collect()
    }

    /// Plays the kubelets while `user` acts: starts pods, ends them as `fate` says, and removes
    /// those that are being deleted.
    pub(crate) async fn with_kubelets<T>(
        &self,
        fate: impl Fn(&Value) -> Fate,
        user: impl Future<Output = T>,
    ) -> T {
        tokio::select! {
            biased;
            answer = user => answer,
            () = self.kubelets(fate) => unreachable!("kubelets run for ever"),
        }
    }

    async fn kubelets(&self, fate: impl Fn(&Value) -> Fate) {
        let mut changes = self.changes();
        loop {
            for pod in self.list("/api/v1/pods").await {
                self.step(&pod, &fate).await;
            }
            changes.next().await;
            tokio::time::sleep(LOOK).await;
            changes.skip();
        }
    }

    /// The changes of objects from now on.
    pub(crate) fn changes(&self) -> Changes {
        let mut changes = self.changes.clone();
        changes.skip();
        changes
    }

    /// The next state of one pod.
    async fn step(&self, pod: &Value, fate: &impl Fn(&Value) -> Fate) {
        let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
        let (namespace, name) = (namespace.as_str().unwrap(), name.as_str().unwrap());
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let is_finished = matches!(phase, "Succeeded" | "Failed");
        let container = pod["spec"]["containers"][0]["name"].clone();
        let now = pod["metadata"]["creationTimestamp"].clone();
        let status = |ready: &str, phase: &str, state: Value| {
            json!({"status": {
                "phase": phase, "startTime": now, "podIP": address(pod), "podIPs": [{"ip": address(pod)}],
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now}],
                "containerStatuses": [{
                    "name": container, "ready": ready == "True", "restartCount": 0,
                    "image": "i", "imageID": "", "state": state,
                }],
            }})
        };
        if pod["metadata"]["deletionTimestamp"].is_string() {
            if !is_finished {
                let ended = status("False", "Failed", json!({"terminated": {"exitCode": 143}}));
                self.write_status(&path, &ended).await;
            }
            self.delete(&path, &json!({"gracePeriodSeconds": 0})).await;
            return;
        }
        if pod["spec"]["nodeName"].is_null() {
            return;
        }
        let next = match (phase, fate(pod)) {
            ("Pending", _) => status("True", "Running", json!({"running": {}})),
            ("Running", Fate::Succeed) => {
                status("False", "Succeeded", json!({"terminated": {"exitCode": 0}}))
            }
            ("Running", Fate::Fail(code)) => {
                status("False", "Failed", json!({"terminated": {"exitCode": code}}))
            }
            _ => return,
        };
        self.write_status(&path, &next).await;
    }

    async fn write_status(&self, path: &str, status: &Value) {
        let path = format!("{path}/status");
        match self.send("PATCH", &path, "application/merge-patch+json", status).await {
            Ok(_) => {}
            Err(kube_client::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

/// An address for a pod, from its name. Pods with generated names have the same.
fn address(pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    match (pod["metadata"]["generateName"].as_str(), digits.parse::<u8>()) {
        (Some(_), _) => "10.1.0.1".to_owned(),
        (None, Ok(n)) => format!("10.1.1.{n}"),
        (None, Err(_)) => format!("10.1.2.{}", name.bytes().next().unwrap_or(1)),
    }
}

/// Runs two futures until one of them ends. Whenever both can go on, the first goes first.
pub(crate) async fn until_either(first: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = first => {}
        () = other => {}
    }
}

/// Whether an object has a true condition of a type.
pub(crate) fn has(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}

/// The condition of a type; null if there is none.
pub(crate) fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|held| held["type"] == kind).cloned().unwrap_or(Value::Null)
}

/// A pod that may run, on a node.
pub(crate) fn pod_spec() -> Value {
    json!({"nodeName": "n1", "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]})
}
