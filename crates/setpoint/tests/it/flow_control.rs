//! Priority and fairness, observed by clients.

use crate::plane::Person;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{ApiServer, Body, Identity, RequestBody, RequestLimits};
use setpoint::runtime::metrics::Metrics;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const DUMPS: &str = "/debug/api_priority_and_fairness";

fn bob() -> Identity {
    Identity::new("bob", ["system:authenticated"])
}

/// The code, the uids of the schema and the level, `Retry-After` and the body of an answer.
async fn get(server: &ApiServer, path: &str, identity: Identity) -> (u16, [String; 3], String) {
    let mut request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
    request.extensions_mut().insert(identity);
    let response = server.serve(request).await;
    let header = |name: &str| {
        let value = response.headers().get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or_default().to_owned()
    };
    let headers =
        ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid", "retry-after"]
            .map(header);
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, headers, String::from_utf8_lossy(&body).into_owned())
}

async fn with_server(plane: ControlPlane, act: impl AsyncFnOnce(ApiServer, Person)) {
    let (server, person) = (plane.server().clone(), Person { client: plane.client() });
    let stop = CancellationToken::new();
    let acting = async {
        act(server, person).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(plane.run(stop.clone()), acting);
    ended.unwrap();
}

fn schema(name: &str, level: &str, user: &str) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    })
}

/// A level of one seat and one waiting request.
fn tiny() -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "tiny"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Queue",
                "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 1}},
        }},
    })
}

#[tokio::test(start_paused = true)]
async fn each_answer_names_its_schema_and_its_level_and_changes_apply_at_once() {
    let plane = ControlPlane::builder().simulated(0).controllers(false).build();
    with_server(plane, async |server, person| {
        let uid = async |collection: &str, name: &str| {
            let found = person.get(&format!("{collection}/{name}")).await.expect(name);
            found["metadata"]["uid"].as_str().unwrap().to_owned()
        };
        let named = async |path: &str, identity: Identity, schema: &str, level: &str| {
            let (code, [of_schema, of_level, _], _) = get(&server, path, identity).await;
            assert_eq!(of_schema, uid(SCHEMAS, schema).await, "{path}");
            assert_eq!(of_level, uid(LEVELS, level).await, "{path}");
            code
        };
        let pods = "/api/v1/namespaces/default/pods";
        assert_eq!(named(pods, bob(), "global-default", "global-default").await, 200);
        assert_eq!(named("/api/v1/nothing", bob(), "global-default", "global-default").await, 404);
        assert_eq!(named("/healthz", bob(), "probes", "exempt").await, 200);
        assert_eq!(named(pods, Identity::admin(), "exempt", "exempt").await, 200);
        let nobody = Identity::new("nobody", []);
        assert_eq!(named(pods, nobody, "catch-all", "catch-all").await, 200);
        let account = Identity::new(
            "system:serviceaccount:kube-system:x",
            ["system:serviceaccounts", "system:authenticated"],
        );
        named(pods, account, "kube-system-service-accounts", "workload-high").await;
        // A schema without its level has no effect; then it has, from the next request on.
        person.create(SCHEMAS, &schema("bobs", "tiny", "bob")).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        named(pods, bob(), "global-default", "global-default").await;
        person.create(LEVELS, &tiny()).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        named(pods, bob(), "bobs", "tiny").await;
        person.delete(&format!("{SCHEMAS}/bobs"), "Background").await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        named(pods, bob(), "global-default", "global-default").await;
    })
    .await;
}

/// A handler that answers when the gate lets it.
fn slow(
    gate: &Arc<Semaphore>,
) -> impl Fn(Request<RequestBody>) -> BoxFuture<'static, http::Response<Body>> + use<> {
    let gate = gate.clone();
    move |_| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            http::Response::new(Body::once("done"))
        }
        .boxed()
    }
}

