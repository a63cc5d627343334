//! A group version that a backend serves, as clients see it over HTTPS.

use crate::serve::{Served, local};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::{BodyDataStream, BodyExt as _};
use kube_client::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{
    Attributes, Backend, Body, Credentials, Handler, Identity, RequestBody, Verb,
};
use setpoint::object::{ApiError, GroupVersion};
use setpoint::registry::{Authorizer, Decision};
use std::sync::Arc;
use tokio::sync::watch;

// ---- the backend

/// Stores widgets in memory. Its resource version is the number of widgets.
#[derive(Default)]
pub(crate) struct Widgets(watch::Sender<Vec<Value>>);

impl Handler for Widgets {
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
        let widgets = self.0.clone();
        async move {
            let attributes = request.extensions().get::<Arc<Attributes>>().unwrap().clone();
            let json = |value: Value| Response::new(Body::once(value.to_string()));
            match &attributes.verb {
                Verb::Create => {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let mut widget: Value = serde_json::from_slice(&body).unwrap();
                    widget["metadata"]["namespace"] = attributes.namespace().into();
                    widgets.send_modify(|all| {
                        widget["metadata"]["resourceVersion"] = (all.len() + 1).to_string().into();
                        all.push(widget.clone());
                    });
                    json(widget)
                }
                Verb::List => json(json!({"kind": "WidgetList", "apiVersion": "ex.io/v1",
                    "metadata": {"resourceVersion": widgets.borrow().len().to_string()}, "items": *widgets.borrow()})),
                Verb::Watch => {
                    let events = stream::unfold((widgets.subscribe(), 0), |(mut all, n)| async move {
                        let next = all.wait_for(|all| all.len() > n).await.ok()?[n].clone();
                        let event = json!({"type": "ADDED", "object": next});
                        Some((format!("{event}\n").into(), (all, n + 1)))
                    });
                    Response::new(Body::stream(events))
                }
                _ => {
                    let named = |widget: &&Value| widget["metadata"]["name"] == attributes.name();
                    let found = widgets.borrow().iter().find(named).cloned();
                    let mut response = json(found.clone().unwrap_or_default());
                    *response.status_mut() = if found.is_some() { 200 } else { 404 }.try_into().unwrap();
                    response
                }
            }
        }
        .boxed()
    }
}

