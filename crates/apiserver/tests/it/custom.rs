//! Custom resources: differences from built-in kinds over HTTP.

use crate::harness::{Server, request};
use serde_json::{Value, json};

crate::cases! {
    a_definition_is_served_until_it_is_deleted
    a_definition_can_be_changed_once_discovery_has_its_resource
    lists_are_written_in_alphabetical_order
    paths_and_methods_are_refused_with_their_own_messages
    head_works
    strategic_merge_is_refused
    deleted_definition_ends_its_watches
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const FOOS: &str = "/apis/ex.io/v1/namespaces/default/foos";

pub(crate) fn foo(name: &str) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": name}, "spec": {"size": 1}})
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io",
            "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                }},
            }],
        },
    })
}

/// Defines a namespaced resource and waits until it is served.
pub(crate) async fn define(server: &Server) {
    let definition = definition();
    let mut watch = server.watch(&format!("{DEFINITIONS}?watch=true")).await;
    let created = server.post(DEFINITIONS, definition).await;
    assert_eq!(created.code, 201, "{}", created.text());
    loop {
        let event =
            watch.next().await.expect("the watch ended before the definition was established");
        let conditions =
            event["object"]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True") {
            return;
        }
    }
}

/// As test suites do that install definitions.
async fn a_definition_can_be_changed_once_discovery_has_its_resource(server: Server) {
    let path = format!("{DEFINITIONS}/foos.ex.io");
    // Large, so that the write of its status takes a moment.
    let mut definition = definition();
    let names = (0..4_000).map(|n| (format!("property-{n}"), json!({"type": "string"})));
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        names.collect::<serde_json::Map<_, _>>().into();
    for _ in 0..3 {
        assert_eq!(server.post(DEFINITIONS, &definition).await.code, 201);
        while server.get("/apis/ex.io/v1").await.code != 200 {
            tokio::task::yield_now().await;
        }
        let mut found = server.get(&path).await.json();
        assert!(found["status"]["conditions"].is_array(), "{found}");
        found["spec"]["names"]["shortNames"] = json!(["f"]);
        let updated = server.put(&path, found).await;
        assert_eq!(updated.code, 200, "{}", updated.text());
        server.delete(&path).await;
        while server.get(&path).await.code != 404 {
            tokio::task::yield_now().await;
        }
    }
}

async fn a_definition_is_served_until_it_is_deleted(server: Server) {
    assert_eq!(server.get("/apis/ex.io").await.code, 404);
    define(&server).await;
    assert_eq!(server.get("/apis/ex.io").await.json()["preferredVersion"]["version"], "v1");
    let resources = server.get("/apis/ex.io/v1").await.json();
    assert_eq!(
        resources["resources"][0]["verbs"],
        json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"])
    );
    // Aggregated discovery names the kind of custom resources in full.
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = server.accept("/apis", aggregated).await.json();
    let kind_of = |name: &str| {
        let items = groups["items"].as_array().unwrap();
        let group = items.iter().find(|item| item["metadata"]["name"] == name).unwrap();
        group["versions"][0]["resources"][0]["responseKind"].clone()
    };
    assert_eq!(kind_of("ex.io"), json!({"group": "ex.io", "version": "v1", "kind": "Foo"}));
    assert_eq!(kind_of("apps")["group"], "");
    // OpenAPI has a document of its version, not of its group.
    let index = server.get("/openapi/v3").await.json();
    assert!(index["paths"]["apis/ex.io/v1"].is_object() && index["paths"]["apis/apps"].is_object());
    assert!(index["paths"].get("apis/ex.io").is_none());
    assert_eq!(server.post(FOOS, foo("a")).await.code, 201);
    let mut watch = server.watch(&format!("{DEFINITIONS}?watch=true")).await;
    // The watch has its position once it has sent the initial events.
    assert_eq!(watch.event().await, ("ADDED".into(), "foos.ex.io".into()));
    assert_eq!(server.delete(&format!("{DEFINITIONS}/foos.ex.io")).await.code, 200);
    while watch.event().await.0 != "DELETED" {}
    // The catalog follows the store, at most a few turns behind.
    for _ in 0..1000 {
        if server.get("/apis/ex.io").await.text() == "404 page not found\n" {
            return;
        }
        // An answer in process may need no turn of another task.
        tokio::task::yield_now().await;
    }
    panic!("the definition is still served");
}

