//! The audit log of a control plane: which requests are in it, and what of them.

use crate::rbac::{send, send_with};
use http::Method;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::ApiServer;
use setpoint::audit::{Audit, Destination, LogFile, LogFileOptions, Policy};
use setpoint::object::time::{Clock, Timestamp};
use setpoint::registry::Identity;
use tokio_util::sync::CancellationToken;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs a control plane with this policy while `act` uses it; the lines of its log.
async fn logged(rules: &str, act: impl AsyncFnOnce(&ApiServer)) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}");
    let plane = ControlPlane::builder().simulated(0).rbac();
    let clock = Clock::starting_at(Timestamp::from_secs(1_800_000_000));
    let file = LogFile::open(&path, LogFileOptions::default(), clock).unwrap();
    let (sink, worker) = Audit::new(Policy::parse(&policy).unwrap(), Destination::File(file));
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

fn jane() -> Identity {
    Identity { uid: "7".into(), ..Identity::new("jane", ["system:masters"]) }
}

fn map(name: &str) -> Value {
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
    let events: Vec<Value> = events.into_iter().map(plain).collect();
    let expected = [create("RequestReceived"), created, get("RequestReceived"), absent];
    assert_eq!(events, expected);
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
    })
    .await;
    let [created, updated, version, deleted, large] = &events[..] else { panic!("{events:#?}") };
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

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nobody() {
    let clock = Clock::wall();
    let file = LogFile::open(
        "/dev/full",
        LogFileOptions { bytes_max: 0, ..LogFileOptions::default() },
        clock,
    );
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
    let (sink, worker) =
        Audit::new(Policy::parse(policy).unwrap(), Destination::File(file.unwrap()));
    let plane = ControlPlane::builder().simulated(0).audit(sink.clone()).build();
    let server = plane.server().clone();
    let (stop, stop_log) = (CancellationToken::new(), CancellationToken::new());
    let acting = async {
        let (status, _) = send(&server, jane(), Method::POST, MAPS, map("own")).await;
        assert_eq!(status, 201);
        stop.cancel();
    };
    let served = async {
        tokio::join!(plane.run(stop.clone()), acting).0.unwrap();
        stop_log.cancel();
    };
    tokio::join!(served, worker.run(stop_log.clone()));
    assert!(sink.dropped() > 0);
}
