//! The audit log of a control plane: which requests are in it, and what of them.

use crate::rbac::{send, send_with};
use crate::remote::Reviewer;
use futures::future::{BoxFuture, FutureExt as _};
use http::Method;
use serde_json::{Value, json};
use setpoint::apiserver::ApiServer;
use setpoint::audit::{
    Audit, AuditLogOptions, AuditMetrics, AuditMode, AuditWebhookOptions, BatchOptions,
    Destination, LogFile, LogFileOptions, Policy, QUEUE_BYTES_MAX, Truncation,
};
use setpoint::egress::Dialer;
use setpoint::object::ApiError;
use setpoint::object::time::{Clock, Timestamp};
use setpoint::registry::{Admission, Identity, Review};
use setpoint::remote::Remote;
use setpoint::{ControlPlane, ControlPlaneBuilder};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs a control plane with this policy while `act` uses it; the lines of its log.
pub(crate) async fn logged(rules: &str, act: impl AsyncFnOnce(&ApiServer)) -> Vec<Value> {
    logged_of(ControlPlane::builder(), rules, act).await
}

/// The same of this control plane.
async fn logged_of(
    plane: ControlPlaneBuilder,
    rules: &str,
    act: impl AsyncFnOnce(&ApiServer),
) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}");
    let plane = plane.simulated(0).rbac();
    let clock = Clock::starting_at(Timestamp::from_secs(1_800_000_000));
    let file = LogFile::open(&path, LogFileOptions::default(), clock).unwrap();
    let options =
        AuditLogOptions { truncation: Some(Truncation::default()), ..AuditLogOptions::default() };
    let policy = Policy::parse(&policy).unwrap();
    let (sink, worker) = Audit::log(policy, Destination::File(file), options);
    let plane = plane.audit(sink.clone()).build();
    let server = plane.server().clone();
    let (stop, stop_log) = (CancellationToken::new(), CancellationToken::new());
    let served = async {
        let running = plane.run(stop.clone());
        let acting = async {
            act(&server).await;
            stop.cancel();
        };
        tokio::join!(running, acting).0.unwrap();
        stop_log.cancel();
    };
    tokio::join!(served, worker.run(stop_log.clone()));
    assert_eq!(sink.dropped(), 0);
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn jane() -> Identity {
    Identity { uid: "7".into(), ..Identity::new("jane", ["system:masters"]) }
}

pub(crate) fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

/// The members that differ from run to run, or are of no interest, are removed.
fn plain(mut event: Value) -> Value {
    let members = event.as_object_mut().unwrap();
    members.remove("auditID").unwrap();
    for time in ["requestReceivedTimestamp", "stageTimestamp"] {
        let time = members.remove(time).unwrap();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
    }
    members.remove("annotations");
    event
}

