//! Invalid input of every kind gets the right response, causes no panic and loses nothing.

use crate::raw::{connect, exchange, get, send};
use crate::server::Server;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Asserts that the server still works, has exactly these config maps, and did not panic.
#[track_caller]
fn assert_unharmed(server: &Server, names: &[&str]) {
    let list: Value = serde_json::from_str(&get(server, MAPS).body).unwrap();
    let found: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .filter(|name| *name != "kube-root-ca.crt")
        .collect();
    assert_eq!(found, names);
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn invalid_bodies_are_refused_with_a_message() {
    let server = Server::start();
    let (json, yaml) = ("application/json", "application/yaml");
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("", json, "", 400, ""),
        ("", json, "{\"metadata\":", 400, "unexpected end of JSON input"),
        ("", json, "{\"metadata\":{\"name\":\"x\"}} trailing", 400, "after top-level value"),
        ("", json, "[]", 400, "cannot unmarshal array into Go value"),
        ("", json, "null", 422, "metadata.name: Required value: name or generateName is required"),
        ("", json, "\u{0}\u{1}", 400, "invalid character"),
        ("", yaml, "metadata: [", 400, "yaml"),
        ("", yaml, "a: &a [*a]", 400, ""),
        (
            "",
            json,
            r#"{"metadata":{"name":"x"},"data":{"a":1}}"#,
            400,
            "cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "",
            json,
            r#"{"metadata":{"name":"x"},"data":[]}"#,
            400,
            "cannot unmarshal array into Go struct field ConfigMap.data",
        ),
        (
            "",
            json,
            r#"{"metadata":"x"}"#,
            400,
            "cannot unmarshal string into Go struct field ConfigMap.metadata",
        ),
        (
            "",
            json,
            r#"{"kind":"Secret","metadata":{"name":"x"}}"#,
            400,
            "Secret in version \"v1\" cannot be handled as a ConfigMap",
        ),
        (
            "",
            json,
            r#"{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"x"}}"#,
            400,
            "no kind \"ConfigMap\" is registered for version \"v2\"",
        ),
        (
            "",
            json,
            r#"{"metadata":{"name":"Bad_Name"}}"#,
            422,
            "metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain",
        ),
        (
            "",
            json,
            r#"{"metadata":{}}"#,
            422,
            "metadata.name: Required value: name or generateName is required",
        ),
        (
            "",
            json,
            r#"{"metadata":{"name":"x","namespace":"other"}}"#,
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "",
            json,
            r#"{"metadata":{"name":"x","resourceVersion":"5"}}"#,
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "",
            json,
            r#"{"metadata":{"name":"x","labels":{"a b":"c"}}}"#,
            422,
            "metadata.labels: Invalid value: \"a b\"",
        ),
        (
            "",
            json,
            r#"{"metadata":{"name":"x"},"data":{"a/b":"c"}}"#,
            422,
            "data[a/b]: Invalid value: \"a/b\"",
        ),
        (
            "?fieldValidation=Strict",
            json,
            r#"{"metadata":{"name":"x"},"datta":{}}"#,
            400,
            "strict decoding error: unknown field \"datta\"",
        ),
        (
            "?fieldValidation=Strict",
            json,
            r#"{"metadata":{"name":"x","name":"x"}}"#,
            400,
            "strict decoding error: duplicate field \"metadata.name\"",
        ),
        (
            "?fieldValidation=Sometimes",
            json,
            r#"{"metadata":{"name":"x"}}"#,
            422,
            "fieldValidation: Unsupported value",
        ),
        ("?dryRun=Some", json, r#"{"metadata":{"name":"x"}}"#, 422, "dryRun: Unsupported value"),
        ("", "text/plain", "x", 415, "the body of the request was in an unknown format"),
        (
            "",
            "application/vnd.kubernetes.protobuf",
            "x",
            400,
            "does not appear to be a protobuf message",
        ),
        ("", "application/vnd.kubernetes.protobuf", "k8s\0\u{f}", 400, ""),
    ];
    for (query, content_type, body, code, said) in cases {
        let answer =
            send(&server, "POST", &format!("{MAPS}{query}"), content_type, body.as_bytes());
        assert_eq!(answer.code, *code, "{body}: {answer:?}");
        assert!(answer.message().contains(said), "{body}: {answer:?}");
    }
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for content_type in [json, yaml] {
        assert_eq!(send(&server, "POST", MAPS, content_type, nested.as_bytes()).code, 400);
    }
    assert_unharmed(&server, &[]);
}

#[test]
fn unknown_field_causes_a_warning_if_it_is_not_refused() {
    let server = Server::start();
    let body = br#"{"metadata":{"name":"warned"},"datta":{}}"#;
    let answer =
        send(&server, "POST", &format!("{MAPS}?fieldValidation=Warn"), "application/json", body);
    assert_eq!(answer.code, 201, "{answer:?}");
    assert!(
        answer.head.to_lowercase().contains("\r\nwarning: 299 - \"unknown field \\\"datta\\\"\""),
        "{answer:?}"
    );
    assert!(!answer.body.contains("datta"));
    let body = br#"{"metadata":{"name":"ignored"},"datta":{}}"#;
    let answer =
        send(&server, "POST", &format!("{MAPS}?fieldValidation=Ignore"), "application/json", body);
    assert_eq!(answer.code, 201);
    assert!(!answer.head.to_lowercase().contains("\r\nwarning:"), "{answer:?}");
    assert_unharmed(&server, &["ignored", "warned"]);
}

#[test]
fn oversized_requests_are_refused_before_they_are_stored() {
    let server = Server::start();
    // One byte more than 3 MiB, with a content length, and the same in chunks without one.
    let big = vec![b' '; 3 * 1024 * 1024 + 1];
    let answer = send(&server, "POST", MAPS, "application/json", &big);
    assert_eq!(answer.code, 413, "{answer:?}");
    assert_eq!(answer.message(), "Request entity too large: limit is 3145728");
    let mut chunked = format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", big.len()).into_bytes();
    chunked.extend_from_slice(&big);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    assert_eq!(exchange(&server, &chunked).code, 413);
    // Within the body's limit, beyond the kind's.
    let data =
        json!({"metadata": {"name": "x"}, "data": {"a": "x".repeat(1024 * 1024 + 1)}}).to_string();
    let answer = send(&server, "POST", MAPS, "application/json", data.as_bytes());
    assert_eq!(answer.code, 422, "{}", answer.head);
    assert!(
        answer.message().contains("Too long: may not be more than 1048576 bytes"),
        "{answer:?}"
    );
    let long = format!(
        "GET /{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "a".repeat(2 * 1024 * 1024)
    );
    assert!(matches!(exchange(&server, long.as_bytes()).code, 400 | 414 | 431));
    let many = "X-Header: y\r\n".repeat(10_000);
    assert!(matches!(
        exchange(&server, format!("GET /api HTTP/1.1\r\n{many}\r\n").as_bytes()).code,
        400 | 431
    ));
    assert_unharmed(&server, &[]);
}

#[test]
fn forged_continue_tokens_are_refused() {
    let server = Server::start();
    for name in ["a", "b", "c"] {
        let body = json!({"metadata": {"name": name}}).to_string();
        assert_eq!(send(&server, "POST", MAPS, "application/json", body.as_bytes()).code, 201);
    }
    let page: Value = serde_json::from_str(&get(&server, &format!("{MAPS}?limit=1")).body).unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let half = &token[..token.len() / 2];
    for bad in ["garbage", "%00", "%ff%fe", "e30", "bnVsbA", half, &"x".repeat(10_000)] {
        let answer = get(&server, &format!("{MAPS}?limit=1&continue={bad}"));
        assert_eq!(answer.code, 400, "{bad}: {answer:?}");
        assert!(answer.message().contains("continue key is not valid"), "{bad}: {answer:?}");
    }
    // A token of one list is not valid for another: its position is interpreted relative to the
    // requested list.
    let other =
        get(&server, &format!("/api/v1/namespaces/default/secrets?limit=1&continue={token}"));
    assert!(matches!(other.code, 200 | 400), "{other:?}");
    let both = get(&server, &format!("{MAPS}?limit=1&continue={token}&resourceVersion=1"));
    assert_eq!(both.code, 400, "{both:?}");
    let rest: Value =
        serde_json::from_str(&get(&server, &format!("{MAPS}?continue={token}")).body).unwrap();
    let n_left = rest["items"].as_array().unwrap().len();
    assert_eq!(
        n_left + page["items"].as_array().unwrap().len(),
        3 + usize::from(rest.to_string().contains("kube-root-ca.crt"))
    );
    assert_unharmed(&server, &["a", "b", "c"]);
}

#[test]
fn outdated_versions_change_nothing() {
    let server = Server::start();
    let body = json!({"metadata": {"name": "cm"}, "data": {"a": "1"}}).to_string();
    let made: Value = serde_json::from_str(
        &send(&server, "POST", MAPS, "application/json", body.as_bytes()).body,
    )
    .unwrap();
    let version: u64 = made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let put = |version: &str| {
        let body =
            json!({"metadata": {"name": "cm", "resourceVersion": version}, "data": {"a": "2"}})
                .to_string();
        send(&server, "PUT", &format!("{MAPS}/cm"), "application/json", body.as_bytes())
    };
    for other in [version - 1, version + 1000] {
        let answer = put(&other.to_string());
        assert_eq!(answer.code, 409);
        assert_eq!(
            answer.message(),
            "Operation cannot be fulfilled on configmaps \"cm\": the object has been modified; please apply your changes to the latest version and try again"
        );
    }
    let garbage = put("abc");
    assert!(garbage.code >= 400 && garbage.message().contains("abc"), "{garbage:?}");
    let patch =
        json!({"metadata": {"resourceVersion": (version + 1000).to_string()}, "data": {"a": "2"}})
            .to_string();
    assert_eq!(
        send(
            &server,
            "PATCH",
            &format!("{MAPS}/cm"),
            "application/merge-patch+json",
            patch.as_bytes()
        )
        .code,
        409
    );
    let options =
        json!({"preconditions": {"resourceVersion": (version + 1).to_string()}}).to_string();
    assert_eq!(
        send(&server, "DELETE", &format!("{MAPS}/cm"), "application/json", options.as_bytes()).code,
        409
    );
    let wrong_name = json!({"metadata": {"name": "other"}}).to_string();
    assert_eq!(
        send(&server, "PUT", &format!("{MAPS}/cm"), "application/json", wrong_name.as_bytes()).code,
        400
    );

    let list = get(&server, &format!("{MAPS}?resourceVersion=abc"));
    assert_eq!(list.code, 400);
    assert!(
        list.message()
            .starts_with("invalid resource version: resourceVersion: Invalid value: \"abc\""),
        "{list:?}"
    );
    assert_eq!(get(&server, &format!("{MAPS}?resourceVersionMatch=Exact")).code, 422);
    let future = get(&server, &format!("{MAPS}?resourceVersion={}", version + 1_000_000));
    assert_eq!(future.code, 504, "{future:?}");
    assert!(future.message().contains("Too large resource version"), "{future:?}");
    let now: Value = serde_json::from_str(&get(&server, &format!("{MAPS}/cm")).body).unwrap();
    assert_eq!(now, made);
    assert_unharmed(&server, &["cm"]);
}

#[test]
fn unknown_verbs_and_paths_are_answered() {
    let server = Server::start();
    let ask = |verb: &str, path: &str| send(&server, verb, path, "application/json", b"{}").code;
    for path in [
        "/nothing",
        "/api/v2",
        "/api/v1/nothing",
        "/apis/no.group",
        "/apis/apps/v9/deployments",
        "/api/v1/namespaces/default/nothing/x",
        "/api/v1/namespaces/default/configmaps/x/nothing",
        "/api/v1/../v1/namespaces",
        "//api",
        "/api/v1/namespaces/default/configmaps/%00",
        "/%2e%2e/etc/passwd",
    ] {
        let code = get(&server, path).code;
        assert!(matches!(code, 301 | 400 | 404), "{path}: {code}");
    }
    assert_eq!(ask("FROB", MAPS), 405);
    assert_eq!(ask("PATCH", MAPS), 405);
    assert_eq!(ask("PUT", MAPS), 405);
    assert_eq!(ask("POST", &format!("{MAPS}/x")), 405);
    assert_eq!(get(&server, &format!("{MAPS}?labelSelector=a%20b%20c")).code, 400);
    assert_eq!(get(&server, &format!("{MAPS}?fieldSelector=spec.x%3D1")).code, 400);
    assert_eq!(get(&server, &format!("{MAPS}?limit=x")).code, 400);
    for bytes in [
        &b"garbage\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\0/ HTTP/1.1\r\n\r\n",
        b"POST /api HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut stream = connect(&server);
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        assert!(
            read.is_empty() || read.starts_with(b"HTTP/1.1 400"),
            "{}",
            String::from_utf8_lossy(&read)
        );
    }
    assert_unharmed(&server, &[]);
}

#[test]
fn incomplete_requests_are_ended_while_others_are_served() {
    let server = Server::start();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{\"metadata\":"
    );
    let halves = ["", "GET /api HT", "GET /api HTTP/1.1\r\nHost: localhost\r\nX-", &head];
    let mut stalled: Vec<_> = halves
        .iter()
        .cycle()
        .take(200)
        .map(|half| {
            let mut stream = connect(&server);
            stream.write_all(half.as_bytes()).unwrap();
            (half, stream)
        })
        .collect();
    // A client that opens the TLS port and sends nothing.
    let secure = TcpStream::connect(server.url.trim_start_matches("https://")).unwrap();
    let kubectl = server.kubectl();
    kubectl.ok("create configmap good --from-literal=a=1");
    assert_eq!(kubectl.ok("get cm good -o jsonpath={.data.a}"), "1");
    let started = Instant::now();
    for (half, stream) in &mut stalled {
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        let mut read = Vec::new();
        let ended = stream.read_to_end(&mut read);
        assert!(
            ended.is_ok()
                || ended.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset),
            "{half:?} was not ended after {:?}: {ended:?}",
            started.elapsed()
        );
        assert!(!read.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&read));
    }
    let mut read = Vec::new();
    let _ = (&secure).read_to_end(&mut read);
    assert_eq!(read, b"");
    assert_unharmed(&server, &["good"]);
}

