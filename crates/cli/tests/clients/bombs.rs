//! Small requests that try to become large ones, and clients that disconnect: answered in time,
//! within bounded memory, without loss.

use crate::raw::{Answer, connect, get, send};
use crate::server::{PATIENCE, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::Instant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Maximum memory growth of the server for one request, in KiB: a few times its body.
const GROWTH_KIB_MAX: u64 = 128 * 1024;

fn post(server: &Server, path: &str, content_type: &str, body: &str) -> Answer {
    send(server, "POST", path, content_type, body.as_bytes())
}

fn patch(server: &Server, content_type: &str, body: &str) -> Answer {
    send(server, "PATCH", &format!("{MAPS}/cm?fieldManager=t"), content_type, body.as_bytes())
}

#[track_caller]
fn assert_unharmed(server: &Server, before: u64) {
    assert_eq!(get(server, "/readyz").body, "ok");
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
    // The allocator returns memory to the kernel later.
    let started = Instant::now();
    let mut grown = server.resident_kib().saturating_sub(before);
    while grown >= GROWTH_KIB_MAX && started.elapsed() < PATIENCE {
        std::thread::yield_now();
        grown = server.resident_kib().saturating_sub(before);
    }
    assert!(grown < GROWTH_KIB_MAX, "grew by {grown} KiB");
}

#[test]
fn expanding_documents_stay_within_limits() {
    let server = Server::start();
    let made =
        post(&server, MAPS, "application/json", r#"{"metadata":{"name":"cm"},"data":{"a":"x"}}"#);
    assert_eq!(made.code, 201);
    // The memory that the allocator retains after the first round serves the others.
    grow(&server);
    let before = server.resident_kib();
    for _ in 0..3 {
        grow(&server);
    }
    let now: Value = serde_json::from_str(&get(&server, &format!("{MAPS}/cm")).body).unwrap();
    assert_eq!(now["data"], json!({"a": "x"}));
    assert_unharmed(&server, before);
}

fn grow(server: &Server) {
    // Aliases of aliases: a billion nodes from a kilobyte.
    let mut yaml = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for i in 1..10 {
        let aliases = vec![format!("*a{}", i - 1); 10].join(",");
        yaml += &format!("a{i}: &a{i} [{aliases}]\n");
    }
    assert_eq!(post(server, MAPS, "application/yaml", &yaml).code, 400);
    assert_eq!(patch(server, "application/apply-patch+yaml", &yaml).code, 400);

    // One long text a thousand times: three gigabytes from three megabytes.
    let long = "x".repeat(2_900_000);
    let yaml = format!("a: &a {long}\nb: [{}]\n", vec!["*a"; 1_000].join(","));
    assert_eq!(post(server, MAPS, "application/yaml", &yaml).code, 400);
    assert_eq!(patch(server, "application/apply-patch+yaml", &yaml).code, 400);

    // Copies of copies: a document that doubles forty times.
    let doubling: Vec<Value> = (0..40)
        .map(|i| json!({"op": "copy", "from": "/data", "path": format!("/data/b{i}")}))
        .collect();
    let answer = patch(server, "application/json-patch+json", &json!(doubling).to_string());
    assert!(matches!(answer.code, 400 | 413 | 422), "{answer:?}");
    let operations = vec![json!({"op": "test", "path": "/data/a", "value": "x"}); 10_001];
    let answer = patch(server, "application/json-patch+json", &json!(operations).to_string());
    assert_eq!(answer.code, 413, "{answer:?}");

    // Deep, wide and long documents.
    let deep = format!("{}1{}", r#"{"a":"#.repeat(50_000), "}".repeat(50_000));
    for content_type in [
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ] {
        let answer = patch(server, content_type, &deep);
        assert!(matches!(answer.code, 400 | 422), "{content_type}: {}", answer.head);
    }
    let wide = format!(r#"{{"metadata":{{"name":"x"}},"data":[{}0]}}"#, "0,".repeat(1_000_000));
    assert_eq!(post(server, MAPS, "application/json", &wide).code, 400);
    let unknown: String = (0..100_000).map(|i| format!(r#""u{i}":1,"#)).collect();
    let strict = format!(r#"{{{unknown}"metadata":{{"name":"x"}}}}"#);
    assert_eq!(
        post(server, &format!("{MAPS}?fieldValidation=Strict"), "application/json", &strict).code,
        400
    );
    assert_eq!(
        post(
            server,
            &format!("{MAPS}?fieldValidation=Warn&dryRun=All"),
            "application/json",
            &strict
        )
        .code,
        201
    );
    let annotated =
        json!({"metadata": {"name": "x", "annotations": {"a": "x".repeat(300_000)}}}).to_string();
    let answer = post(server, MAPS, "application/json", &annotated);
    assert_eq!(answer.code, 422);
    assert!(
        answer
            .message()
            .contains("metadata.annotations: Too long: may not be more than 262144 bytes"),
        "{}",
        answer.message()
    );
    let finalizers: Vec<String> = (0..100_000).map(|i| format!("example.com/f{i}")).collect();
    let answer = post(
        server,
        MAPS,
        "application/json",
        &json!({"metadata": {"name": "x", "finalizers": finalizers}}).to_string(),
    );
    // Larger than the store accepts.
    assert!(matches!(answer.code, 413 | 422 | 500), "{}", answer.head);
    let selector = vec!["a=b"; 10_000].join(",");
    assert!(matches!(get(server, &format!("{MAPS}?labelSelector={selector}")).code, 200 | 400));
}

#[test]
fn malicious_definitions_are_refused_or_harmless() {
    let server = Server::start();
    let before = server.resident_kib();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let define = |plural: &str, schema: Value| {
        let definition = json!({
            "metadata": {"name": format!("{plural}.trap.io")},
            "spec": {
                "group": "trap.io", "scope": "Namespaced",
                "names": {"plural": plural, "singular": plural, "kind": plural.to_uppercase(), "listKind": format!("{}List", plural.to_uppercase())},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        post(&server, definitions, "application/json", &definition.to_string())
    };
    // A pattern that a backtracking engine would never finish.
    let pattern =
        json!({"type": "object", "properties": {"spec": {"type": "string", "pattern": "^(a+)+$"}}});
    assert_eq!(define("patterns", pattern).code, 201);
    server.kubectl().ok("wait --for=condition=Established crd/patterns.trap.io --timeout=10s");
    let object = json!({"apiVersion": "trap.io/v1", "kind": "PATTERNS", "metadata": {"name": "x"}, "spec": format!("{}b", "a".repeat(100_000))});
    let answer = post(
        &server,
        "/apis/trap.io/v1/namespaces/default/patterns",
        "application/json",
        &object.to_string(),
    );
    assert_eq!(answer.code, 422, "{}", answer.head);

    // A thousand patterns that compile to a megabyte each.
    let states = "[a-z]{1000}".repeat(20);
    let costly: serde_json::Map<String, Value> = (0..1_000)
        .map(|i| (format!("p{i}"), json!({"type": "string", "pattern": format!("^{states}{i}$")})))
        .collect();
    let names: Vec<String> = costly.keys().cloned().collect();
    let costly =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": costly}}});
    assert_eq!(define("costlies", costly).code, 201);
    server.kubectl().ok("wait --for=condition=Established crd/costlies.trap.io --timeout=10s");
    let spec: serde_json::Map<String, Value> =
        names.into_iter().map(|name| (name, json!("é".repeat(200)))).collect();
    let object = json!({"apiVersion": "trap.io/v1", "kind": "COSTLIES", "metadata": {"name": "x"}, "spec": spec});
    let answer = post(
        &server,
        "/apis/trap.io/v1/namespaces/default/costlies",
        "application/json",
        &object.to_string(),
    );
    assert_eq!(answer.code, 422, "{}", answer.head);
    assert!(answer.message().contains("validation stopped after"), "{}", answer.head);

    let mut deep = json!({"type": "string"});
    for _ in 0..60 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    assert!(matches!(define("deeps", deep).code, 201 | 400 | 422));
    let bomb = json!({"type": "object", "properties": {"spec": {"type": "string", "pattern": format!("{}{}", "(".repeat(500), ")".repeat(500))}}});
    assert!(matches!(define("groups", bomb).code, 201 | 422));
    let repeated = json!({"type": "object", "properties": {"spec": {"type": "string", "pattern": "((((a{1000}){1000}){1000}){1000})"}}});
    assert!(matches!(define("repeats", repeated).code, 201 | 422));
    let wide: serde_json::Map<String, Value> =
        (0..10_000).map(|i| (format!("p{i}"), json!({"type": "string"}))).collect();
    assert!(matches!(
        define("wides", json!({"type": "object", "properties": wide})).code,
        201 | 422
    ));
    for wrong in [
        json!({"type": "array"}),
        json!({"type": "object", "properties": {"a": {}}}),
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
        json!({"$ref": "#/x"}),
    ] {
        assert_eq!(define("wrongs", wrong.clone()).code, 422, "{wrong}");
    }
    // Discovery and OpenAPI documents are still served, and kubectl can read them.
    server.kubectl().ok("explain patterns");
    assert!(
        server
            .kubectl()
            .ok("api-resources --api-group=trap.io -o name")
            .contains("patterns.trap.io")
    );
    assert_unharmed(&server, before);
}

#[test]
fn disconnecting_clients_do_not_affect_others() {
    let server = Server::start();
    let before = server.resident_kib();
    let (n_writers, n_each) = (4, 50);
    let body =
        json!({"metadata": {"name": "never"}, "data": {"a": "x".repeat(10_000)}}).to_string();
    std::thread::scope(|scope| {
        for writer in 0..n_writers {
            let server = &server;
            scope.spawn(move || {
                for i in 0..n_each {
                    let body = json!({"metadata": {"name": format!("w{writer}-{i}")}}).to_string();
                    assert_eq!(post(server, MAPS, "application/json", &body).code, 201);
                }
            });
        }
        scope.spawn(|| {
            for i in 0..200 {
                let mut stream = connect(&server);
                let request = match i % 4 {
                    // Half a body, a watch and a list whose responses nobody reads, a TLS greeting.
                    0 => format!(
                        "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                        body.len(),
                        &body[..5000]
                    ),
                    1 => format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                    2 => format!("GET {MAPS} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                    _ => "\u{16}\u{3}\u{1}".to_owned(),
                };
                stream.write_all(request.as_bytes()).unwrap();
                if matches!(i % 8, 1 | 2) {
                    let _ = stream.read(&mut [0; 10]);
                }
            }
        });
    });
    let list: Value = serde_json::from_str(&get(&server, MAPS).body).unwrap();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.iter().filter(|name| name.starts_with('w')).count(), n_writers * n_each);
    assert!(!names.contains(&"never"));
    assert_unharmed(&server, before);
}
