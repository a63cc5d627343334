//! The origin of a change: the reconcile is known to the server, in process and over HTTP, in audit
//! events and for each revision.

use crate::plane::{map, maps, with_person_of};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::apiserver::{AuditEvent, AuditSink};
use setpoint::object::Origin;
use setpoint::prelude::*;
use setpoint::store::Revision;
use std::sync::Arc;

#[derive(Debug, Default)]
struct Audit(Mutex<Vec<Arc<Origin>>>);

impl AuditSink for Audit {
    fn record(&self, event: AuditEvent) {
        if event.request.verb == setpoint::apiserver::Verb::Patch {
            self.0.lock().extend(event.request.origin.clone());
        }
    }
}

async fn copy(request: Request, context: Context) -> Result<Action, BoxError> {
    if request.name.as_ref() == "a" {
        let secret = Apply::<Secret>::new(&request).set("/stringData/color", "red").force();
        context.client().api::<Secret>().apply(&secret).await?;
    }
    Ok(Action::await_change())
}

/// As over the wire: headers, but no extensions.
fn without_extensions(inner: Client) -> Client {
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        request.extensions_mut().clear();
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn change_has_the_reconcile_that_made_it() {
    for over_http in [false, true] {
        let audit = Arc::new(Audit::default());
        let plane = ControlPlane::builder().simulated(0).audit(audit.clone()).build();
        let server = plane.server().clone();
        with_person_of(plane, async |person| {
            let client = match over_http {
                true => without_extensions(person.client.clone()),
                false => person.client.clone(),
            };
            let clock = server.registry().clock().clone();
            let mut manager = Manager::builder(client).clock(clock).seed(1).build();
            let watch = Watch::<ConfigMap>::new();
            let controller = Controller::builder("copier").for_(watch).build(copy).unwrap();
            manager.add(controller).unwrap();
            let stop = CancellationToken::new();
            let acting = async {
                let made = person.create(&maps("default", ""), &map("a", &[])).await;
                let path = "/api/v1/namespaces/default/secrets/a";
                let secret = person.until(path, "it is there", Option::is_some).await.unwrap();
                stop.cancel();
                (made, secret)
            };
            let (ended, (made, secret)) = tokio::join!(manager.run(stop.clone()), acting);
            ended.unwrap();
            let origin = |object: &serde_json::Value| {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap();
                server.registry().origin_of(Revision(version.parse().unwrap()))
            };
            assert_eq!(origin(&made), None, "a person's");
            let origin = origin(&secret).unwrap();
            assert_eq!((&*origin.controller, &*origin.request), ("copier", "default/a"));
            assert_eq!(origin.reconcile_id.len(), 36, "{origin}");
            assert_eq!(audit.0.lock().first(), Some(&origin), "over HTTP: {over_http}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_origin_header_is_ignored() {
    let plane = ControlPlane::builder().simulated(0).build();
    let server = plane.server().clone();
    with_person_of(plane, async |person| {
        for (header, is_known) in [("nonsense", false), ("c k 1", true)] {
            let body = json!({"metadata": {"generateName": "a-"}}).to_string().into_bytes();
            let request = http::Request::post(maps("default", ""))
                .header("content-type", "application/json")
                .header(Origin::HEADER, header)
                .body(body)
                .unwrap();
            let made: serde_json::Value = person.client.request(request).await.unwrap();
            let version = made["metadata"]["resourceVersion"].as_str().unwrap();
            let origin = server.registry().origin_of(Revision(version.parse().unwrap()));
            assert_eq!(origin.is_some(), is_known, "{header}");
        }
    })
    .await;
}
