//! Bodies and answers in CBOR, of a server that has it. Texts are those of a kube-apiserver 1.36
//! with the feature gate `CBORServingAndStorage`.

use crate::custom::{FOOS, define, foo};
use crate::harness::{Answer, Server, config_map};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use setpoint_schema::cbor::{MAGIC, object};
use setpoint_schema::decode::cbor as decode;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CBOR: &str = "application/cbor";
const APPLY: &str = "application/apply-patch+cbor";
/// What errors say about a body that is no ConfigMap.
const UNREADABLE: &str = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ";
/// What they say about one whose type cannot be read.
const UNTYPED: &str = "the object provided is unrecognized (must be of type ConfigMap): unable to determine group/version/kind: ";

/// JSON in CBOR.
fn encode(json: &Value) -> Vec<u8> {
    object(json.to_string().as_bytes()).unwrap()
}

/// Sends a body and accepts CBOR.
async fn send(server: &Server, method: &str, path: &str, media_type: &str, body: &[u8]) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("user-agent", "test/1.0")
        .header("content-type", media_type)
        .header("accept", "application/json;q=0.9,application/cbor;q=1")
        .body(Full::from(Bytes::copy_from_slice(body)))
        .unwrap();
    server.send(request).await
}

async fn post(server: &Server, path: &str, body: &Value) -> Answer {
    send(server, "POST", path, CBOR, &encode(body)).await
}

/// The tree of an answer in CBOR.
#[track_caller]
fn tree(answer: &Answer, code: u16) -> Value {
    assert_eq!((answer.code, answer.header("content-type")), (code, CBOR), "{}", answer.text());
    assert!(answer.body.starts_with(MAGIC));
    decode::object(&answer.body).unwrap()
}

#[track_caller]
fn check_status(answer: &Answer, code: u16, reason: &str, message: &str) {
    let status = tree(answer, code);
    let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
    assert_eq!((text("reason").as_str(), text("message").as_str()), (reason, message));
}

