//! A user's client of a control plane in the same process.

use futures::future::BoxFuture;
use kube_client::Client;
use kube_client::client::Body;
use serde_json::{Value, json};
use setpoint_apiserver::ApiServer;
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder};
use setpoint_controllers::Setup;
use setpoint_registry::Identity;
use setpoint_runtime::BoxError;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longer than every wait in these tests: ten minutes of virtual time.
const PATIENCE: Duration = Duration::from_secs(600);

/// A user.
#[derive(Clone)]
pub(crate) struct User(Client);

/// Runs a control plane while `act` uses it.
pub(crate) async fn with_user(plane: ControlPlaneBuilder, act: impl AsyncFnOnce(User)) {
    with_server(plane, async |user, _| act(user).await).await;
}

/// The same with its server, for clients of others.
pub(crate) async fn with_server(
    plane: ControlPlaneBuilder,
    act: impl AsyncFnOnce(User, ApiServer),
) {
    let plane = plane.simulated(1).build();
    let (user, server) = (User::of(&plane), plane.server().clone());
    let mut ready = plane.ready();
    let stop = CancellationToken::new();
    let running = plane.run(stop.clone());
    let acting = async {
        ready.wait_for(|ready| *ready).await.unwrap();
        act(user, server).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(running, acting);
    ended.unwrap();
}

/// Runs one controller as the service account of its name, with the rights of its role, while `act`
/// looks at what it does.
pub(crate) async fn as_account(
    plane: ControlPlaneBuilder,
    name: &str,
    run: impl FnOnce(Setup, CancellationToken) -> BoxFuture<'static, Result<(), BoxError>>,
    act: impl AsyncFnOnce(User),
) {
    with_server(plane.rbac().controllers(false), async |user, server| {
        let setup = Setup::new(account(&server, name), server.registry().clock().clone()).seed(1);
        let stop = CancellationToken::new();
        let acting = async {
            act(user).await;
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(run(setup, stop.clone()), acting);
        ended.unwrap();
    })
    .await;
}

/// A client of a service account of `kube-system`.
pub(crate) fn account(server: &ApiServer, name: &str) -> Client {
    server.client_as(Identity::new(
        &format!("system:serviceaccount:kube-system:{name}"),
        ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
    ))
}

/// A client that sends what a controller sends with `own`, and all else with `others`.
pub(crate) fn by_user_agent(controller: &'static str, own: Client, others: Client) -> Client {
    let choose = move |request: http::Request<Body>| {
        let agent = request.headers().get(http::header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let client = if agent.ends_with(controller) { own.clone() } else { others.clone() };
        async move { client.send(request).await }
    };
    Client::new(tower::service_fn(choose), "default")
}

impl From<Client> for User {
    fn from(client: Client) -> Self {
        Self(client)
    }
}

impl User {
    pub(crate) fn of(plane: &ControlPlane) -> Self {
        Self(plane.client())
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, kube_client::Error> {
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body)
            .unwrap();
        self.0.request(request).await
    }

    /// The answer of a page, whatever its code.
    pub(crate) async fn text(&self, path: &str) -> String {
        let request = http::Request::get(path).body(kube_client::client::Body::empty()).unwrap();
        let answer = self.0.send(request).await.unwrap();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    }

    pub(crate) async fn create(&self, path: &str, body: Value) -> Value {
        self.request("POST", path, &body).await.unwrap()
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Value {
        self.request("PATCH", path, &body).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) -> Value {
        self.request("DELETE", path, &Value::Null).await.unwrap()
    }

    /// The object; null if there is none.
    pub(crate) async fn get(&self, path: &str) -> Value {
        self.request("GET", path, &Value::Null).await.unwrap_or_default()
    }

    /// Creates a pod in `default`, which exists a moment after the start.
    pub(crate) async fn pod(&self, name: &str, spec: Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}}, "spec": spec,
        });
        pod["spec"]["automountServiceAccountToken"] = false.into();
        for _ in 0..1000 {
            match self.request("POST", "/api/v1/namespaces/default/pods", &pod).await {
                Ok(_) => return,
                // The account of the namespace does not exist yet.
                Err(kube_client::Error::Api(status))
                    if status.code == 403 && status.message.contains("serviceaccount") =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => panic!("create {name}: {error}"),
            }
        }
        panic!("{name} cannot be created");
    }

    /// Waits, in virtual time, until an object fulfils a condition.
    pub(crate) async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let started = tokio::time::Instant::now();
        loop {
            let found = self.get(path).await;
            if holds(&found) {
                return found;
            }
            assert!(started.elapsed() < PATIENCE, "{path}: {found:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
