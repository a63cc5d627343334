//! How the content of a namespace is deleted: the requests of the controller.

use crate::plane::{Person, map, maps, with_person_of};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use serde_json::json;
use setpoint::ControlPlane;
use setpoint_controllers::{NamespaceController, Setup};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// More than the metadata of three objects, and less than one of them.
const ANSWER_MAX: usize = 100 << 10;

/// Runs a namespace controller while `act` uses the control plane. Its requests for ConfigMaps are
/// refused if they are of `not_allowed`, and fail if the answer is large.
async fn with_controller(not_allowed: Option<Method>, act: impl AsyncFnOnce(Person)) {
    let plane = ControlPlane::builder().simulated(1).controllers(false).build();
    let (inner, clock) = (plane.client(), plane.server().registry().clock().clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, not_allowed) = (inner.clone(), not_allowed.clone());
        async move {
            if !request.uri().path().ends_with("/configmaps") {
                return inner.send(request).await;
            }
            if not_allowed.as_ref() == Some(request.method()) {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
                    "code": 405, "reason": "MethodNotAllowed", "message": "the server does not allow this method"});
                let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
                *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
                return Ok(answer);
            }
            let (head, body) = inner.send(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            match body.len() {
                0..=ANSWER_MAX => Ok(Response::from_parts(head, Body::from(body.to_vec()))),
                _ => Err(kube_client::Error::Service("the answer is too large".into())),
            }
        }
    });
    let setup = Setup::new(Client::new(service, "default"), clock).seed(0);
    let namespaces = setup.run(CancellationToken::new(), |setup, manager| {
        NamespaceController::new(setup.clone()).add_to(manager)
    });
    with_person_of(plane, async |person| {
        let mut running = JoinSet::new();
        running.spawn(async { namespaces.await.unwrap() });
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}});
        person.create("/api/v1/namespaces", &namespace).await;
        act(person).await;
    })
    .await;
}

const DOOMED: &str = "/api/v1/namespaces/doomed";

/// A client takes 64 MiB of an answer: a hundred ConfigMaps may have more.
#[tokio::test(start_paused = true)]
async fn large_objects_that_are_held_are_no_failure() {
    with_controller(None, async |person| {
        for name in ["a", "b", "c"] {
            let mut held = map(name, &[]);
            held["metadata"]["finalizers"] = json!(["example.com/hold"]);
            held["data"] = json!({"large": "x".repeat(ANSWER_MAX)});
            person.create(&maps("doomed", ""), &held).await;
        }
        person.delete(DOOMED, "Background").await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let namespace = person.get(DOOMED).await.expect("something is held");
        let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
        let problems = conditions.filter(|condition| condition["status"] == "True");
        let problems: Vec<&str> = problems.map(|c| c["message"].as_str().unwrap()).collect();
        assert_eq!(
            problems,
            [
                "Some resources are remaining: configmaps. has 3 resource instances",
                "Some content in the namespace has finalizers remaining: example.com/hold in 3 resource instances",
            ]
        );
    })
    .await;
}

/// The documents of an extension's server may name a verb that it refuses.
#[tokio::test(start_paused = true)]
async fn objects_are_deleted_one_by_one_where_a_collection_cannot_be() {
    with_controller(Some(Method::DELETE), async |person| {
        for name in ["a", "b", "c"] {
            person.create(&maps("doomed", ""), &map(name, &[])).await;
        }
        person.delete(DOOMED, "Background").await;
        person.gone(DOOMED).await;
    })
    .await;
}