#[tokio::test(start_paused = true)]
async fn objects_and_lists_contain_the_same_as_their_json() {
    let server = Server::with_cbor().await;
    let created = tree(&post(&server, MAPS, &config_map("a", "1")).await, 201);
    let path = format!("{MAPS}/a");
    let json = server.get(&path).await.json();
    assert_eq!(created, json);
    assert_eq!(tree(&server.accept(&path, CBOR).await, 200), json);
    let mut changed = json;
    changed["data"]["k"] = json!("2");
    let updated = send(&server, "PUT", &path, CBOR, &encode(&changed)).await;
    assert_eq!(tree(&updated, 200)["data"], json!({"k": "2"}));
    // A patch in JSON is answered in CBOR.
    let merge = "application/merge-patch+json";
    let merged = send(&server, "PATCH", &path, merge, br#"{"data":{"l":"3"}}"#).await;
    assert_eq!(tree(&merged, 200)["data"], json!({"k": "2", "l": "3"}));
    post(&server, MAPS, &config_map("b", "1")).await;
    for query in ["", "?limit=1", "?labelSelector=none"] {
        let path = format!("{MAPS}{query}");
        let mut list = tree(&server.accept(&path, CBOR).await, 200);
        let mut json = server.get(&path).await.json();
        for list in [&mut list, &mut json] {
            list["metadata"]["continue"] = Value::Null;
        }
        assert_eq!(list, json, "{query}");
    }
    let deleted = send(&server, "DELETE", &path, CBOR, b"").await;
    assert_eq!(tree(&deleted, 200)["details"]["name"], "a");
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bytes_in_both_directions() {
    let server = Server::with_cbor().await;
    let head = b"\xd9\xd9\xf7\xa2\x48metadata\xa1\x44name\x41s\x44data\xa1\x41k".to_vec();
    let body = [&head[..], b"\xd6\x43\x00\xff!"].concat();
    let created = send(&server, "POST", SECRETS, CBOR, &body).await;
    assert_eq!(tree(&created, 201)["data"]["k"], "AP8h");
    assert!(
        created.body.windows(10).any(|part| part == b"\x44data\xa1\x41k\xd6\x43"[..10].as_ref())
    );
    let body = [&head[..], b"\x64aGk="].concat();
    check_status(
        &send(&server, "POST", SECRETS, CBOR, &body).await,
        400,
        "BadRequest",
        "Secret in version \"v1\" cannot be handled as a Secret: cbor: cannot unmarshal UTF-8 text string into Go struct field v1.Secret.data of type []uint8",
    );
}

#[tokio::test(start_paused = true)]
async fn watches_are_sequences_of_events() {
    let server = Server::with_cbor().await;
    for name in ["a", "b"] {
        server.post(MAPS, config_map(name, "1")).await;
    }
    let path = format!("{MAPS}?watch=true&resourceVersion=0&timeoutSeconds=1");
    for accept in [CBOR, "application/cbor;stream=watch"] {
        let answer = server.accept(&path, accept).await;
        assert_eq!(answer.header("content-type"), "application/cbor-seq");
        let start: &[u8] = b"\xd9\xd9\xf7\xa2\x44type\x45ADDED\x46object\xd9\xd9\xf7";
        let starts: Vec<usize> =
            (0..answer.body.len()).filter(|at| answer.body[*at..].starts_with(start)).collect();
        let ends = starts[1..].iter().copied().chain([answer.body.len()]);
        let names: Vec<Value> = starts
            .iter()
            .zip(ends)
            .map(|(start, end)| decode::object(&answer.body[*start..end]).unwrap())
            .map(|event| event["object"]["metadata"]["name"].clone())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }
    let partial = format!("{CBOR};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let answer = server.accept(&format!("{path}&fieldSelector=metadata.name%3Da"), &partial).await;
    let event = decode::object(&answer.body).unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    let gone = server.accept(&format!("{MAPS}?watch=true&resourceVersion=x"), CBOR).await;
    assert_eq!(gone.header("content-type"), CBOR);
}

#[tokio::test(start_paused = true)]
async fn metadata_has_a_form_and_tables_have_none() {
    let server = Server::with_cbor().await;
    define(&server).await;
    assert_eq!(tree(&post(&server, FOOS, &foo("a")).await, 201)["spec"]["size"], 1);
    server.post(MAPS, config_map("a", "1")).await;
    let only = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor";
    for path in [MAPS, FOOS] {
        let accept = |kind: &str| format!("{CBOR};as={kind};g=meta.k8s.io;v=v1");
        let list = tree(&server.accept(path, &accept("PartialObjectMetadataList")).await, 200);
        assert_eq!(list["kind"], "PartialObjectMetadataList");
        assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
        assert_eq!(list["items"][0]["metadata"]["name"], "a");
        assert_eq!(list["items"][0].get("data"), None);
        let table = server.accept(path, &accept("Table")).await;
        table.check_status(406, "NotAcceptable", only);
        assert_eq!(table.header("content-type"), "application/json");
    }
    let list = tree(&server.accept(FOOS, CBOR).await, 200);
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("FooList"), &json!("Foo")));
}

#[tokio::test(start_paused = true)]
async fn apply_is_the_only_patch_in_cbor() {
    let server = Server::with_cbor().await;
    let path = format!("{MAPS}/a");
    let by = format!("{path}?fieldManager=me");
    let body = encode(&config_map("a", "1"));
    let created = tree(&send(&server, "PATCH", &by, APPLY, &body).await, 201);
    assert_eq!(created["metadata"]["managedFields"][0]["operation"], "Apply");
    let again = send(&server, "PATCH", &by, APPLY, &encode(&config_map("a", "2"))).await;
    assert_eq!(tree(&again, 200)["data"]["k"], "2");
    check_status(
        &send(&server, "PATCH", &path, APPLY, &body).await,
        422,
        "Invalid",
        r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
    );
    for (body, message) in [
        (&b"\xa1"[..], "error decoding YAML: unexpected EOF"),
        (b"", "error decoding YAML: EOF"),
        (b"{}", "error decoding YAML: unexpected EOF"),
        (
            b"\x81\x01",
            "error decoding YAML: cbor: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            b"\xa2\x41a\x01\x41a\x02",
            r#"error decoding YAML: cbor: found duplicate map key "a" at map element index 1"#,
        ),
        (b"\xf6", "invalid object type: /, Kind="),
    ] {
        let answer = send(&server, "PATCH", &by, APPLY, body).await;
        check_status(&answer, 400, "BadRequest", message);
    }
    // The answer of a route.
    for kind in ["merge-patch", "json-patch", "strategic-merge-patch"] {
        let answer =
            send(&server, "PATCH", &path, &format!("application/{kind}+cbor"), &body).await;
        answer.check_status(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    }
    define(&server).await;
    let path = format!("{FOOS}/a");
    let (by, custom) = (format!("{path}?fieldManager=me"), encode(&foo("a")));
    let applied = send(&server, "PATCH", &by, APPLY, &custom).await;
    assert_eq!(tree(&applied, 201)["spec"], json!({"size": 1}));
    check_status(
        &send(&server, "PATCH", &path, "application/merge-patch+cbor", &body).await,
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor",
    );
}

#[tokio::test(start_paused = true)]
async fn options_of_a_delete_may_be_in_cbor() {
    let server = Server::with_cbor().await;
    server.post(MAPS, config_map("a", "1")).await;
    let path = format!("{MAPS}/a");
    let delete = async |body: &[u8]| send(&server, "DELETE", &path, CBOR, body).await;
    for (body, message) in [
        (&b"\xa1"[..], "unable to determine group/version/kind: unexpected EOF"),
        (
            b"\x80",
            "unable to determine group/version/kind: cbor: cannot unmarshal array into Go value of type v1.TypeMeta (cannot decode CBOR array to struct without toarray option)",
        ),
        (
            b"\xa1\x52gracePeriodSeconds\x41x",
            "cbor: cannot unmarshal byte string into Go struct field v1.DeleteOptions.gracePeriodSeconds of type int64",
        ),
    ] {
        check_status(&delete(body).await, 400, "BadRequest", message);
    }
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], "zz": 1});
    assert_eq!(tree(&delete(&encode(&options)).await, 200)["status"], "Success");
    assert_eq!(server.get(&path).await.code, 200);
    let options = json!({"preconditions": {"uid": "other"}});
    assert_eq!(tree(&delete(&encode(&options)).await, 409)["reason"], "Conflict");
    assert_eq!(tree(&delete(&encode(&json!({}))).await, 200)["status"], "Success");
    assert_eq!(server.get(&path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_no_object_of_the_kind_are_refused() {
    let server = Server::with_cbor().await;
    for (body, message) in [
        (&b""[..], format!("{UNTYPED}EOF (<empty>)")),
        (b"\xd9\xd9\xf7\xa1", format!("{UNTYPED}unexpected EOF (d9d9f7a1)")),
        (
            br#"{"apiVersion":"v1","kind":"ConfigMap"}"#,
            format!(r#"{UNTYPED}unexpected EOF ({{"apiVersion":"v1","kind":"Con ...)"#),
        ),
        (b"\xa0\x00", format!("{UNTYPED}cbor: 1 bytes of extraneous data starting at index 1 (a000)")),
        (
            b"\x82\x01\x02",
            format!("{UNTYPED}cbor: cannot unmarshal array into Go value of type v1.TypeMeta (cannot decode CBOR array to struct without toarray option) (820102)"),
        ),
        (
            b"\xa1\x44kind\x01",
            format!("{UNTYPED}cbor: cannot unmarshal positive integer into Go struct field v1.TypeMeta.kind of type string (a1446b696e6401)"),
        ),
        (
            b"\xa1\x44data\xa1\x41a\x01",
            format!("{UNREADABLE}cbor: cannot unmarshal positive integer into Go struct field v1.ConfigMap.data of type string"),
        ),
        (
            b"\xa1\x44data\xa2\x41a\x41b\x41a\x41c",
            format!("{UNREADABLE}cbor: found duplicate map key \"a\" at map element index 1"),
        ),
        (
            b"\xa1\x44kind\x43Foo",
            "Foo in version \"v1\" cannot be handled as a ConfigMap: no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"".to_owned(),
        ),
        (
            b"\xa1\x44kind\x46Secret",
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion".to_owned(),
        ),
    ] {
        let answer = send(&server, "POST", MAPS, CBOR, body).await;
        check_status(&answer, 400, "BadRequest", &message);
    }
    let deep = [b"\x81".repeat(100_000), vec![0]].concat();
    let answer = send(&server, "POST", MAPS, CBOR, &deep).await;
    let message = tree(&answer, 400)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("cbor: exceeded max nested level 128"), "{message}");
    let large = vec![0; setpoint_apiserver::BODY_BYTES_MAX + 1];
    assert_eq!(send(&server, "POST", MAPS, CBOR, &large).await.code, 413);
    // A type is enough, if it is `null`; then a name is missing.
    assert_eq!(tree(&send(&server, "POST", MAPS, CBOR, b"\xf6").await, 422)["reason"], "Invalid");
}

#[tokio::test(start_paused = true)]
async fn of_unknown_fields_the_index_of_the_first_is_reported() {
    let server = Server::with_cbor().await;
    let mut body = config_map("a", "1");
    body["zz"] = json!(1);
    // Members stand in the order of their names.
    let sentence = "cbor: found unknown field at map element index 4";
    let path = |validation: &str| format!("{MAPS}?dryRun=All&fieldValidation={validation}");
    check_status(
        &post(&server, &path("Strict"), &body).await,
        400,
        "BadRequest",
        &format!("{UNREADABLE}strict decoding error: {sentence}"),
    );
    let warned = post(&server, &path("Warn"), &body).await;
    assert_eq!(warned.header("warning"), format!("299 - \"{sentence}\""));
    assert_eq!(tree(&warned, 201).get("zz"), None);
    assert_eq!(post(&server, &path("Ignore"), &body).await.header("warning"), "");
}

#[tokio::test(start_paused = true)]
async fn custom_resources_say_what_they_are_and_report_no_unknown_field() {
    let server = Server::with_cbor().await;
    define(&server).await;
    let mut body = foo("a");
    body["spec"]["zz"] = json!(1);
    let strict = post(&server, &format!("{FOOS}?fieldValidation=Strict"), &body).await;
    assert_eq!(tree(&strict, 201)["spec"], json!({"size": 1}));
    for (body, message) in [
        (
            &b"\xd9\xd9\xf7\xa1\x4aapiVersion\x48ex.io/v1"[..],
            "the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in '55799({'apiVersion': 'ex.io/v1'})' (d9d9f7a14a61706956657273696f6e4865782e696f2f7631)",
        ),
        (
            b"\xa1\x44kind\x43Foo",
            "Foo in version \"\" cannot be handled as a Foo: Object 'apiVersion' is missing in '{'kind': 'Foo'}'",
        ),
        (
            b"\xa3\x4aapiVersion\x48ex.io/v1\x44kind\x43Foo\x44spec\xa1\x44size\xf7",
            "Foo in version \"v1\" cannot be handled as a Foo: cbor: data item of cbor type primitives is not accepted by protocol: simple value 23 is not recognized",
        ),
        (
            b"\xa1",
            "the object provided is unrecognized (must be of type Foo): unable to determine group/version/kind: unexpected EOF (a1)",
        ),
    ] {
        check_status(&send(&server, "POST", FOOS, CBOR, body).await, 400, "BadRequest", message);
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_and_what_precedes_a_resource_have_little_cbor() {
    let server = Server::with_cbor().await;
    let resources = tree(&server.accept("/apis/apps/v1", CBOR).await, 200);
    assert_eq!(resources, server.get("/apis/apps/v1").await.json());
    for path in ["/api", "/apis", "/apis/apps", "/version"] {
        let refused = server.accept(path, CBOR).await;
        assert_eq!((refused.code, refused.header("content-type")), (406, "application/json"));
    }
    // Failures of a resource are in CBOR, those of routes and of all requests are not.
    check_status(
        &server.accept(&format!("{MAPS}/a"), CBOR).await,
        404,
        "NotFound",
        "configmaps \"a\" not found",
    );
    for (method, path, code) in [("GET", "/api/v1/foos", 404), ("PUT", MAPS, 405)] {
        let answer = send(&server, method, path, CBOR, b"").await;
        assert_eq!((answer.code, answer.header("content-type")), (code, "application/json"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_documents_of_built_in_kinds_name_cbor_and_those_of_custom_ones_do_not() {
    let server = Server::with_cbor().await;
    define(&server).await;
    let objects =
        "application/json application/yaml application/vnd.kubernetes.protobuf application/cbor";
    let streams = "application/json;stream=watch application/vnd.kubernetes.protobuf;stream=watch application/cbor-seq";
    let patches = "application/json-patch+json application/merge-patch+json application/strategic-merge-patch+json application/apply-patch+yaml application/apply-patch+cbor";
    let swagger = server.get("/openapi/v2").await.json();
    let of = |path: &str, method: &str, member: &str| -> String {
        let types = swagger["paths"][path][method][member].as_array().unwrap();
        types.iter().map(|ty| ty.as_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    let maps = "/api/v1/namespaces/{namespace}/configmaps";
    let map = &format!("{maps}/{{name}}");
    assert_eq!(of(map, "get", "produces"), objects);
    assert_eq!(of(map, "delete", "produces"), objects);
    assert_eq!(of(maps, "post", "consumes"), "*/*");
    assert_eq!(of(maps, "get", "produces"), format!("{objects} {streams}"));
    assert_eq!(of(map, "patch", "consumes"), patches);
    let proxy = "/api/v1/nodes/{name}/proxy";
    assert_eq!(of(proxy, "get", "produces"), "*/*");
    let foos =
        swagger["paths"].as_object().unwrap().iter().filter(|(path, _)| path.contains("foos"));
    let foos: Vec<_> = foos.map(|(_, item)| item.to_string()).collect();
    assert!(!foos.is_empty() && !foos.concat().contains("cbor"));

    let core = server.get("/openapi/v3/api/v1").await;
    let types = |path: &str, pointer: &str| -> Vec<String> {
        let content = core.json()["paths"][path].pointer(pointer).cloned().unwrap();
        content.as_object().unwrap().keys().filter(|ty| ty.contains("cbor")).cloned().collect()
    };
    assert_eq!(types(map, "/get/responses/200/content"), [CBOR]);
    assert_eq!(types(maps, "/get/responses/200/content"), [CBOR, "application/cbor-seq"]);
    assert_eq!(types(map, "/patch/requestBody/content"), [APPLY]);
    // The documents of a server without it have other names.
    let plain = Server::in_process().await.get("/openapi/v3/api/v1").await;
    assert_ne!(plain.header("etag"), core.header("etag"));
    assert!(!plain.text().contains("cbor"));
}