#[test]
fn watchers_that_never_read_do_not_affect_others() {
    let server = Server::start();
    // Begun: a change before that would not be an event of its own.
    let watch = || {
        let mut stream = connect(&server);
        stream
            .write_all(
                format!(
                    "GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                .as_bytes(),
            )
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        stream
    };
    // With their events less than the 64 MiB that the server keeps: a watch that is further behind
    // ends, however fast it reads.
    let (n_changes, n_writers, change_bytes) = (280, 4, 100_000);
    let deaf: Vec<TcpStream> = (0..50).map(|_| watch()).collect();
    let before = server.resident_kib();

    // A watcher that reads receives every change.
    let hearing = watch();
    let counter = std::thread::spawn(move || {
        let lines = BufReader::new(hearing).lines();
        let mut n_seen = 0;
        for line in lines {
            let line = line.unwrap_or_else(|error| panic!("after {n_seen} changes: {error}"));
            n_seen += usize::from(line.starts_with(r#"{"type":"#));
            if n_seen == n_changes {
                return;
            }
        }
        panic!("the watch ended after {n_seen} changes");
    });
    let payload = "x".repeat(change_bytes);
    std::thread::scope(|scope| {
        for writer in 0..n_writers {
            let (server, payload) = (&server, &payload);
            scope.spawn(move || {
                let name = format!("w{writer}");
                for i in 0..n_changes / n_writers {
                    let body = json!({"metadata": {"name": name}, "data": {"i": i.to_string(), "p": payload}}).to_string();
                    let (verb, path) = if i == 0 { ("POST", MAPS.to_owned()) } else { ("PUT", format!("{MAPS}/{name}")) };
                    let answer = send(server, verb, &path, "application/json", body.as_bytes());
                    assert!(matches!(answer.code, 200 | 201), "{}", answer.head);
                }
            });
        }
    });
    counter.join().unwrap();
    // 28 MB of changes are stored once in the store and once as events, and each watch holds a few
    // frames, instead of 1.4 GB of buffers.
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < 10 * n_changes as u64 * change_bytes as u64 / 1024, "grew by {grown} KiB");
    // The server ends these watches, although no client has closed one.
    let opened = Instant::now();
    while server.n_sockets() >= deaf.len() {
        assert!(
            opened.elapsed() < Duration::from_secs(60),
            "{} sockets are still open",
            server.n_sockets()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(deaf);
    assert_unharmed(&server, &["w0", "w1", "w2", "w3"]);
}