#[tokio::test]
async fn an_event_has_who_what_and_how_it_ended() {
    let events = logged("- {level: Metadata, users: [jane]}", async |server| {
        send(server, jane(), Method::POST, MAPS, map("own")).await;
        let headers = [("User-Agent", "kubectl/v1"), ("X-Forwarded-For", "192.0.2.7, nobody")];
        let path = format!("{MAPS}/absent?x=y");
        send_with(server, jane(), &headers, Method::GET, &path, Value::Null).await;
        // Not jane.
        send(server, Identity::admin(), Method::GET, MAPS, Value::Null).await;
        send(server, jane(), Method::DELETE, &format!("{MAPS}/own"), Value::Null).await;
    })
    .await;
    let user = json!({"username": "jane", "uid": "7", "groups": ["system:masters"]});
    let create = |stage: &str| {
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": stage,
            "requestURI": MAPS, "verb": "create", "user": user,
            "objectRef": {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"},
        })
    };
    let mut created = create("ResponseComplete");
    created["objectRef"]["name"] = json!("own");
    created["responseStatus"] = json!({"metadata": {}, "code": 201});
    let get = |stage: &str| {
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": stage,
            "requestURI": format!("{MAPS}/absent?x=y"), "verb": "get", "user": user,
            "sourceIPs": ["192.0.2.7"], "userAgent": "kubectl/v1",
            "objectRef": {"resource": "configmaps", "namespace": "default", "name": "absent", "apiVersion": "v1"},
        })
    };
    let mut absent = get("ResponseComplete");
    absent["responseStatus"] = json!({
        "metadata": {}, "status": "Failure", "message": "configmaps \"absent\" not found",
        "reason": "NotFound", "details": {"name": "absent", "kind": "configmaps"}, "code": 404,
    });
    let mut events: Vec<Value> = events.into_iter().map(plain).collect();
    // The answer of a deletion is a Status, which every level has.
    let deleted = &events.pop().unwrap()["responseStatus"];
    assert_eq!((&deleted["status"], &deleted["code"]), (&json!("Success"), &json!(200)));
    assert_eq!(deleted["details"]["name"], "own");
    assert!(deleted["details"]["uid"].is_string() && deleted["message"].is_null(), "{deleted}");
    assert_eq!(events.pop().unwrap()["verb"], "delete");
    let expected = [create("RequestReceived"), created, get("RequestReceived"), absent];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn a_reference_has_names_of_a_written_object_and_none_of_a_patch() {
    let rules = "- {level: Request, users: [jane], omitStages: [RequestReceived]}";
    let events = logged(rules, async |server| {
        let own = format!("{MAPS}/own");
        let (_, made) = send(server, jane(), Method::POST, MAPS, map("own")).await;
        send(server, jane(), Method::PUT, &own, made.clone()).await;
        let names = json!({"uid": made["metadata"]["uid"],
            "resourceVersion": made["metadata"]["resourceVersion"]});
        let merge = [("content-type", "application/merge-patch+json")];
        let patch = json!({"metadata": names});
        let (code, _) = send_with(server, jane(), &merge, Method::PATCH, &own, patch).await;
        assert_eq!(code, 200);
        let apply = [("content-type", "application/apply-patch+yaml")];
        let path = format!("{own}?fieldManager=me&force=true");
        let mut applied = map("own");
        applied["metadata"]["uid"] = names["uid"].clone();
        let (code, _) = send_with(server, jane(), &apply, Method::PATCH, &path, applied).await;
        assert_eq!(code, 200);
        let (code, _) = send(
            server,
            jane(),
            Method::DELETE,
            &own,
            json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "metadata": names,
            }),
        )
        .await;
        assert_eq!(code, 200);
    })
    .await;
    let members = |event: &Value| {
        let reference = event["objectRef"].as_object().unwrap();
        let is_there = |name: &&str| reference.contains_key(*name);
        ["name", "uid", "resourceVersion"].into_iter().filter(is_there).collect::<Vec<_>>()
    };
    let found: Vec<_> = events.iter().map(members).collect();
    let all = vec!["name", "uid", "resourceVersion"];
    assert_eq!(found, [vec!["name"], all, vec!["name"], vec!["name"], vec!["name"]]);
    assert!(events[2]["requestObject"]["metadata"]["uid"].is_string(), "{}", events[2]);
}

#[tokio::test]
async fn bodies_are_recorded_at_their_levels_only() {
    let rules = r#"
- {level: None, userGroups: ["system:nobody"]}
- {level: Request, users: [jane], verbs: [create], omitStages: [RequestReceived]}
- {level: RequestResponse, users: [jane], omitStages: [RequestReceived], omitManagedFields: true}
"#;
    let events = logged(rules, async |server| {
        send(server, jane(), Method::POST, MAPS, map("own")).await;
        send(server, jane(), Method::PUT, &format!("{MAPS}/own"), map("own")).await;
        send(server, jane(), Method::GET, "/version", Value::Null).await;
        send(server, jane(), Method::DELETE, &format!("{MAPS}/absent"), Value::Null).await;
        let mut large = map("large");
        large["data"]["a"] = "x".repeat(200_000).into();
        send(server, jane(), Method::POST, MAPS, large).await;
        let secret = json!({"metadata": {"name": "own"}, "stringData": {}});
        send(server, jane(), Method::POST, "/api/v1/namespaces/default/secrets", secret).await;
        let refused = json!({"metadata": {"name": "own"}, "data": []});
        send(server, jane(), Method::POST, MAPS, refused).await;
    })
    .await;
    let [created, updated, version, deleted, large, secret, refused] = &events[..] else {
        panic!("{events:#?}")
    };
    assert_eq!(secret["requestObject"]["type"], "Opaque", "a default");
    assert!(refused["requestObject"].is_null() && refused["objectRef"]["name"].is_null());
    assert_eq!(created["requestObject"]["data"], json!({"a": "1"}));
    assert_eq!(created["responseObject"], Value::Null);
    assert_eq!(updated["requestObject"]["metadata"]["name"], "own");
    let metadata = &updated["responseObject"]["metadata"];
    assert!(metadata["uid"].is_string() && metadata["managedFields"].is_null(), "{metadata}");
    assert_eq!(version["requestURI"], "/version");
    assert!(version["objectRef"].is_null() && version["responseObject"].is_null(), "{version}");
    assert_eq!(deleted["responseObject"]["reason"], "NotFound");
    assert_eq!(deleted["responseObject"]["kind"], "Status");
    assert_eq!(large["requestObject"], Value::Null);
    assert_eq!(large["annotations"]["audit.k8s.io/truncated"], "true");
    assert_eq!(large["annotations"]["authorization.k8s.io/decision"], "allow");
}

