//! Edge cases of backends: definitions of the same kind, in-process sources, upgrades, timeouts.

use crate::extension_backend::{
    JSON, WIDGETS, discovered, ex_io_v1, get, get_json, widget, widgets,
};
use crate::plane::with_person_of;
use crate::serve::local;
use futures::{StreamExt as _, stream};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kube_core::dynamic::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use setpoint::apiserver::{
    ApiServer, Attributes, Backend, BackendError, Body, Conversation, DOCUMENT_BYTES_MAX, Identity,
    RequestBody, Requested, ResourcePath, Verb,
};
use setpoint::informer::ListWatch as _;
use setpoint::informer::source::{ListRequest, WatchFrame, WatchRequest};
use setpoint::registry::ListOptions;
use setpoint::{ControlPlane, InProcessSource};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

fn plane() -> setpoint::ControlPlaneBuilder {
    ControlPlane::builder().simulated(0).controllers(false)
}

/// A definition of the same kind, in two versions.
fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.io"},
        "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", true), version("v2", false)]}})
}

#[tokio::test(start_paused = true)]
async fn backend_takes_over_one_version_of_a_definition_and_gives_it_back() {
    let plane = plane().build();
    let backends = plane.server().backends().clone();
    with_person_of(plane, async |person| {
        let client = &person.client;
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        person.create(definitions, &definition()).await;
        person.until(WIDGETS, "it is served", Option::is_some).await;
        person.create(WIDGETS, &widget("local")).await;
        let v2 = WIDGETS.replace("v1", "v2");

        backends.put(widgets()).unwrap();
        assert_eq!(get_json(client, WIDGETS, JSON).await["items"], json!([]));
        assert_eq!(get(client, &format!("{WIDGETS}/local")).await.0, 404);
        assert_eq!(get(client, &format!("{v2}/local")).await.0, 200);
        let listed = discovered(client, "ex.io").await;
        let shown = |at: usize| {
            (
                &listed["versions"][at]["version"],
                &listed["versions"][at]["resources"][0]["shortNames"],
            )
        };
        assert_eq!(shown(0), (&json!("v2"), &Value::Null));
        assert_eq!(shown(1), (&json!("v1"), &json!(["wi"])));
        let document = get_json(client, "/openapi/v2", JSON).await;
        let local = &document["paths"];
        assert!(local[format!("{}/{{name}}", WIDGETS.replace("default", "{namespace}"))].is_null());
        assert!(local[format!("{}/{{name}}", v2.replace("default", "{namespace}"))].is_object());
        // The definition's v1 kind is not published any more, so the backend's kind keeps its name.
        assert!(document["definitions"]["io.ex.v1.Widget"]["properties"]["metadata"].is_object());
        // A percent-encoded path does not bypass the backend.
        assert_eq!(get(client, "/%61pis/ex.io/v1/namespaces/default/widgets/local").await.0, 404);

        backends.remove(&ex_io_v1());
        assert_eq!(get(client, &format!("{WIDGETS}/local")).await.0, 200);
        let listed = discovered(client, "ex.io").await;
        assert_eq!(listed["versions"][1]["resources"][0]["shortNames"], Value::Null);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn priorities_order_groups_and_versions() {
    let empty = |group: &str, version: &str| {
        let handler = |_: Request<RequestBody>| async { Response::new(Body::empty()) };
        Backend::builder(group, version, Arc::new(handler))
    };
    let plane = plane()
        .backend(empty("z.io", "v1").group_priority(17_850).build().unwrap())
        .backend(empty("b.io", "v1").build().unwrap())
        .backend(empty("a.io", "v1alpha1").version_priority(200).build().unwrap())
        .backend(empty("a.io", "v1").build().unwrap())
        .backend(empty("a.io", "v2").build().unwrap())
        .backend(empty("batch", "v2alpha1").version_priority(1).build().unwrap());
    with_person_of(plane.build(), async |person| {
        let groups = get_json(&person.client, "/apis", JSON).await;
        let groups = groups["groups"].as_array().unwrap();
        let names: Vec<_> = groups.iter().map(|group| group["name"].as_str().unwrap()).collect();
        assert_eq!(names[..3], ["apiregistration.k8s.io", "z.io", "apps"]);
        assert_eq!(names[names.len() - 2..], ["a.io", "b.io"]);
        let versions = |name: &str| -> Vec<_> {
            let group = groups.iter().find(|group| group["name"] == name).unwrap();
            let versions = group["versions"].as_array().unwrap();
            versions.iter().map(|version| version["version"].as_str().unwrap()).collect()
        };
        assert_eq!(versions("a.io"), ["v1alpha1", "v2", "v1"]);
        assert_eq!(versions("batch"), ["v1", "v2alpha1"]);
        // Its resources are unknown.
        let stale = json!({"version": "v1", "freshness": "Stale"});
        assert_eq!(discovered(&person.client, "b.io").await["versions"][0], stale);
    })
    .await;
}

#[test]
fn documents_and_names_are_bounded() {
    let handler = |_: Request<RequestBody>| async { Response::new(Body::empty()) };
    let of = |group: &str, version: &str| Backend::builder(group, version, Arc::new(handler));
    let long = format!("\"{}\"", " ".repeat(DOCUMENT_BYTES_MAX));
    let message = |result: Result<Backend, BackendError>| result.unwrap_err().to_string();
    for (refused, text) in [
        (of("", "v1").build(), r#"the group "" is not a DNS subdomain"#),
        (of("ex.io", "1").build(), r#"the version "1" is not a DNS label"#),
        (
            of("ex.io", "v1").group_priority(0).build(),
            "the group priority 0 is not between 1 and 20000",
        ),
        (
            of("ex.io", "v1").open_api_v3(long).build(),
            "the OpenAPI v3 document has 4194306 bytes, the most is 4194304",
        ),
        (of("ex.io", "v1").open_api_v2("[]").build(), "read the OpenAPI v2 document"),
        (of("ex.io", "v1").resources("{}").build(), "the APIResourceList has no resources"),
    ] {
        assert_eq!(message(refused), text);
    }
}

#[tokio::test(start_paused = true)]
async fn total_size_of_backend_documents_is_bounded() {
    let handler = |_: Request<RequestBody>| async { Response::new(Body::empty()) };
    let document = format!(r#"{{"openapi": "{}"}}"#, "x".repeat(DOCUMENT_BYTES_MAX - 100));
    let plane = plane().build();
    let backends = plane.server().backends();
    let put = |group: String| {
        let built = Backend::builder(&group, "v1", Arc::new(handler)).open_api_v3(document.clone());
        backends.put(built.build().unwrap())
    };
    let refused = (0..100).find_map(|n| put(format!("g{n}.io")).err()).unwrap();
    assert!(matches!(refused, BackendError::TooMuch { .. }), "{refused}");
    let n_there = backends.group_versions().len();
    // Replacing a backend does not count as adding one.
    put("g0.io".to_owned()).unwrap();
    assert_eq!(backends.group_versions().len(), n_there);
}

#[tokio::test(start_paused = true)]
async fn in_process_source_and_client_reach_a_backend() {
    let plane = plane().backend(widgets()).build();
    let server = plane.server().clone();
    with_person_of(plane, async |person| {
        person.create(WIDGETS, &widget("a")).await;
        let resource = ApiResource {
            group: "ex.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "ex.io/v1".to_owned(),
            kind: "Widget".to_owned(),
            plural: "widgets".to_owned(),
        };
        let source = InProcessSource::dynamic::<DynamicObject>(&server, &resource, Some("default"));
        let page = source.list(ListRequest::default()).await.unwrap();
        assert_eq!((page.items.len(), &*page.resource_version), (1, "1"));
        let mut events = source.watch(WatchRequest::default()).await.unwrap();
        assert!(matches!(events.next().await, Some(Ok(WatchFrame::Added(_)))));
        // Calls without HTTP return an error that explains it.
        let path = ResourcePath {
            group: "ex.io".to_owned(),
            version: "v1".to_owned(),
            resource: "widgets".to_owned(),
            ..ResourcePath::default()
        };
        let request = Attributes::new(Identity::admin(), Verb::List, Requested::Unrouted(path));
        let refused = server.list(request, ListOptions::default()).await.unwrap_err();
        let message = "widgets.v1.ex.io is served by a backend, which is asked over HTTP only: use a client of this server";
        assert_eq!((refused.code(), &*refused.0.message), (501, message));
    })
    .await;
}

/// Sends one piece and then nothing.
async fn endless(_: Request<RequestBody>) -> Response<Body> {
    let pieces = stream::iter(["{\n".into()]).chain(stream::pending());
    Response::new(Body::stream(pieces))
}

fn endless_backend() -> Backend {
    Backend::builder("ex.io", "v1", Arc::new(endless)).build().unwrap()
}

async fn begin(server: &ApiServer, path: &str) -> Response<Body> {
    let request = Request::get(path).body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let mut request = request;
    request.extensions_mut().insert(Identity::admin());
    server.serve(request).await
}

#[tokio::test(start_paused = true)]
async fn response_of_a_backend_has_the_requests_deadline_and_a_watch_ends_with_the_server() {
    let plane = plane().backend(endless_backend()).build();
    let server = plane.server().clone();
    let stop = CancellationToken::new();
    let acting = async {
        let started = tokio::time::Instant::now();
        let answer = begin(&server, &format!("{WIDGETS}?timeout=7s")).await;
        let broken = answer.into_body().collect().await.unwrap_err();
        assert_eq!(broken.to_string(), "the answer exceeds the deadline of its request");
        assert_eq!(started.elapsed().as_secs(), 7);
        let watch = begin(&server, &format!("{WIDGETS}?watch=true&timeout=7s")).await;
        let mut watch = watch.into_body();
        assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "{\n");
        tokio::time::sleep(Duration::from_secs(600)).await;
        stop.cancel();
        assert!(watch.frame().await.is_none());
    };
    let (ended, ()) = tokio::join!(plane.run(stop.clone()), acting);
    ended.unwrap();
}

/// Switches to a protocol that echoes everything.
async fn echo(mut request: Request<RequestBody>) -> Response<Body> {
    let on_upgrade = request.extensions_mut().remove::<OnUpgrade>().unwrap();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::UPGRADE, "echo".parse().unwrap());
    response.headers_mut().insert(header::CONNECTION, "Upgrade".parse().unwrap());
    response.extensions_mut().insert(Conversation::new(async move {
        let (mut read, mut write) = tokio::io::split(TokioIo::new(on_upgrade.await.unwrap()));
        _ = tokio::io::copy(&mut read, &mut write).await;
    }));
    response
}

#[tokio::test]
async fn upgrade_passes_through_to_a_backend() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::builder("ex.io", "v1", Arc::new(echo)).build().unwrap();
    let plane = ControlPlane::builder().controllers(false).backend(backend).build();
    let serving = plane.serve(local().insecure_port(0)).await.unwrap();
    let url = serving.insecure_url().unwrap().to_owned();
    let stop = CancellationToken::new();
    let acting = async {
        let mut connection =
            TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
        let path = format!("{WIDGETS}/a/exec?command=x");
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(connection.read_u8().await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
        for word in [&b"hello"[..], b"again"] {
            connection.write_all(word).await.unwrap();
            let mut back = [0; 5];
            connection.read_exact(&mut back).await.unwrap();
            assert_eq!(back, word);
        }
        // The end of the server ends the connection.
        stop.cancel();
        assert_eq!(connection.read(&mut [0; 1]).await.unwrap_or(0), 0);
    };
    let (ended, ()) = tokio::join!(serving.run(stop.clone()), acting);
    ended.unwrap();
    drop(dir);
}
