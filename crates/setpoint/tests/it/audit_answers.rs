//! What the audit log has of answers that are no objects.
use crate::audit_log::{MAPS, jane, logged, map};
use crate::rbac::send;
use futures::future::{BoxFuture, FutureExt as _};
use http::Method;
use serde_json::{Value, json};
use setpoint::apiserver::ApiServer;
use setpoint::audit::{
    Audit, AuditLogOptions, Destination, LogFile, LogFileOptions, Policy, QUEUE_BYTES_MAX,
};
use setpoint::object::ApiError;
use setpoint::object::time::{Clock, Timestamp};
use setpoint::registry::{Admission, Identity, Review};
use setpoint::{ControlPlane, ControlPlaneBuilder};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn bindings_and_evictions_succeed_with_a_status() {
    let pods = "/api/v1/namespaces/default/pods";
    let events = logged("- {level: Metadata, users: [jane]}", async |server| {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        send(server, Identity::admin(), Method::POST, pods, pod).await;
        let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
        send(server, jane(), Method::POST, &format!("{pods}/p/binding"), binding).await;
        let eviction = json!({"metadata": {"name": "p"}});
        send(server, jane(), Method::POST, &format!("{pods}/p/eviction"), eviction).await;
    })
    .await;
    let ends = events.iter().filter(|event| event["stage"] == "ResponseComplete");
    let ends: Vec<&Value> = ends.map(|event| &event["responseStatus"]).collect();
    let success = json!({"metadata": {}, "status": "Success", "code": 201});
    assert_eq!(ends, [&success, &success]);
}

#[tokio::test]
async fn a_refused_document_says_why() {
    let events = logged("- {level: Metadata, users: [jane]}", async |server| {
        send(server, jane(), Method::POST, "/api", Value::Null).await;
    })
    .await;
    let end = &events.last().unwrap()["responseStatus"];
    assert_eq!(end["message"], "the server does not allow this method on the requested resource");
    assert_eq!((&end["reason"], &end["code"]), (&json!("MethodNotAllowed"), &json!(405)));
}

#[tokio::test]
async fn requests_for_deprecated_versions_are_marked() {
    let events = logged("- {level: Metadata, resources: [{group: \"\"}]}\n", async |server| {
        for resource in ["endpoints", "configmaps"] {
            let path = format!("/api/v1/namespaces/default/{resource}/x");
            send(server, jane(), Method::GET, &path, Value::Null).await;
        }
    })
    .await;
    let marks = |resource: &str| {
        let is_it = |event: &&Value| {
            event["objectRef"]["resource"] == resource
                && event["user"]["username"] == "jane"
                && event["stage"] == "ResponseComplete"
        };
        let event = events.iter().find(is_it).unwrap_or_else(|| panic!("{events:#?}"));
        ["k8s.io/deprecated", "k8s.io/removed-release"]
            .map(|name| event["annotations"][name].clone())
    };
    assert_eq!(marks("endpoints"), [json!("true"), Value::Null]);
    assert_eq!(marks("configmaps"), [Value::Null, Value::Null]);
}

#[tokio::test]
async fn options_of_a_deletion_have_their_kind() {
    let rules = "- {level: Request, verbs: [delete], users: [jane], omitStages: [RequestReceived]}";
    let events = logged(rules, async |server| {
        let sent = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
        for options in [json!({"propagationPolicy": "Foreground"}), sent, Value::Null] {
            send(server, jane(), Method::DELETE, &format!("{MAPS}/absent"), options).await;
        }
    })
    .await;
    let options: Vec<&Value> = events.iter().map(|event| &event["requestObject"]).collect();
    let of = |member: &str, value: Value| json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", member: value});
    let expected =
        [of("propagationPolicy", "Foreground".into()), of("gracePeriodSeconds", 0.into())];
    assert_eq!(options, [&expected[0], &expected[1], &Value::Null]);
}