async fn lists_are_written_in_alphabetical_order(server: Server) {
    define(&server).await;
    server.post(FOOS, foo("a")).await;
    let text = server.get(FOOS).await.text();
    assert!(
        text.starts_with(r#"{"apiVersion":"ex.io/v1","items":[{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"#),
        "{text}"
    );
    assert!(
        text.contains(r#"],"kind":"FooList","metadata":{"continue":"","resourceVersion":""#),
        "{text}"
    );
}

async fn paths_and_methods_are_refused_with_their_own_messages(server: Server) {
    define(&server).await;
    // The name in the path of a create does not matter.
    assert_eq!(server.post(&format!("{FOOS}/a"), foo("a")).await.code, 201);
    assert_eq!(server.post(&format!("{FOOS}/a"), foo("b")).await.json()["metadata"]["name"], "b");
    let exists = server.post(&format!("{FOOS}/z"), foo("b")).await;
    exists.check_status(409, "AlreadyExists", r#"foos.ex.io "b" already exists"#);
    server.delete(&format!("{FOOS}/b")).await;
    let nameless = server.post(&format!("{FOOS}/c"), foo("")).await;
    assert_eq!(nameless.code, 422, "{}", nameless.text());
    let part = server.post(&format!("{FOOS}/a/other"), foo("a")).await;
    part.check_status(404, "NotFound", r#"foos.ex.io "a" not found"#);
    for path in ["/apis/ex.io/v1/namespaces//foos", "/apis/ex.io/v1/foos/a"] {
        assert_eq!(server.post(path, foo("d")).await.text(), "404 page not found\n", "{path}");
    }
    let options = server.send(request("OPTIONS", FOOS, "")).await;
    let text = r#" is not supported on resources of kind "foos.ex.io""#;
    let status = options.check_status(405, "MethodNotAllowed", text);
    assert_eq!(status["details"], json!({"group": "ex.io", "kind": "foos"}));
    server.put(FOOS, foo("a")).await.check_status(400, "BadRequest", "name must be provided");
    let merge = "application/merge-patch+json";
    let unnamed = server.patch(FOOS, merge, "{}").await;
    unnamed.check_status(400, "BadRequest", "name must be provided");
    assert_eq!(server.patch(FOOS, "text/plain", "{}").await.code, 415);
    // Over all namespaces they are only read.
    for method in ["PUT", "PATCH", "OPTIONS", "FOO"] {
        let answer = server.send(request(method, "/apis/ex.io/v1/foos", "{}")).await;
        assert_eq!(answer.text(), "404 page not found\n", "{method}");
    }
    assert_eq!(server.get("/apis/ex.io/v1/namespaces//foos").await.code, 200);
    assert_eq!(server.get("/apis/ex.io/v1/namespaces//foos/a").await.code, 404);
    let status = server.get(&format!("{FOOS}/a/status")).await.check_status(
        404,
        "NotFound",
        r#"foos.ex.io "a" not found"#,
    );
    assert_eq!(status["details"], json!({"name": "a", "group": "ex.io", "kind": "foos"}));
    // What follows a subresource is ignored, but not empty segments.
    for path in ["x", "status/x", "x/y/z/"] {
        let answer = server.get(&format!("{FOOS}/a/{path}")).await;
        answer.check_status(404, "NotFound", r#"foos.ex.io "a" not found"#);
    }
    assert_eq!(server.get(&format!("{FOOS}/a//x")).await.text(), "404 page not found\n");
    for path in ["/apis/ex.io/v2", "/apis/ex.io/v1/bars", "/apis/ex.io/v1/foos/a"] {
        assert_eq!(server.get(path).await.text(), "404 page not found\n", "{path}");
    }
    assert_eq!(server.post("/apis/ex.io/v1/foos", foo("b")).await.text(), "404 page not found\n");
    let protobuf = "application/vnd.kubernetes.protobuf";
    assert_eq!(server.accept(FOOS, protobuf).await.code, 406);
    assert_eq!(server.accept(FOOS, "application/*").await.code, 200);
}

async fn head_works(server: Server) {
    define(&server).await;
    server.post(FOOS, foo("a")).await;
    let head = server.send(request("HEAD", &format!("{FOOS}/a"), "")).await;
    assert_eq!((head.code, head.body.len()), (200, 0));
    assert_eq!(server.send(request("HEAD", &format!("{FOOS}/b"), "")).await.code, 404);
}

async fn strategic_merge_is_refused(server: Server) {
    define(&server).await;
    server.post(FOOS, foo("a")).await;
    let patch = |ty: &'static str| {
        let server = &server;
        async move { server.patch(&format!("{FOOS}/a"), ty, json!({"spec": {"size": 2}})).await }
    };
    patch("application/strategic-merge-patch+json").await.check_status(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    );
    assert_eq!(patch("application/merge-patch+json").await.json()["spec"]["size"], 2);
}

async fn deleted_definition_ends_its_watches(server: Server) {
    define(&server).await;
    server.post(FOOS, foo("a")).await;
    let mut watch = server.watch(&format!("{FOOS}?watch=true")).await;
    assert_eq!(watch.event().await, ("ADDED".into(), "a".into()));
    server.delete(&format!("{DEFINITIONS}/foos.ex.io")).await;
    assert_eq!(watch.event().await, ("DELETED".into(), "a".into()));
    assert_eq!(watch.next().await, None);
}
