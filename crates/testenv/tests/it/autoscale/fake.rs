//! Metrics APIs with answers that a test sets.

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_apiserver::{Backend, Body, Handler, RequestBody};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_testenv::TestEnv;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The metrics APIs: answers by path. Others are not found.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<BTreeMap<String, Value>>>);

impl Handler for Fake {
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
        let path = request.uri().path().to_owned();
        let found = self.0.lock().get(&path).cloned();
        let mut response = Response::new(Body::once(match &found {
            Some(items) => json!({"kind": "List", "apiVersion": "v1", "items": items}).to_string(),
            None => json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": format!("no metric at {path}"), "details": {},
            })
            .to_string(),
        }));
        if found.is_none() {
            *response.status_mut() = http::StatusCode::NOT_FOUND;
        }
        ready(response).boxed()
    }
}

impl Fake {
    pub(super) fn set(&self, path: &str, items: Value) {
        self.0.lock().insert(path.to_owned(), items);
    }

    /// Sets the CPU of pods, in thousandths.
    pub(super) fn set_cpu(&self, env: &TestEnv, pods: &[(String, i64)]) {
        let at = env.clock().now().rfc3339();
        let metric = |(pod, milli): &(String, i64)| {
            json!({
                "metadata": {"name": pod, "namespace": "default"}, "timestamp": at, "window": "0s",
                "containers": [{"name": "c", "usage": {"cpu": format!("{milli}m")}}],
            })
        };
        let items = pods.iter().map(metric).collect();
        self.set("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods", items);
    }

    fn backend(&self, group: &str, version: &str, resource: &str) -> Backend {
        let resources = json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": format!("{group}/{version}"),
            "resources": [{
                "name": resource, "singularName": "", "namespaced": true, "kind": "Metric",
                "verbs": ["get", "list"],
            }],
        });
        Backend::builder(group, version, Arc::new(self.clone()))
            .resources(resources.to_string())
            .build()
            .unwrap()
    }

    pub(super) fn serve(&self, plane: ControlPlaneBuilder) -> ControlPlaneBuilder {
        plane
            .backend(self.backend("metrics.k8s.io", "v1beta1", "pods"))
            .backend(self.backend("custom.metrics.k8s.io", "v1beta2", "pods/hits"))
            .backend(self.backend("external.metrics.k8s.io", "v1beta1", "queue"))
    }
}