/// A request of bob's that runs.
async fn hold(server: &ApiServer) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let server = server.clone();
    running.spawn(async move { drop(get(&server, "/slow", bob()).await) });
    tokio::time::sleep(Duration::from_millis(1)).await;
    running
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_seat_or_is_refused_and_others_are_not_delayed() {
    let gate = Arc::new(Semaphore::new(0));
    let metrics = Metrics::new();
    let plane = ControlPlane::builder().simulated(0).controllers(false);
    let plane = plane
        .route("/slow", Arc::new(slow(&gate)))
        .request_limits(RequestLimits::default().reads(30).writes(30))
        .serve_metrics(&metrics)
        .build();
    with_server(plane, async |server, person| {
        person.create(LEVELS, &tiny()).await;
        person.create(SCHEMAS, &schema("bobs", "tiny", "bob")).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut slow = JoinSet::new();
        for _ in 0..2 {
            let server = server.clone();
            slow.spawn(async move { get(&server, "/slow", bob()).await });
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // One runs, one waits, and there is no room for a third.
        let (code, headers, body) = get(&server, "/version", bob()).await;
        assert_eq!((code, &*headers[2]), (429, "1"));
        assert_eq!(body, "Too many requests, please try again later.\n");
        assert!(!headers[0].is_empty() && !headers[1].is_empty());
        let amy = Identity::new("amy", ["system:authenticated"]);
        assert_eq!(get(&server, "/version", amy).await.0, 200);
        // The pages and the metrics show it.
        let page = async |name: &str| {
            let page = get(&server, &format!("{DUMPS}/{name}"), Identity::admin()).await.2;
            // The widths of columns depend on all rows.
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
            format!("\n{}", page.lines().map(words).collect::<String>())
        };
        let levels = page("dump_priority_levels").await;
        assert!(levels.contains("\ntiny, 1, false, false, 1, 1, 1, 1, 0, 0\n"), "{levels}");
        // The request for the page runs in the exempt level.
        assert!(levels.contains("\nexempt, 0, false, false, 0, 1, "), "{levels}");
        let queues = page("dump_queues").await;
        assert!(queues.contains("\ntiny, 0, 1, 1, 1, "), "{queues}");
        let requests = page("dump_requests?includeRequestDetails=1").await;
        assert!(requests.contains("\ntiny, bobs, 0, 0, "), "{requests}");
        assert!(requests.trim_end().ends_with(", bob, get, /slow, , , , ,"), "{requests}");
        let shown = metrics.prometheus();
        for line in [
            "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"tiny\",flow_schema=\"bobs\"} 1",
            "apiserver_flowcontrol_current_executing_requests{priority_level=\"tiny\",flow_schema=\"bobs\"} 1",
            "apiserver_flowcontrol_rejected_requests_total{priority_level=\"tiny\",flow_schema=\"bobs\",reason=\"queue-full\"} 1",
            "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"tiny\"} 1",
            "apiserver_flowcontrol_priority_level_seat_utilization_count{phase=\"executing\",priority_level=\"tiny\"} ",
            "apiserver_flowcontrol_priority_level_request_utilization_count{phase=\"waiting\",priority_level=\"tiny\"} ",
        ] {
            assert!(shown.contains(line), "{line}\n{shown}");
        }
        // The end of the first lets the second run.
        gate.add_permits(2);
        while let Some(answer) = slow.join_next().await {
            assert_eq!(answer.unwrap().0, 200);
        }
        // A request that waits for too long is refused, and one whose client goes away is gone.
        let mut held = JoinSet::new();
        let of_bob = server.clone();
        held.spawn(async move { get(&of_bob, "/slow", bob()).await });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let begun = tokio::time::Instant::now();
        assert_eq!(get(&server, "/version", bob()).await.0, 429);
        assert_eq!(begun.elapsed().as_secs(), 15);
        let gone = tokio::time::timeout(Duration::from_secs(1), get(&server, "/version", bob()));
        assert!(gone.await.is_err());
        let levels = page("dump_priority_levels").await;
        assert!(levels.contains("\ntiny, 0, false, false, 0, 1, 3, 3, 1, 1\n"), "{levels}");
        // A watch gives its seat back once it is established.
        gate.add_permits(1);
        held.join_next().await.unwrap().unwrap();
        let mut request = Request::get("/api/v1/namespaces/default/pods?watch=1")
            .body(Full::<Bytes>::default())
            .unwrap();
        request.extensions_mut().insert(bob());
        let watch = server.serve(request).await;
        assert_eq!(watch.status(), 200);
        assert_eq!(get(&server, "/version", bob()).await.0, 200);
        drop(watch);
        let shown = metrics.prometheus();
        let count = |family: &str, label: &str| {
            let line = format!(
                "apiserver_flowcontrol_{family}_count{{priority_level=\"tiny\",flow_schema=\"bobs\"{label}}} "
            );
            let found = shown.lines().find_map(|shown| shown.strip_prefix(&line));
            found.unwrap_or_else(|| panic!("no {line}\n{shown}")).parse::<u32>().unwrap()
        };
        assert_eq!(count("request_execution_seconds", ",type=\"watch\""), 1);
        assert_eq!(count("request_execution_seconds", ",type=\"regular\""), 4);
        // Three were refused: one at once, which came to no queue.
        assert_eq!(count("work_estimated_seats", ""), 8);
        assert_eq!(count("request_queue_length_after_enqueue", ""), 7);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_level_without_shares_serves_one_request_at_a_time() {
    let plane = ControlPlane::builder().simulated(0).controllers(false).build();
    with_server(plane, async |server, person| {
        let mut level = tiny();
        level["spec"]["limited"] = json!({
            "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        });
        person.create(LEVELS, &level).await;
        person.create(SCHEMAS, &schema("bobs", "tiny", "bob")).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(get(&server, "/version", bob()).await.0, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_priority_and_fairness_reads_and_writes_have_plain_limits() {
    let gate = Arc::new(Semaphore::new(0));
    let plane = |n_reads| {
        let limits = RequestLimits::default().fair(false).reads(n_reads);
        let plane = ControlPlane::builder().simulated(0).controllers(false);
        plane.route("/slow", Arc::new(slow(&gate))).request_limits(limits).build()
    };
    with_server(plane(1), async |server, _| {
        let _running = hold(&server).await;
        let (code, headers, _) = get(&server, "/version", bob()).await;
        assert_eq!((code, headers), (429, [String::new(), String::new(), "1".to_owned()]));
        assert_eq!(get(&server, "/version", Identity::admin()).await.0, 200);
        let page = format!("{DUMPS}/dump_queues");
        assert_eq!(get(&server, &page, Identity::admin()).await.0, 404);
    })
    .await;
    with_server(plane(0), async |server, _| {
        let _running = hold(&server).await;
        assert_eq!(get(&server, "/version", bob()).await.0, 200, "zero is no limit");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_schema_says_whether_its_level_exists() {
    let plane = ControlPlane::builder().simulated(0).build();
    with_server(plane, async |_, person| {
        let path = format!("{SCHEMAS}/bobs");
        let dangling = |found: &Option<Value>| {
            let condition = found.as_ref().map(|found| found["status"]["conditions"][0].clone());
            condition.map(|c| (c["status"].clone(), c["reason"].clone(), c["message"].clone()))
        };
        let text = |what: &str| {
            json!(format!("This FlowSchema references the PriorityLevelConfiguration object named \"tiny\" {what}"))
        };
        let missing = Some((json!("True"), json!("NotFound"), text("but there is no such object")));
        let present = Some((json!("False"), json!("Found"), text("and it exists")));
        person.create(SCHEMAS, &schema("bobs", "tiny", "bob")).await;
        person.until(&path, "it is dangling", |found| dangling(found) == missing).await;
        person.create(LEVELS, &tiny()).await;
        person.until(&path, "it has its level", |found| dangling(found) == present).await;
        person.delete(&format!("{LEVELS}/tiny"), "Background").await;
        person.until(&path, "it is dangling again", |found| dangling(found) == missing).await;
    })
    .await;
}
