//! Requests of users, with what a client sees of admission: code, message, warnings.

use crate::plane::with_person_of;
use http::Method;
use serde_json::{Value, json};
use setpoint::apiserver::ApiServer;
use setpoint::registry::{AdmissionOptions, Identity};
use setpoint::{ControlPlane, ControlPlaneBuilder};

/// What a client gets.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}
impl Answer {
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
    /// The code and the message.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        (self.code, self.message())
    }
}

/// A server, and the user who asks it.
#[derive(Clone)]
pub(crate) struct Asker {
    server: ApiServer,
    identity: Identity,
}
impl Asker {
    pub(crate) fn as_user<'a>(
        &self,
        name: &str,
        groups: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self { server: self.server.clone(), identity: Identity::new(name, groups) }
    }
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &Value) -> Answer {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(http_body_util::Full::new(bytes::Bytes::from(body)))
            .unwrap();
        request.extensions_mut().insert(self.identity.clone());
        let response = self.server.serve(request).await;
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            let text = text.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"'));
            text.unwrap_or_default().replace("\\\"", "\"")
        });
        let warnings = warnings.collect();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        Answer { code, body, warnings }
    }
    /// The bytes of an answer.
    pub(crate) async fn text(&self, path: &str) -> String {
        let mut request =
            http::Request::get(path).body(http_body_util::Full::new(bytes::Bytes::new())).unwrap();
        request.extensions_mut().insert(self.identity.clone());
        let response = self.server.serve(request).await;
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    }
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, body).await
    }
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::PATCH, path, body).await
    }
    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, &Value::Null).await.body
    }
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, &Value::Null).await
    }
    /// Creates an object; the object as it is stored.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body).await;
        assert_eq!(answer.code, 201, "{}", answer.message());
        answer.body
    }
}

/// Runs a control plane with admission options while `test` asks it as an administrator.
pub(crate) async fn with_admission(options: AdmissionOptions, test: impl AsyncFnOnce(Asker)) {
    // The pods of these tests have no accounts.
    let builder = ControlPlane::builder().simulated(0).service_accounts(false);
    with_plane(builder.admission_plugins(options.build().unwrap()), test).await;
}
/// As [`with_admission`], with any control plane.
pub(crate) async fn with_plane(builder: ControlPlaneBuilder, test: impl AsyncFnOnce(Asker)) {
    let plane = builder.build();
    let asker = Asker { server: plane.server().clone(), identity: Identity::admin() };
    let mut ready = plane.ready();
    with_person_of(plane, async |_| {
        ready.wait_for(|ready| *ready).await.unwrap();
        test(asker).await;
    })
    .await;
}

/// A pod with one container.
pub(crate) fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    });
    for (member, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][member] = value.clone();
    }
    pod
}
/// Pods of the default namespace.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