pub(crate) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The backend's description.
pub(crate) fn widgets() -> Backend {
    let verbs = ["create", "get", "list", "watch"];
    let resources = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ex.io/v1", "resources": [
        {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": verbs, "shortNames": ["wi"]},
        {"name": "widgets/status", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": ["get"]}]});
    let path = "/apis/ex.io/v1/widgets";
    let v3 = json!({"openapi": "3.0.0", "info": {}, "paths": {path: {"get": {"responses": {}}}}});
    let reference = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
    let answer = json!({"200": {"description": "OK", "schema": reference("io.ex.v1.Widget")}});
    let v2 = json!({"swagger": "2.0", "info": {}, "paths": {
            path: {"get": {"operationId": "listWidgets", "responses": answer}},
            "/apis/other.io/v1/things": {"get": {"responses": {}}}},
        "definitions": {
            "io.ex.v1.Widget": {"type": "object", "properties": {"metadata": reference(META)}},
            META: {"type": "object", "description": "not as everybody has it"}}});
    Backend::builder("ex.io", "v1", Arc::new(Widgets::default()))
        .resources(resources.to_string())
        .open_api_v3(v3.to_string())
        .open_api_v2(v2.to_string())
        .build()
        .unwrap()
}

pub(crate) fn ex_io_v1() -> GroupVersion {
    GroupVersion::new("ex.io", "v1")
}

// ---- clients

/// Sends a request; returns the code and the body.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    accept: &str,
    body: &Value,
) -> (u16, String) {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let response = client.send(request.body(body.into()).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

pub(crate) async fn get(client: &Client, path: &str) -> (u16, String) {
    send(client, "GET", path, "application/json", &Value::Null).await
}

pub(crate) async fn get_json(client: &Client, path: &str, accept: &str) -> Value {
    let (code, body) = send(client, "GET", path, accept, &Value::Null).await;
    assert_eq!(code, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(crate) const WIDGETS: &str = "/apis/ex.io/v1/namespaces/default/widgets";

pub(crate) fn widget(name: &str) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": name}})
}

/// The entry of the backend's group in aggregated discovery.
pub(crate) async fn discovered(client: &Client, group: &str) -> Value {
    let groups = get_json(client, "/apis", AGGREGATED).await;
    let named = |item: &&Value| item["metadata"]["name"] == group;
    groups["items"].as_array().unwrap().iter().find(named).cloned().unwrap_or_default()
}

/// Serves a control plane over HTTPS while `act` uses a client, and another one of `bob`, who has a
/// token.
pub(crate) async fn over_https(
    builder: setpoint::ControlPlaneBuilder,
    act: impl AsyncFnOnce(&setpoint::apiserver::Backends, Client, Client),
) {
    let dir = tempfile::tempdir().unwrap();
    let options = local().credentials(Credentials::none().token("bobs", Identity::new("bob", [])));
    let plane = builder.build();
    let backends = plane.server().backends().clone();
    let served = Served::start(dir.path(), "s", plane, options).await;
    // No retries: a 503 is a response too.
    let client = |mut config: Config| {
        config.default_retry = false;
        Client::try_from(config).unwrap()
    };
    let admin = client(served.config().await);
    let bob = client(served.config_of("{token: bobs}").await);
    act(&backends, admin, bob).await;
    served.stop().await;
}

#[tokio::test]
async fn resource_of_a_backend_is_listed_described_read_and_watched() {
    let builder = ControlPlane::builder().controllers(false).backend(widgets());
    over_https(builder, async |_, client, _| {
        // Both forms of discovery.
        let groups = get_json(&client, "/apis", JSON).await;
        let names: Vec<_> =
            groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
        assert_eq!((names.first(), names.last()), (Some(&&json!("apiregistration.k8s.io")), Some(&&json!("ex.io"))));
        let group = get_json(&client, "/apis/ex.io", JSON).await;
        assert_eq!(group["preferredVersion"]["groupVersion"], "ex.io/v1");
        let resources = get_json(&client, "/apis/ex.io/v1", JSON).await;
        assert_eq!(resources["resources"][0]["shortNames"], json!(["wi"]));
        let listed = discovered(&client, "ex.io").await;
        let kind = json!({"group": "", "version": "", "kind": "Widget"});
        let resource = json!({"resource": "widgets", "responseKind": kind, "scope": "Namespaced",
            "singularResource": "widget", "shortNames": ["wi"], "verbs": ["create", "get", "list", "watch"],
            "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}]});
        let version = json!({"version": "v1", "resources": [resource], "freshness": "Current"});
        assert_eq!(listed["versions"], json!([version]));
        let roots = get_json(&client, "/", JSON).await;
        assert!(roots["paths"].as_array().unwrap().contains(&json!("/apis/ex.io/v1")));

        // OpenAPI v3: the document is in the index, and is served with any hash.
        let index = get_json(&client, "/openapi/v3", JSON).await;
        let url = index["paths"]["apis/ex.io/v1"]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with("/openapi/v3/apis/ex.io/v1?hash="), "{url}");
        for path in [url, "/openapi/v3/apis/ex.io/v1?hash=OLD"] {
            let document = get_json(&client, path, JSON).await;
            assert!(document["paths"]["/apis/ex.io/v1/widgets"].is_object());
        }
        // v2: paths of the group version, and definitions under separate names.
        let v2 = get_json(&client, "/openapi/v2", JSON).await;
        assert!(v2["paths"]["/apis/ex.io/v1/widgets"].is_object());
        assert!(v2["paths"]["/apis/other.io/v1/things"].is_null());
        let renamed = format!("{META}_v2");
        assert_eq!(v2["definitions"][&renamed]["description"], "not as everybody has it");
        assert!(v2["definitions"][META]["properties"]["labels"].is_object());
        let reference = &v2["definitions"]["io.ex.v1.Widget"]["properties"]["metadata"]["$ref"];
        assert_eq!(*reference, format!("#/definitions/{renamed}"));

        // The resource itself. The watch starts before the object is created.
        let watch = Request::get(format!("{WIDGETS}?watch=true")).body(Vec::new().into()).unwrap();
        let watch = client.send(watch).await.unwrap();
        let mut events = BodyDataStream::new(watch.into_body());
        let (code, made) = send(&client, "POST", WIDGETS, JSON, &widget("a")).await;
        assert_eq!(code, 200, "{made}");
        let event = events.next().await.unwrap().unwrap();
        let event: Value = serde_json::from_slice(&event).unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
        let one = get_json(&client, &format!("{WIDGETS}/a"), JSON).await;
        assert_eq!(one["metadata"]["namespace"], "default");
        let list = get_json(&client, "/apis/ex.io/v1/widgets", JSON).await;
        assert_eq!(list["items"], json!([one]));
        assert_eq!(get(&client, &format!("{WIDGETS}/b")).await.0, 404);
    })
    .await;
}

/// Denies everything and records the requests.
#[derive(Debug, Default)]
pub(crate) struct Nothing(Mutex<Vec<String>>);
impl Authorizer for Nothing {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let sub = request.subresource().map_or("-", |sub| sub.as_str());
        let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let parts = [
            request.group(),
            request.version(),
            request.resource(),
            request.namespace(),
            request.name(),
        ];
        let parts = parts.map(dash).join(" ");
        self.0.lock().push(format!("{} {parts} {sub}{}", request.verb, request.path()));
        async { Ok(Decision::NoOpinion(String::new())) }.boxed()
    }
}

#[tokio::test]
async fn authorizer_receives_the_resource_of_a_backend() {
    let nothing = Arc::new(Nothing::default());
    let builder = ControlPlane::builder().controllers(false).backend(widgets());
    over_https(builder.authorizer(nothing.clone()), async |backends, _, bob| {
        nothing.0.lock().clear();
        let refused = send(&bob, "GET", &format!("{WIDGETS}/a/status"), JSON, &Value::Null).await;
        let status: Value = serde_json::from_str(&refused.1).unwrap();
        let message = r#"widgets.ex.io "a" is forbidden: User "bob" cannot get resource "widgets/status" in API group "ex.io" in the namespace "default""#;
        assert_eq!((refused.0, &status["message"]), (403, &json!(message)));
        // Unauthorized users do not learn that the backend is unavailable.
        backends.set_available(&ex_io_v1(), false);
        for (method, path) in [
            ("GET", "/apis/ex.io/v1/widgets?watch=1&fieldSelector=metadata.name=a"),
            ("GET", "/apis/ex.io/v1/watch/namespaces/default/widgets"),
            ("POST", WIDGETS),
            ("DELETE", WIDGETS),
            ("GET", "/apis/ex.io/v1/namespaces/default/widgets/a/proxy/x/y"),
            ("GET", "/apis/ex.io/v1"),
        ] {
            assert_eq!(send(&bob, method, path, JSON, &Value::Null).await.0, 403, "{method} {path}");
        }
    })
    .await;
    assert_eq!(
        *nothing.0.lock(),
        [
            "get ex.io v1 widgets default a status",
            "watch ex.io v1 widgets - a -",
            "watch ex.io v1 widgets default - -",
            "create ex.io v1 widgets default - -",
            "deletecollection ex.io v1 widgets default - -",
            "get ex.io v1 widgets default a proxy",
            "get - - - - - -/apis/ex.io/v1",
        ]
    );
}

#[tokio::test]
async fn backend_becomes_unavailable_returns_and_is_removed_at_run_time() {
    over_https(ControlPlane::builder().controllers(false), async |backends, client, _| {
        assert_eq!(get(&client, "/apis/ex.io").await.0, 404);
        backends.put(widgets()).unwrap();
        assert_eq!(get(&client, WIDGETS).await.0, 200);
        let v3 = get(&client, "/openapi/v3").await.1;

        assert!(backends.set_available(&ex_io_v1(), false));
        let away = (503, "service unavailable\n".to_owned());
        for path in [WIDGETS, "/apis/ex.io/v1", "/apis/ex.io/v1/x/y/z", "/openapi/v3/apis/ex.io/v1"]
        {
            assert_eq!(get(&client, path).await, away, "{path}");
        }
        assert_eq!(get(&client, "/apis/ex.io").await.0, 200);
        assert_eq!(get(&client, "/openapi/v3").await.1, v3);
        let stale = json!([{"version": "v1", "freshness": "Stale"}]);
        assert_eq!(discovered(&client, "ex.io").await["versions"], stale);

        assert!(backends.set_available(&ex_io_v1(), true));
        assert_eq!(get(&client, WIDGETS).await.0, 200);
        assert_eq!(discovered(&client, "ex.io").await["versions"][0]["freshness"], "Current");

        assert!(backends.remove(&ex_io_v1()));
        assert!(!backends.remove(&ex_io_v1()));
        for path in [WIDGETS, "/apis/ex.io/v1", "/apis/ex.io", "/openapi/v3/apis/ex.io/v1"] {
            assert_eq!(get(&client, path).await.0, 404, "{path}");
        }
        assert_eq!(discovered(&client, "ex.io").await, Value::Null);
        let v2 = get_json(&client, "/openapi/v2", JSON).await;
        assert!(v2["definitions"]["io.ex.v1.Widget"].is_null());
    })
    .await;
}
