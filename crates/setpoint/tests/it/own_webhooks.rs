//! Webhooks at the control plane itself: those of a server that it aggregates.

use crate::admission_webhooks::{MAPS, VALIDATING, configuration, hook, map};
use crate::plane::{Person, with_person_of};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{Attributes, Backend, Body, RequestBody};
use std::sync::Arc;
use std::time::Duration;

/// Refuses what it reviews, and says who asked for it at which path.
async fn refuse(request: Request<RequestBody>) -> Response<Body> {
    let user = request.extensions().get::<Arc<Attributes>>().unwrap().identity.user.to_string();
    let uri = request.uri().to_string();
    if uri.contains("/broken") {
        let mut response = Response::new(Body::once(r#"{"kind": "Status", "message": "not now"}"#));
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        return response;
    }
    let review = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&review).unwrap();
    let status = json!({"message": format!("{user} at {uri}")});
    let response = json!({"uid": review["request"]["uid"], "allowed": false, "status": status});
    let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "response": response});
    Response::new(Body::once(answer.to_string()))
}

/// Creates config maps until one is refused with a message.
async fn refused(person: &Person, name: &str, expected: &str) {
    let mut last = None;
    for n in 0..1000 {
        let map = map(&format!("{name}-{n}"));
        match person.request("POST", MAPS, "application/json", &map).await {
            Err(kube_client::Error::Api(status)) if status.message.contains(expected) => return,
            answer => last = Some(answer),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name}: {last:?}")
}

#[tokio::test(start_paused = true)]
async fn a_webhook_of_an_aggregated_server_is_called_at_the_control_plane_itself() {
    let backend = Backend::builder("hooks.ex.io", "v1", Arc::new(refuse)).build().unwrap();
    let plane = ControlPlane::builder().simulated(3).backend(backend).build();
    with_person_of(plane, async |person| {
        let group = "/apis/hooks.ex.io/v1";
        for (name, path, expected) in [
            ("good", "reviews", "system:apiserver at /apis/hooks.ex.io/v1/reviews?timeout=10s"),
            ("bad", "broken", "failed to call webhook: not now"),
        ] {
            let path = format!("{group}/{path}");
            let service = json!({"namespace": "default", "name": "kubernetes", "path": path});
            let hook = hook(name, json!({"service": service}), &["configmaps"]);
            let configured = configuration(VALIDATING, name, &[hook]);
            person.request("POST", VALIDATING, "application/json", &configured).await.unwrap();
            refused(&person, name, expected).await;
            let path = format!("{VALIDATING}/{name}");
            person.request("DELETE", &path, "application/json", &Value::Null).await.unwrap();
        }
    })
    .await;
}