#[tokio::test]
async fn an_impersonated_request_has_both_users() {
    let events = logged("- {level: Metadata, users: [jane]}", async |server| {
        let headers = [("Impersonate-User", "eve")];
        send_with(server, jane(), &headers, Method::GET, MAPS, Value::Null).await;
    })
    .await;
    let [received, complete] = &events[..] else { panic!("{events:#?}") };
    assert_eq!(received["impersonatedUser"], Value::Null);
    assert_eq!(complete["user"]["username"], "jane");
    assert_eq!(
        complete["impersonatedUser"],
        json!({"username": "eve", "groups": ["system:authenticated"]})
    );
    assert_eq!(
        complete["authenticationMetadata"],
        json!({"impersonationConstraint": "impersonate:user-info"})
    );
    assert_eq!(complete["responseStatus"]["code"], 403);
}

/// Runs a control plane whose log is a full disk, and creates an object. Returns the code and the
/// body of the answer, and the sink.
async fn on_full_disk(mode: AuditMode) -> (u16, String, Arc<Audit>) {
    let options = LogFileOptions { bytes_max: 0, ..LogFileOptions::default() };
    let file = LogFile::open("/dev/full", options, Clock::wall()).unwrap();
    // Controllers are not part of it.
    let policy =
        "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata, users: [jane]}]}";
    let options = AuditLogOptions { mode, ..AuditLogOptions::default() };
    let (sink, worker) =
        Audit::log(Policy::parse(policy).unwrap(), Destination::File(file), options);
    let plane = ControlPlane::builder().audit(sink.clone()).build();
    let server = plane.server().clone();
    let (stop, stop_log) = (CancellationToken::new(), CancellationToken::new());
    let acting = async {
        let mut request = http::Request::post(MAPS)
            .header("content-type", "application/json")
            .body(http_body_util::Full::new(bytes::Bytes::from(map("own").to_string())))
            .unwrap();
        request.extensions_mut().insert(jane());
        let response = server.serve(request).await;
        let code = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        stop.cancel();
        (code, String::from_utf8(body.to_bytes().to_vec()).unwrap())
    };
    let served = async {
        let (ended, answer) = tokio::join!(plane.run(stop.clone()), acting);
        ended.unwrap();
        stop_log.cancel();
        answer
    };
    let ((code, body), ()) = tokio::join!(served, worker.run(stop_log.clone()));
    (code, body, sink)
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nobody_but_in_strict_mode() {
    for mode in [AuditMode::Batch(BatchOptions::LOG), AuditMode::Blocking] {
        let (code, _, sink) = on_full_disk(mode).await;
        assert_eq!((code, sink.dropped(), sink.stats().refused), (201, 2, 0));
    }
    let (code, body, sink) = on_full_disk(AuditMode::BlockingStrict).await;
    let refused = format!("Internal Server Error: {MAPS:?}: failed to store audit event\n");
    assert_eq!((code, body), (500, refused));
    // Nothing more is recorded of a refused request.
    assert_eq!((sink.dropped(), sink.stats().refused), (1, 1));
    let metrics = setpoint::runtime::metrics::Metrics::new();
    let counted = AuditMetrics::of([sink]);
    metrics.update(|registry| registry.register_collector(Box::new(counted)));
    let text = metrics.prometheus();
    for line in [
        "apiserver_audit_event_total 1",
        "apiserver_audit_requests_rejected_total 1",
        r#"apiserver_audit_level_total{level="Metadata"} 1"#,
        r#"apiserver_audit_error_total{plugin="log"} 1"#,
        r#"apiserver_audit_error_total{plugin="buffered"} 0"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_request_waits_for_its_events_in_blocking_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let file = LogFile::open(&path, LogFileOptions::default(), Clock::wall()).unwrap();
    let policy =
        "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata, users: [jane]}]}";
    let options = AuditLogOptions { mode: AuditMode::Blocking, ..AuditLogOptions::default() };
    let (sink, worker) =
        Audit::log(Policy::parse(policy).unwrap(), Destination::File(file), options);
    let plane = ControlPlane::builder().audit(sink.clone()).build();
    let server = plane.server().clone();
    let (stop, stop_log) = (CancellationToken::new(), CancellationToken::new());
    let stages = || {
        let text = std::fs::read_to_string(&path).unwrap();
        let stage = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["stage"].as_str().unwrap().to_owned()
        };
        text.lines().map(stage).collect::<Vec<_>>()
    };
    let acting = async {
        send(&server, jane(), Method::GET, MAPS, Value::Null).await;
        assert_eq!(stages(), ["RequestReceived", "ResponseComplete"]);
        // Sixteen at once.
        let all = (0..16).map(|n| send(&server, jane(), Method::POST, MAPS, map(&format!("m{n}"))));
        futures::future::join_all(all).await;
        assert_eq!(stages().len(), 34);
        // A watch has begun when its head is there; its end does not wait.
        let mut request = http::Request::get(format!("{MAPS}?watch=true"))
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        request.extensions_mut().insert(jane());
        let watch = server.serve(request).await;
        assert_eq!(stages()[34..], ["RequestReceived", "ResponseStarted"]);
        drop(watch);
        stop.cancel();
    };
    let served = async {
        tokio::join!(plane.run(stop.clone()), acting).0.unwrap();
        stop_log.cancel();
    };
    tokio::join!(served, worker.run(stop_log.clone()));
    assert_eq!(stages()[36..], ["ResponseComplete"]);
    assert_eq!((sink.dropped(), sink.stats().events), (0, 37));
}

#[tokio::test]
async fn lists_are_recorded_without_managed_fields() {
    let rules = "- {level: RequestResponse, verbs: [list, get], omitStages: [RequestReceived], omitManagedFields: true}\n";
    let events = logged(rules, async |server| {
        send(server, jane(), Method::POST, MAPS, map("own")).await;
        send(server, jane(), Method::GET, &format!("{MAPS}?labelSelector=none"), Value::Null).await;
        send(server, jane(), Method::GET, MAPS, Value::Null).await;
        let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        send_with(server, jane(), &accept, Method::GET, MAPS, Value::Null).await;
        let own = format!("{MAPS}/own");
        send_with(server, jane(), &accept, Method::GET, &own, Value::Null).await;
        let accept = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
        send_with(server, jane(), &accept, Method::GET, &own, Value::Null).await;
    })
    .await;
    let of_jane = events.iter().filter(|event| event["user"]["username"] == "jane");
    let [empty, list, table, row, metadata] = of_jane.collect::<Vec<_>>()[..] else {
        panic!("{events:#?}")
    };
    assert_eq!(empty["responseObject"]["items"], json!([]));
    assert_eq!(list["responseObject"]["kind"], "ConfigMapList");
    let items = list["responseObject"]["items"].as_array().unwrap();
    let own = items.iter().find(|map| map["metadata"]["name"] == "own").unwrap();
    assert_eq!(own["data"], json!({"a": "1"}));
    assert_eq!(own["metadata"]["managedFields"], Value::Null);
    // Objects are recorded as they were answered: a row has no data.
    let kind = |event: &Value| event["responseObject"]["kind"].clone();
    assert_eq!([table, row].map(kind), ["Table", "Table"]);
    let object = &row["responseObject"]["rows"][0]["object"];
    assert_eq!(object["metadata"]["name"], "own");
    assert_eq!(object["metadata"]["managedFields"], Value::Null);
    assert_eq!(kind(metadata), "PartialObjectMetadata");
    assert_eq!(metadata["responseObject"]["data"], Value::Null);
}

/// Runs a control plane whose events go to `receiver`; the sink at the end.
async fn sent(
    receiver: &Reviewer,
    options: AuditWebhookOptions,
    act: impl AsyncFnOnce(&ApiServer),
) -> u64 {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- {level: Metadata, users: [jane]}\n";
    let remote = Remote::open(&receiver.kubeconfig(), Dialer::default()).await.unwrap();
    let (sink, worker) = Audit::webhook(Policy::parse(policy).unwrap(), remote, options);
    let plane = ControlPlane::builder().simulated(0).audit(sink.clone()).build();
    let server = plane.server().clone();
    let (stop, stop_log) = (CancellationToken::new(), CancellationToken::new());
    let served = async {
        let running = plane.run(stop.clone());
        let acting = async {
            act(&server).await;
            stop.cancel();
        };
        tokio::join!(running, acting).0.unwrap();
        stop_log.cancel();
    };
    tokio::join!(served, worker.run(stop_log.clone()));
    sink.dropped()
}

fn batches(batches: BatchOptions) -> AuditWebhookOptions {
    AuditWebhookOptions { mode: AuditMode::Batch(batches), ..AuditWebhookOptions::default() }
}

/// The names of the objects in the lists that a webhook got.
fn lists(receiver: &Reviewer) -> Vec<Vec<String>> {
    let seen = receiver.seen.lock().unwrap();
    let lists = seen.iter().map(|(_, list)| {
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&json!("EventList"), &json!("audit.k8s.io/v1"))
        );
        let items = list["items"].as_array().unwrap();
        assert!(items.iter().all(|one| one["kind"].is_null() && one["apiVersion"].is_null()));
        let name = |event: &Value| event["objectRef"]["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect()
    });
    lists.collect()
}

