//! Create, read, update, patch and delete.

use crate::harness::{Server, config_map, request};
use serde_json::json;

crate::cases! {
    an_object_round_trips
    list_items_of_built_in_kinds_have_no_type
    list_comes_in_pages
    stale_write_is_a_conflict
    the_patch_type_is_the_content_type
    cbor_is_not_a_known_media_type
    apply_creates_and_owns
    delete_answers_a_status_or_the_object
    collection_is_deleted_and_listed
    bodies_are_limited
    warnings_come_as_headers
    deprecated_kinds_warn
    dry_run_leaves_nothing
    yaml_bodies_and_answers_work
    protobuf_bodies_are_decoded
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn an_object_round_trips(server: Server) {
    let created = server.post(MAPS, config_map("a", "1")).await;
    assert_eq!(created.code, 201, "{}", created.text());
    assert!(created.text().ends_with("}\n"));
    let created = created.json();
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(created["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "test");
    let read = server.get(&format!("{MAPS}/a")).await;
    assert_eq!((read.code, read.json()), (200, created.clone()));
    let mut changed = created.clone();
    changed["data"]["k"] = "2".into();
    let updated = server.put(&format!("{MAPS}/a"), &changed).await;
    assert_eq!(updated.code, 200, "{}", updated.text());
    assert_ne!(
        updated.json()["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    server.post(MAPS, config_map("a", "1")).await.check_status(
        409,
        "AlreadyExists",
        r#"configmaps "a" already exists"#,
    );
    server.get(&format!("{MAPS}/b")).await.check_status(
        404,
        "NotFound",
        r#"configmaps "b" not found"#,
    );
}

async fn list_items_of_built_in_kinds_have_no_type(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    server.post(MAPS, config_map("b", "2")).await;
    let answer = server.get(MAPS).await;
    assert!(answer.text().starts_with(r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"#));
    let list = answer.json();
    let names: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(list["items"][0].get("kind").is_none() && list["items"][0].get("apiVersion").is_none());
    assert_eq!(list["items"][1]["data"]["k"], "2");
    let empty = server.get("/api/v1/namespaces/nope/configmaps").await;
    assert_eq!((empty.code, &empty.json()["items"]), (200, &json!([])));
    let everywhere = server.get("/api/v1/configmaps?fieldSelector=metadata.name%3Db").await.json();
    assert_eq!(everywhere["items"].as_array().unwrap().len(), 1);
}

async fn list_comes_in_pages(server: Server) {
    for name in ["a", "b", "c"] {
        server.post(MAPS, config_map(name, "1")).await;
    }
    let first = server.get(&format!("{MAPS}?limit=2")).await.json();
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let last = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.json();
    assert_eq!(last["items"][0]["metadata"]["name"], "c");
    assert!(last["metadata"].get("continue").is_none());
    assert_eq!(last["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

async fn stale_write_is_a_conflict(server: Server) {
    let old = server.post(MAPS, config_map("a", "1")).await.json();
    let mut new = old.clone();
    new["data"]["k"] = "2".into();
    assert_eq!(server.put(&format!("{MAPS}/a"), &new).await.code, 200);
    new["data"]["k"] = "3".into();
    server.put(&format!("{MAPS}/a"), &new).await.check_status(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
    );
}

async fn the_patch_type_is_the_content_type(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let path = format!("{MAPS}/a");
    let merged = server
        .patch(&path, "application/merge-patch+json", json!({"data": {"k": null, "l": "2"}}))
        .await;
    assert_eq!(merged.json()["data"], json!({"l": "2"}));
    let patched = server
        .patch(
            &path,
            "application/json-patch+json",
            json!([{"op": "replace", "path": "/data/l", "value": "3"}]),
        )
        .await;
    assert_eq!(patched.json()["data"], json!({"l": "3"}));
    let strategic = server
        .patch(&path, "application/strategic-merge-patch+json", json!({"data": {"m": "4"}}))
        .await;
    assert_eq!(strategic.json()["data"], json!({"l": "3", "m": "4"}));
    server.patch(&path, "application/json", "{}").await.check_status(
        415,
        "UnsupportedMediaType",
        "415: Unsupported Media Type",
    );
}

async fn cbor_is_not_a_known_media_type(server: Server) {
    let mut post = request("POST", MAPS, "\u{a1}");
    post.headers_mut().insert("content-type", "application/cbor".parse().unwrap());
    server.send(post).await.check_status(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    );
    let path = format!("{MAPS}/a");
    server.patch(&path, "application/apply-patch+cbor", "a").await.check_status(
        415,
        "UnsupportedMediaType",
        "415: Unsupported Media Type",
    );
    // Routes say what they have.
    let watched = format!("{MAPS}?watch=true");
    let streams =
        ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    for (path, streams) in [
        (MAPS, streams),
        (&watched, streams),
        (&path, ""),
        ("/api", ""),
        ("/api/v1", ""),
        ("/apis/apps/v1", ""),
    ] {
        let text = format!(
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf{streams}"
        );
        let answer = server.accept(path, "application/cbor").await;
        answer.check_status(406, "NotAcceptable", &text);
    }
    for path in ["/apis", "/apis/apps"] {
        server.accept(path, "application/cbor").await.check_status(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        );
    }
    server.accept("/version", "application/cbor").await.check_status(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json",
    );
    // As client-go asks that prefers it.
    let list = server.accept(MAPS, "application/cbor,application/json").await;
    assert_eq!(list.json()["kind"], "ConfigMapList");
}

async fn apply_creates_and_owns(server: Server) {
    let path = format!("{MAPS}/a");
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: '1'\n";
    server.patch(&path, "application/apply-patch+yaml", body).await.check_status(
        422,
        "Invalid",
        r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
    );
    let by = |manager: &str| format!("{path}?fieldManager={manager}");
    let created = server.patch(&by("me"), "application/apply-patch+yaml", body).await;
    assert_eq!(created.code, 201, "{}", created.text());
    assert_eq!(created.json()["metadata"]["managedFields"][0]["operation"], "Apply");
    let again = server.patch(&by("me"), "application/apply-patch+yaml", body).await;
    assert_eq!(again.code, 200);
    assert_eq!(
        again.json()["metadata"]["resourceVersion"],
        created.json()["metadata"]["resourceVersion"]
    );
    let other = body.replace('1', "2").replace("v2", "v1");
    let conflict = server.patch(&by("you"), "application/apply-patch+yaml", other).await;
    assert_eq!(conflict.code, 409);
    assert_eq!(conflict.json()["details"]["causes"][0]["reason"], "FieldManagerConflict");
}

async fn delete_answers_a_status_or_the_object(server: Server) {
    let created = server.post(MAPS, config_map("a", "1")).await.json();
    let gone = server.delete(&format!("{MAPS}/a")).await;
    assert_eq!(
        gone.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]},
        })
    );
    let mut held = config_map("b", "1");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(MAPS, &held).await;
    let remains = server.delete(&format!("{MAPS}/b")).await;
    assert_eq!(remains.code, 200);
    assert_eq!(remains.json()["kind"], "ConfigMap");
    assert!(remains.json()["metadata"]["deletionTimestamp"].is_string());
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "x"}});
    let refused = server.send(request("DELETE", &format!("{MAPS}/b"), &body.to_string())).await;
    assert_eq!(refused.code, 409);
}

async fn collection_is_deleted_and_listed(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    server.post(MAPS, config_map("b", "1")).await;
    let deleted = server.delete(&format!("{MAPS}?fieldSelector=metadata.name!=b")).await.json();
    assert_eq!(deleted["kind"], "ConfigMapList");
    let list = server.get(MAPS).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

async fn bodies_are_limited(server: Server) {
    let body = "x".repeat(3 * 1024 * 1024 + 1);
    server.post(MAPS, body).await.check_status(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    );
}

async fn deprecated_kinds_warn(server: Server) {
    let endpoints = server.get("/api/v1/namespaces/default/endpoints").await;
    let warning =
        r#"299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice""#;
    assert_eq!((endpoints.code, endpoints.header("warning")), (200, warning));
    let statuses = server.get("/api/v1/componentstatuses").await;
    let warning = r#"299 - "v1 ComponentStatus is deprecated in v1.19+""#;
    assert_eq!((statuses.code, statuses.header("warning")), (200, warning));
}

async fn warnings_come_as_headers(server: Server) {
    let mut map = config_map("a", "1");
    map["foo"] = "bar".into();
    let answer = server.post(MAPS, &map).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    assert_eq!(answer.header("warning"), r#"299 - "unknown field \"foo\"""#);
    let strict = server.post(&format!("{MAPS}?fieldValidation=Strict"), &map).await;
    strict.check_status(
        400,
        "BadRequest",
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo""#,
    );
    // Unknown and duplicate fields together, in document order.
    let text =
        r#"{"zz":1,"metadata":{"name":"b","yy":{"a":1,"a":2}},"data":{"k":"1","k":"2"},"aa":1}"#;
    let strict = server.post(&format!("{MAPS}?fieldValidation=Strict"), text.to_owned()).await;
    strict.check_status(
        400,
        "BadRequest",
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "zz", unknown field "metadata.yy", duplicate field "data.k", unknown field "aa""#,
    );
}

async fn dry_run_leaves_nothing(server: Server) {
    let answer = server.post(&format!("{MAPS}?dryRun=All"), config_map("a", "1")).await;
    assert_eq!(answer.code, 201);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 404);
}

async fn yaml_bodies_and_answers_work(server: Server) {
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: 'yes'\n";
    let mut post = request("POST", MAPS, body);
    post.headers_mut().insert("content-type", "application/yaml".parse().unwrap());
    let created = server.send(post).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let read = server.accept(&format!("{MAPS}/a"), "application/yaml").await;
    assert_eq!(read.header("content-type"), "application/yaml");
    assert!(
        read.text().contains("\n  k: \"yes\"\n") || read.text().contains("\n  k: 'yes'\n"),
        "{}",
        read.text()
    );
}

async fn protobuf_bodies_are_decoded(server: Server) {
    // The envelope (magic, type, object), then a ConfigMap: metadata with a name, one entry of
    // data.
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0f\x0a\x03\x0a\x01a\x12\x08\x0a\x01k\x12\x03yes";
    let protobuf = "application/vnd.kubernetes.protobuf";
    let mut post = request("POST", MAPS, std::str::from_utf8(body).unwrap());
    post.headers_mut().insert("content-type", protobuf.parse().unwrap());
    post.headers_mut().insert("accept", format!("{protobuf},application/json").parse().unwrap());
    let created = server.send(post).await;
    assert_eq!(created.code, 201, "{}", created.text());
    assert_eq!(created.header("content-type"), protobuf);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.json()["data"], json!({"k": "yes"}));
}
