//! An embedder's own ways to webhooks, pods and kubelets, written with public names only.

use crate::user::{User, with_user};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_apiserver::{Body, Connector, Location, Peer, RequestBody};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder};
use setpoint_object::ApiError;
use setpoint_registry::{WebhookCaller, WebhookClient, WebhookClients, WebhookError};
use setpoint_spans::SpanContext;
use std::sync::Arc;
use std::time::Duration;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn builder() -> ControlPlaneBuilder {
    ControlPlane::builder().controllers(false)
}

async fn create(user: &User, path: &str, object: Value) -> Result<Value, kube_client::Error> {
    user.request("POST", path, &object).await
}

fn code(result: Result<Value, kube_client::Error>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(kube_client::Error::Api(status)) => format!("{} {}", status.code, status.message),
        Err(other) => panic!("{other}"),
    }
}

// ---- webhooks

/// Calls no webhook: it decides by the name of the object, and notes what it was to call.
#[derive(Debug, Clone, Default)]
struct Judge(Arc<Mutex<Vec<String>>>);

impl WebhookClients for Judge {
    fn client(&self, caller: WebhookCaller, config: &Value) -> Arc<dyn WebhookClient> {
        let url = config["url"].as_str().unwrap_or_default();
        self.0.lock().push(format!("{caller:?} {url}"));
        Arc::new(self.clone())
    }
}

impl WebhookClient for Judge {
    fn call(
        &self,
        review: Bytes,
        _timeout: Duration,
        _caller: Option<SpanContext>,
    ) -> BoxFuture<'static, Result<Bytes, WebhookError>> {
        async move {
            let review: Value = serde_json::from_slice(&review)
                .map_err(|error| WebhookError::Call(error.to_string()))?;
            let request = &review["request"];
            if request["name"] == "broken" {
                return Err(WebhookError::Call("the tunnel is closed".to_owned()));
            }
            let response = json!({
                "uid": request["uid"], "allowed": request["name"] != "bad",
                "status": {"message": "not through this tunnel"},
            });
            let answer = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": response,
            });
            Ok(answer.to_string().into())
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn webhooks_are_called_in_an_embedders_way() {
    let judge = Judge::default();
    with_user(builder().webhooks(Arc::new(judge.clone())), async |user| {
        let hook = json!({
            "name": "judge.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://judge.example.com/"},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"],
            }],
        });
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        let configuration = json!({"metadata": {"name": "judge"}, "webhooks": [hook]});
        assert_eq!(code(create(&user, path, configuration).await), "ok");
        let map = |name: &str| json!({"metadata": {"name": name}});
        let refused = "400 admission webhook \"judge.example.com\" denied the request: not through this tunnel";
        assert_eq!(code(create(&user, CONFIG_MAPS, map("bad")).await), refused);
        let failed = code(create(&user, CONFIG_MAPS, map("broken")).await);
        assert!(failed.starts_with("500 ") && failed.ends_with("the tunnel is closed"), "{failed}");
        assert_eq!(code(create(&user, CONFIG_MAPS, map("good")).await), "ok");
    })
    .await;
    assert_eq!(*judge.0.lock(), ["Validating https://judge.example.com/"]);
}

// ---- a connector

/// Answers for everybody, with what it was to ask.
#[derive(Debug)]
struct Tunnel;

impl Connector for Tunnel {
    fn kubelet(&self, node: &Value) -> Result<Option<(String, u16)>, ApiError> {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        Ok(Some((format!("{name}.tunnel"), 10250)))
    }
    fn forward(
        &self,
        to: Location,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Body>, ApiError>> {
        let peer = if to.peer == Peer::Kubelet { "kubelet" } else { "anyone" };
        let Location { host, port, path, .. } = to;
        let method = request.method().clone();
        async move {
            let asked = json!({"asked": format!("{method} {peer} {host}:{port}{path}")});
            Ok(Response::new(Body::once(asked.to_string())))
        }
        .boxed()
    }
    fn send(
        &self,
        to: Location,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Body>, ApiError>> {
        self.forward(to, request)
    }
}

#[tokio::test(start_paused = true)]
async fn pods_and_kubelets_are_reached_in_an_embedders_way() {
    with_user(builder().connector(Arc::new(Tunnel)), async |user| {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        });
        assert_eq!(code(create(&user, PODS, pod).await), "ok");
        let node = json!({"metadata": {"name": "n"}});
        assert_eq!(code(create(&user, "/api/v1/nodes", node).await), "ok");
        let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.7",
            "podIPs": [{"ip": "10.0.0.7"}]}});
        user.patch(&format!("{PODS}/p/status"), status).await;
        for (path, asked) in [
            (format!("{PODS}/p:8080/proxy/hello"), "GET anyone 10.0.0.7:8080/hello"),
            ("/api/v1/nodes/n/proxy/metrics".to_owned(), "GET kubelet n.tunnel:10250/metrics"),
        ] {
            let answer = user.request("GET", &path, &Value::Null).await.unwrap();
            assert_eq!(answer["asked"], asked);
        }
    })
    .await;
    // Without connections it is not asked.
    let isolated = builder().connector(Arc::new(Tunnel)).connections(false);
    with_user(isolated, async |user| {
        let node = json!({"metadata": {"name": "n"}});
        assert_eq!(code(create(&user, "/api/v1/nodes", node).await), "ok");
        let path = "/api/v1/nodes/n/proxy/metrics";
        let answer = user.request("GET", path, &Value::Null).await;
        assert!(code(answer).starts_with("503 "));
    })
    .await;
}