/// Nobody is asked who sends it.
#[tokio::test]
async fn of_a_request_with_a_malformed_timeout_the_refusal_is_recorded() {
    let events = logged("- {level: Metadata, namespaces: [far]}", async |server| {
        let path = "/api/v1/namespaces/far/pods/p?timeout=abc";
        let (code, _) = send(server, jane(), Method::GET, path, Value::Null).await;
        assert_eq!(code, 400);
    })
    .await;
    let [event] = &events[..] else { panic!("{events:#?}") };
    assert_eq!((&event["stage"], &event["verb"]), (&json!("ResponseStarted"), &json!("get")));
    assert_eq!((&event["user"], &event["level"]), (&json!({}), &json!("Metadata")));
    assert_eq!(event["objectRef"]["name"], "p");
    let message = r#"invalid timeout specified in the request URL - time: invalid duration "abc""#;
    let status = json!({
        "metadata": {}, "status": "Failure", "message": message, "reason": "BadRequest", "code": 400,
    });
    assert_eq!(event["responseStatus"], status);
}

/// Runs a control plane whose audit log nobody writes; how many events find its queue full.
async fn overflown(plane: ControlPlaneBuilder, act: impl AsyncFnOnce(&ApiServer)) -> u64 {
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata, namespaces: [default]}]}";
    let policy = Policy::parse(policy).unwrap();
    let (sink, _worker) = Audit::log(policy, Destination::Stdout, AuditLogOptions::default());
    let plane = plane.simulated(0).audit(sink.clone()).build();
    let server = plane.server().clone();
    let stop = CancellationToken::new();
    let acting = async {
        act(&server).await;
        stop.cancel();
    };
    tokio::join!(plane.run(stop.clone()), acting).0.unwrap();
    sink.stats().overflown
}

/// Annotates with a long text.
#[derive(Debug)]
struct LongAnnotations;
impl Admission for LongAnnotations {
    fn name(&self) -> &str {
        "long.example.com"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        &*review.resource().resource == "configmaps"
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        review.annotate("long", "x".repeat(1 << 20));
        async { Ok(()) }.boxed()
    }
}

#[tokio::test]
async fn users_and_annotations_count_in_the_queue() {
    let n = QUEUE_BYTES_MAX >> 20;
    let lost = overflown(ControlPlane::builder(), async |server| {
        let group = "g".repeat(1 << 20);
        for _ in 0..n {
            let jane = Identity::new("jane", ["system:masters", &group]);
            send(server, jane, Method::GET, MAPS, Value::Null).await;
        }
    });
    assert!(lost.await > 0);
    let plane = ControlPlane::builder().admission(Arc::new(LongAnnotations));
    let lost = overflown(plane, async |server| {
        for nth in 0..n {
            send(server, jane(), Method::POST, MAPS, map(&format!("m{nth}"))).await;
        }
    });
    assert!(lost.await > 0);
}

#[tokio::test]
async fn the_worker_compresses_old_files_beside_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let clock = Clock::starting_at(Timestamp::from_secs(1_800_000_000));
    let options = LogFileOptions { bytes_max: 1, compress: true, ..LogFileOptions::default() };
    let file = LogFile::open(&path, options, clock).unwrap();
    // What a former process left.
    let left = folder.path().join("audit-2027-01-14T08-00-00.000000Z.log");
    std::fs::write(&left, "x").unwrap();
    let policy =
        "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata, users: [jane]}]}";
    let policy = Policy::parse(policy).unwrap();
    let (sink, worker) = Audit::log(policy, Destination::File(file), AuditLogOptions::default());
    let plane = ControlPlane::builder().audit(sink.clone()).build();
    let server = plane.server().clone();
    let (stop, stop_log) = (CancellationToken::new(), CancellationToken::new());
    let plain = || {
        let names = std::fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.ends_with(".gz")).count()
    };
    let acting = async {
        send(&server, jane(), Method::GET, MAPS, Value::Null).await;
        // Both lines have their own files, of which one is old.
        while sink.stats().events < 2 || plain() > 1 || left.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.cancel();
    };
    let served = async {
        tokio::join!(plane.run(stop.clone()), acting).0.unwrap();
        stop_log.cancel();
    };
    tokio::join!(served, worker.run(stop_log.clone()));
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}
