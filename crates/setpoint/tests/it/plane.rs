//! A control plane on paused time, and a user's client that writes and reads plain JSON.

use kube_client::Client;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long an expected event may take: longer than the longest back-off, 1000 s.
const PATIENCE: Duration = Duration::from_secs(3000);
/// The longest pause between two polls.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A user's client.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) client: Client,
}

/// Runs a control plane while `act` uses it.
pub(crate) async fn with_person<T>(act: impl AsyncFnOnce(Person) -> T) -> T {
    with_person_of(ControlPlane::builder().simulated(0).build(), act).await
}

/// As [`with_person`], with the given control plane.
pub(crate) async fn with_person_of<T>(
    plane: ControlPlane,
    act: impl AsyncFnOnce(Person) -> T,
) -> T {
    let person = Person { client: plane.client() };
    let stop = CancellationToken::new();
    let running = plane.run(stop.clone());
    let acting = async {
        let answer = act(person).await;
        stop.cancel();
        answer
    };
    let (ended, answer) = tokio::join!(running, acting);
    ended.unwrap();
    answer
}

impl Person {
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, kube_client::Error> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body)
            .unwrap();
        self.client.request(request).await
    }

    /// As [`Self::request`], retried on 429 and 5xx.
    async fn insist(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, kube_client::Error> {
        let started = tokio::time::Instant::now();
        loop {
            match self.request(method, path, content_type, body).await {
                Err(kube_client::Error::Api(status))
                    if (status.code == 429 || status.code >= 500)
                        && started.elapsed() < PATIENCE =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                answer => return answer,
            }
        }
    }

    /// The object; `None` if it does not exist.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        match self.insist("GET", path, "application/json", &Value::Null).await {
            Ok(object) => Some(object),
            Err(kube_client::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Creates an object in a collection.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        self.request("POST", path, "application/json", object).await.unwrap()
    }

    /// Applies a merge patch.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Value {
        self.request("PATCH", path, "application/merge-patch+json", patch).await.unwrap()
    }

    /// Deletes an object with a propagation policy. It may be gone already, because a response may
    /// have been lost.
    pub(crate) async fn delete(&self, path: &str, policy: &str) {
        let options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        match self.insist("DELETE", path, "application/json", &options).await {
            Ok(_) => {}
            Err(kube_client::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Waits until nothing exists at the path.
    pub(crate) async fn gone(&self, path: &str) {
        self.until(path, "it is gone", Option::is_none).await;
    }

    /// Waits until the object at the path fulfils a condition.
    pub(crate) async fn until(
        &self,
        path: &str,
        what: &str,
        is_so: impl Fn(&Option<Value>) -> bool,
    ) -> Option<Value> {
        let started = tokio::time::Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let object = self.get(path).await;
            if is_so(&object) {
                return object;
            }
            assert!(started.elapsed() < PATIENCE, "waited until {what}: {path}\n{object:#?}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
    }

    /// Creates the definition of Network.
    pub(crate) async fn define_networks(&self) {
        self.define(&serde_saphyr::from_str(network::api::CRD_YAML).unwrap()).await;
    }

    /// Creates a definition, and waits until it is established.
    pub(crate) async fn define(&self, definition: &Value) {
        self.create(DEFINITIONS, definition).await;
        let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap());
        self.until(&path, "it is established", |crd| {
            let crd = crd.as_ref().unwrap();
            let conditions = crd["status"]["conditions"].as_array().map(Vec::as_slice);
            conditions.unwrap_or_default().iter().any(|condition| {
                condition["type"] == "Established" && condition["status"] == "True"
            })
        })
        .await;
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Path of the definition of Network.
pub(crate) const NETWORKS_CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/networks.samplecrd.k8s.io";

/// Networks of a namespace, or one of them.
pub(crate) fn networks(namespace: &str, name: &str) -> String {
    let path = format!("/apis/samplecrd.k8s.io/v1/namespaces/{namespace}/networks/{name}");
    path.trim_end_matches('/').to_owned()
}

/// A Network manifest.
pub(crate) fn network(name: &str, cidr: &str, gateway: &str) -> Value {
    json!({
        "apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": name},
        "spec": {"cidr": cidr, "gateway": gateway},
    })
}

/// ConfigMaps of a namespace, or one of them.
pub(crate) fn maps(namespace: &str, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    path.trim_end_matches('/').to_owned()
}

/// A ConfigMap manifest with owners.
pub(crate) fn map(name: &str, owners: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
}

/// A reference to an owner, with `blockOwnerDeletion`.
pub(crate) fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": true,
    })
}