async fn get(server: &ApiServer, names: &[&str]) {
    for name in names {
        send(server, jane(), Method::GET, &format!("{MAPS}/{name}"), Value::Null).await;
    }
}

#[tokio::test]
async fn a_webhook_gets_full_batches_at_once_and_the_rest_at_the_end() {
    let receiver = Reviewer::start(|_| (200, Value::Null)).await;
    let options = batches(BatchOptions { batch_events_max: 2, ..BatchOptions::WEBHOOK });
    let n_lost = sent(&receiver, options, async |server| {
        get(server, &["a", "b", "c"]).await;
        // Not before half a minute, but for a full batch.
        while receiver.n_seen() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(lists(&receiver), [["a", "b"]]);
    })
    .await;
    assert_eq!(n_lost, 0);
    assert_eq!(lists(&receiver), [vec!["a", "b"], vec!["c"]]);
}

#[tokio::test]
async fn a_batch_is_sent_again_whatever_the_webhook_answers() {
    static ANSWERED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    // Fails once, then accepts; a busy server is asked again.
    let busy = Reviewer::start(|_| {
        let is_first = ANSWERED.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        (if is_first { 503 } else { 200 }, Value::Null)
    })
    .await;
    let options = AuditWebhookOptions {
        initial_backoff: Duration::ZERO,
        ..batches(BatchOptions { batch_events_max: 1, ..BatchOptions::WEBHOOK })
    };
    let n_lost = sent(&busy, options.clone(), async |server| {
        get(server, &["a"]).await;
        while busy.n_seen() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((n_lost, lists(&busy)), (0, vec![vec!["a".to_owned()]; 2]));
    let refusing = Reviewer::start(|_| (400, Value::Null)).await;
    let n_lost = sent(&refusing, options, async |server| {
        get(server, &["a", "b"]).await;
        // Five attempts for each.
        while refusing.n_seen() < 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((n_lost, refusing.n_seen()), (2, 10));
}

#[tokio::test]
async fn events_that_are_too_large_without_objects_are_lost_and_counted() {
    let receiver = Reviewer::start(|_| (200, Value::Null)).await;
    let remote = Remote::open(&receiver.kubeconfig(), Dialer::default()).await.unwrap();
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: Metadata, users: [jane]}]}";
    let truncation = Truncation { event_bytes_max: 2000, ..Truncation::default() };
    let options =
        AuditWebhookOptions { truncation: Some(truncation), ..batches(BatchOptions::WEBHOOK) };
    let (sink, worker) = Audit::webhook(Policy::parse(policy).unwrap(), remote, options);
    let plane = ControlPlane::builder().simulated(0).audit(sink.clone()).build();
    let server = plane.server().clone();
    let (stop, stop_log) = (CancellationToken::new(), CancellationToken::new());
    let served = async {
        let acting = async {
            get(&server, &["a"]).await;
            get(&server, &[&format!("b?x={}", "y".repeat(2000))]).await;
            stop.cancel();
        };
        tokio::join!(plane.run(stop.clone()), acting).0.unwrap();
        stop_log.cancel();
    };
    tokio::join!(served, worker.run(stop_log.clone()));
    let stats = sink.stats();
    assert_eq!((stats.too_large, stats.undelivered, sink.dropped()), (1, 0, 1));
    assert_eq!(lists(&receiver), [["a"]]);
}

#[tokio::test]
async fn events_that_find_the_buffer_full_are_lost() {
    let receiver = Reviewer::start(|_| (200, Value::Null)).await;
    let options = batches(BatchOptions { buffer_events_max: 2, ..BatchOptions::WEBHOOK });
    let n_lost =
        sent(&receiver, options, async |server| get(server, &["a", "b", "c", "d"]).await).await;
    assert_eq!((n_lost, lists(&receiver)), (2, vec![vec!["a".to_owned(), "b".to_owned()]]));
}

#[tokio::test]
async fn a_webhook_gets_each_event_before_the_answer_in_blocking_mode() {
    let receiver = Reviewer::start(|_| (200, Value::Null)).await;
    let blocking =
        AuditWebhookOptions { mode: AuditMode::Blocking, ..AuditWebhookOptions::default() };
    let n_lost = sent(&receiver, blocking, async |server| {
        get(server, &["a"]).await;
        assert_eq!(lists(&receiver), [["a"]]);
        get(server, &["b"]).await;
        assert_eq!(lists(&receiver), [["a"], ["b"]]);
    })
    .await;
    assert_eq!(n_lost, 0);
}

#[tokio::test]
async fn long_failures_count_in_the_queue() {
    let options = AuditLogOptions::default();
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    let policy = Policy::parse(policy).unwrap();
    // Nothing reads its queue.
    let (sink, _worker) = Audit::log(policy, Destination::Stdout, options);
    let plane = ControlPlane::builder().simulated(0).audit(sink.clone()).build();
    let server = plane.server().clone();
    let stop = CancellationToken::new();
    let acting = async {
        let mut refused = map("refused");
        let keys = (0..4000).map(|n| (format!("!{n}"), json!("")));
        refused["data"] = Value::Object(keys.collect());
        let body_bytes = refused.to_string().len();
        let n = 80;
        for _ in 0..n {
            let (code, _) = send(&server, jane(), Method::POST, MAPS, refused.clone()).await;
            assert_eq!(code, 422);
        }
        assert!(n * body_bytes < QUEUE_BYTES_MAX / 2);
        // Each failure has a megabyte of messages and of causes.
        assert!(sink.dropped() > 0);
        stop.cancel();
    };
    tokio::join!(plane.run(stop.clone()), acting).0.unwrap();
}

const PATCH: &str = "patch.webhook.admission.k8s.io/round_0_index_0";

/// Annotates as a mutating webhook does.
#[derive(Debug)]
struct Patches;
impl Admission for Patches {
    fn name(&self) -> &str {
        "patches.example.com"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        &*review.resource().resource == "configmaps"
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        review.annotate(PATCH, "secret");
        async { Ok(()) }.boxed()
    }
}

/// A patch shows a part of the body.
#[tokio::test]
async fn patches_of_webhooks_are_recorded_where_bodies_are() {
    let rules = r"
- {level: Request, users: [jane], verbs: [create], omitStages: [RequestReceived]}
- {level: Metadata, users: [jane], omitStages: [RequestReceived]}
";
    let plane = ControlPlane::builder().admission(Arc::new(Patches));
    let events = logged_of(plane, rules, async |server| {
        send(server, jane(), Method::POST, MAPS, map("own")).await;
        send(server, jane(), Method::PUT, &format!("{MAPS}/own"), map("own")).await;
    })
    .await;
    let [created, updated] = &events[..] else { panic!("{events:#?}") };
    assert_eq!(created["annotations"][PATCH], "secret");
    assert_eq!(updated["annotations"][PATCH], Value::Null);
    assert_eq!(updated["annotations"]["authorization.k8s.io/decision"], "allow");
}
