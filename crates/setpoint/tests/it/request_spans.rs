//! Spans of requests, as a control plane makes them.

use crate::admission_webhooks::{MUTATING, VALIDATING, configuration, hook};
use crate::https::{Ca, Hooks, User, with_user};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{ApiServer, Identity};
use setpoint::object::time::Clock;
use setpoint::spans::{EndedSpan, Sampling, SpanKind, Tracer, Value as Attribute};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn tracer(per_million: u32) -> Tracer {
    Tracer::new(Sampling::per_million(per_million), Clock::wall(), 1)
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// A context whose client has sampled it, or has not.
fn parent(is_sampled: bool) -> String {
    format!("00-{TRACE}-b7ad6b7169203331-0{}", u8::from(is_sampled))
}

/// Sends a request as a user, reads the answer to its end, and returns its code.
async fn send(
    server: &ApiServer,
    user: &Identity,
    (method, path): (&str, &str),
    parent: Option<String>,
    body: &Value,
) -> u16 {
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("audit-id", "the-id")
        .header("user-agent", "test/1")
        .header("content-type", "application/json");
    if let Some(parent) = parent {
        request = request.header("traceparent", parent);
    }
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = request.body(kube_client::client::Body::from(bytes)).unwrap();
    let answer = server.client_as(user.clone()).send(request).await.unwrap();
    let code = answer.status().as_u16();
    answer.into_body().collect().await.unwrap();
    code
}

/// The spans of the trace whose first span has this name, as lines: indented below their parents.
fn tree(spans: &[EndedSpan], root: &str) -> Vec<String> {
    let root = spans.iter().find(|span| span.name == root).unwrap_or_else(|| {
        panic!("no {root:?} in {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>())
    });
    let mut lines = Vec::new();
    add(spans, root, 0, &mut lines);
    lines
}

fn add(spans: &[EndedSpan], span: &EndedSpan, depth: usize, lines: &mut Vec<String>) {
    lines.push(format!("{}{}", "  ".repeat(depth), span.name));
    for child in spans.iter().filter(|child| child.parent == Some(span.context.span_id)) {
        assert_eq!(child.context.trace_id, span.context.trace_id);
        // A list is encoded until its last byte is sent.
        let is_within = child.end <= span.end || child.name == "SerializeObject";
        assert!(span.start <= child.start && is_within, "{span:?} {child:?}");
        add(spans, child, depth + 1, lines);
    }
}

fn attribute(span: &EndedSpan, key: &str) -> String {
    match span.attributes.iter().find(|(name, _)| *name == key).map(|(_, value)| value) {
        Some(Attribute::Text(text)) => text.to_string(),
        Some(Attribute::Int(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn find<'a>(spans: &'a [EndedSpan], name: &str) -> &'a EndedSpan {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}"))
}

#[tokio::test]
async fn requests_have_the_spans_of_the_original_in_their_clients_trace() {
    let tracer = tracer(0);
    let queue = tracer.queue().clone();
    with_user(ControlPlane::builder().tracer(tracer), async |_: User, server: ApiServer| {
        let admin = Identity::admin();
        let named = format!("{MAPS}/a");
        for (request, body, code) in [
            (("POST", MAPS), map("a"), 201),
            (("GET", &*named), Value::Null, 200),
            (("GET", MAPS), Value::Null, 200),
            (("DELETE", &*named), Value::Null, 200),
        ] {
            let sent = send(&server, &admin, request, Some(parent(true)), &body).await;
            assert_eq!(sent, code, "{request:?}");
        }
        let spans = queue.take(usize::MAX);
        let stages = ["  authentication", "  priorityandfairness", "  authorization"];
        let tree_of = |root: &str, rest: &[&str]| {
            let expected = [&[root], &stages[..], rest].concat();
            let mut found = tree(&spans, root);
            let mut sorted = expected.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
            found.sort();
            sorted.sort();
            assert_eq!(found, sorted);
        };
        let (objects, object) = (
            "/api/v1/namespaces/{:namespace}/configmaps",
            "/api/v1/namespaces/{:namespace}/configmaps/{:name}",
        );
        tree_of(
            &format!("POST {objects}"),
            &[
                "  Create",
                "    Mutating admission",
                "    Validating admission",
                "    Commit",
                "    SerializeObject",
            ],
        );
        tree_of(&format!("GET {object}"), &["  Get", "    cacher.Get", "    SerializeObject"]);
        tree_of(
            &format!("GET {objects}"),
            &["  List", "    cacher.GetList", "    SerializeObject"],
        );
        let root = find(&spans, &format!("POST {objects}"));
        let ids = (root.context.to_string(), root.parent.map(|id| id.0[0]));
        assert!(ids.0.contains(TRACE) && ids.1 == Some(0xb7), "{ids:?}");
        assert_eq!((root.kind, root.is_parent_remote, root.link), (SpanKind::Server, true, None));
        for (key, value) in [
            ("audit-id", "the-id"),
            ("http.request.method", "POST"),
            ("http.target", MAPS),
            ("url.path", MAPS),
            ("user_agent.original", "test/1"),
            ("http.response.status_code", "201"),
        ] {
            assert_eq!(attribute(root, key), value, "{key}");
        }
        let create = find(&spans, "Create");
        for (key, value) in [("resource", "configmaps"), ("namespace", "default"), ("verb", "POST")]
        {
            assert_eq!(attribute(create, key), value, "{key}");
        }
        let events: Vec<_> = create.events.iter().map(|event| event.name).collect();
        assert_eq!(
            events,
            [
                "limitedReadBody succeeded",
                "About to store object in database",
                "Write to database call succeeded",
                "About to write a response",
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn sampling_is_the_trusted_clients_decision_or_the_rates() {
    let alice = Identity::new("alice", ["system:authenticated"]);
    let (masters, monitors) =
        (Identity::admin(), Identity::new("m", ["system:monitoring", "system:authenticated"]));
    let none = tracer(0);
    let queue = none.queue().clone();
    with_user(ControlPlane::builder().tracer(none), async |_: User, server: ApiServer| {
        let get = async |user: &Identity, parent: Option<String>| {
            send(&server, user, ("GET", "/version"), parent, &Value::Null).await
        };
        get(&masters, None).await;
        get(&masters, Some(parent(false))).await;
        get(&masters, Some("00-not-a-context".to_owned())).await;
        // Not trusted: may not have the server record anything.
        get(&alice, Some(parent(true))).await;
        assert!(queue.is_empty());
        get(&monitors, Some(parent(true))).await;
        assert_eq!(find(&queue.take(usize::MAX), "GET").parent.map(|id| id.0[0]), Some(0xb7));
    })
    .await;
    let all = tracer(1_000_000);
    let queue = all.queue().clone();
    with_user(ControlPlane::builder().tracer(all), async |_: User, server: ApiServer| {
        let get = ("GET", "/version");
        queue.take(usize::MAX);
        send(&server, &masters, get, Some(parent(false)), &Value::Null).await;
        assert!(queue.take(usize::MAX).iter().all(|span| attribute(span, "audit-id") != "the-id"));
        send(&server, &alice, get, Some(parent(true)), &Value::Null).await;
        let spans = queue.take(usize::MAX);
        let is_mine =
            |span: &&EndedSpan| span.name == "GET" && attribute(span, "audit-id") == "the-id";
        let mine = spans.iter().find(is_mine).unwrap();
        assert_eq!((mine.parent, mine.is_parent_remote), (None, false));
        assert!(!mine.context.to_string().contains(TRACE));
        assert!(mine.link.unwrap().to_string().contains(TRACE));
    })
    .await;
}

#[tokio::test]
async fn a_watch_is_one_span_until_its_end() {
    let tracer = tracer(0);
    let queue = tracer.queue().clone();
    with_user(ControlPlane::builder().tracer(tracer), async |_: User, server: ApiServer| {
        let request = http::Request::get(format!("{MAPS}?watch=1&resourceVersion=0"))
            .header("traceparent", parent(true))
            .body(kube_client::client::Body::empty())
            .unwrap();
        let answer = server.client_as(Identity::admin()).send(request).await.unwrap();
        let mut events = answer.into_body().into_data_stream();
        send(&server, &Identity::admin(), ("POST", MAPS), None, &map("seen")).await;
        events.next().await.unwrap().unwrap();
        let root = "GET /api/v1/namespaces/{:namespace}/configmaps";
        let so_far = queue.take(usize::MAX);
        assert!(so_far.iter().all(|span| span.name != root), "it has not ended");
        find(&so_far, "cacher.Watch");
        drop(events);
        let rest = queue.take(usize::MAX);
        let (watch, root) = (find(&rest, "WatchServer.HandleHTTP"), find(&rest, root));
        assert_eq!(watch.parent, Some(root.context.span_id));
        assert_eq!(attribute(root, "http.response.status_code"), "200");
        assert_ne!(attribute(root, "http.response.body.size"), "0");
    })
    .await;
}

/// A webhook that lets everything through, with a patch at `/mutate`.
async fn server(ca: &Ca) -> Hooks {
    ca.serve_raw(|path, request| {
        let mut response = json!({"uid": request["request"]["uid"], "allowed": true});
        if path == "/mutate" {
            let patch = r#"[{"op": "add", "path": "/data", "value": {"is": "called"}}]"#;
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(patch).into();
        }
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": response});
        (200, review.to_string())
    })
    .await
}

#[tokio::test]
async fn calls_of_webhooks_are_spans_of_the_write() {
    let ca = Ca::new();
    let hooks = server(&ca).await;
    let tracer = tracer(0);
    let queue = tracer.queue().clone();
    with_user(ControlPlane::builder().tracer(tracer), async |user: User, server: ApiServer| {
        for (path, name, n) in [(MUTATING, "mutate", 1), (VALIDATING, "validate", 2)] {
            let config = hooks.config(&format!("/{name}"));
            let hooks: Vec<Value> = (0..n)
                .map(|n| hook(&format!("{name}-{n}"), config.clone(), &["configmaps"]))
                .collect();
            user.create(path, &configuration(path, name, &hooks)).await;
        }
        let dry = format!("{MAPS}?dryRun=All");
        let is_called = |answer: &crate::https::Answered| answer.body["data"]["is"] == "called";
        user.until("POST", &dry, &map("probe"), is_called).await;
        // Both configurations are written; the second one is followed no later than its read.
        user.until("GET", &format!("{VALIDATING}/validate"), &Value::Null, |a| a.code == 200).await;
        queue.take(usize::MAX);
        let admin = Identity::admin();
        send(&server, &admin, ("POST", MAPS), Some(parent(true)), &map("a")).await;
        let spans = queue.take(usize::MAX);
        let mutating = find(&spans, "Call mutating webhook");
        assert_eq!(mutating.parent, Some(find(&spans, "Mutating admission").context.span_id));
        assert_eq!(mutating.kind, SpanKind::Client);
        for (key, value) in [
            ("configuration", "mutate"),
            ("webhook", "mutate-0.example.com"),
            ("resource", "/v1, Resource=configmaps"),
            ("operation", "CREATE"),
        ] {
            assert_eq!(attribute(mutating, key), value, "{key}");
        }
        let all: Vec<_> =
            spans.iter().filter(|span| span.name == "Call validating webhook").collect();
        // Called at the same time; neither is in the other.
        let stage = find(&spans, "Validating admission").context.span_id;
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|span| span.parent == Some(stage)));
    })
    .await;
}
