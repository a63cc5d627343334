//! DELETE (spec: api-server §5.5, §11).
use crate::admission::server as server_with;
use crate::definitions::{DEFINITIONS, define, definition};
use crate::server::{Server, refused};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_registry::{Admission, DeleteOptions, ListOptions, PropagationPolicy, Review, Verb};
use setpoint_store::{Op, Store as _, Txn};
use std::sync::Arc;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = "/api/v1/namespaces/default/pods/p";

async fn with_map() -> (Server, Value) {
    let server = Server::start().await;
    let stored = server.create(MAPS, json!({"metadata": {"name": "a"}})).await.unwrap();
    (server, stored)
}
async fn with_pod(node: &str) -> (Server, Value) {
    let server = Server::start().await;
    let mut sent = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    if !node.is_empty() {
        sent["spec"]["nodeName"] = node.into();
    }
    let stored = server.create(PODS, sent).await.unwrap();
    (server, stored)
}
fn propagation(policy: PropagationPolicy) -> DeleteOptions {
    DeleteOptions { propagation: Some(policy), ..DeleteOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn an_object_without_finalizers_is_removed_at_once() {
    let (server, _) = with_map().await;
    assert_eq!(server.delete(MAP).await.unwrap(), None, "a Success Status");
    assert_eq!(refused(server.delete(MAP).await), r#"404 configmaps "a" not found"#);
}

#[tokio::test(start_paused = true)]
async fn preconditions_name_the_kind() {
    let (server, stored) = with_map().await;
    let (uid, version) = (&stored["metadata"]["uid"], &stored["metadata"]["resourceVersion"]);
    let options = DeleteOptions { uid: Some("u".to_owned()), ..DeleteOptions::default() };
    let error = server.delete_with(MAP, &options).await.unwrap_err();
    assert_eq!(
        error.0.message,
        format!(
            r#"Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (u) does not match the UID in record ({}). The object might have been deleted and then recreated"#,
            uid.as_str().unwrap()
        )
    );
    assert_eq!(error.0.details.unwrap().kind, "ConfigMap");
    let options =
        DeleteOptions { resource_version: Some("1".to_owned()), ..DeleteOptions::default() };
    assert_eq!(
        refused(server.delete_with(MAP, &options).await),
        format!(
            r#"409 Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({}). The object might have been modified"#,
            version.as_str().unwrap()
        )
    );
}

/// Their deletion has a first step of its own, which checks them before the store does.
#[tokio::test(start_paused = true)]
async fn preconditions_of_namespaces_and_definitions_name_the_resource() {
    let server = Server::start().await;
    let namespace = json!({"metadata": {"name": "n"}});
    server.create("/api/v1/namespaces", namespace).await.unwrap();
    define(&server, definition("foos", "Foo", json!({}))).await;
    let definition = format!("{DEFINITIONS}/foos.ex.io");
    for (path, named) in [
        ("/api/v1/namespaces/n", r#"namespaces "n""#),
        (&*definition, r#"customresourcedefinitions.apiextensions.k8s.io "foos.ex.io""#),
    ] {
        let stored = server.get(path).await.unwrap();
        let meta = |member: &str| stored["metadata"][member].as_str().unwrap().to_owned();
        let options = DeleteOptions { uid: Some("u".to_owned()), ..DeleteOptions::default() };
        let error = server.delete_with(path, &options).await.unwrap_err();
        assert_eq!(
            error.0.message,
            format!(
                "Operation cannot be fulfilled on {named}: Precondition failed: UID in precondition: u, UID in object meta: {}",
                meta("uid")
            )
        );
        assert!(named.starts_with(&error.0.details.unwrap().kind));
        let options =
            DeleteOptions { resource_version: Some("1".to_owned()), ..DeleteOptions::default() };
        assert_eq!(
            refused(server.delete_with(path, &options).await),
            format!(
                "409 Operation cannot be fulfilled on {named}: Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: {}",
                meta("resourceVersion")
            )
        );
    }
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn propagation_puts_finalizers_at_the_end() {
    let (server, _) = with_map().await;
    let deleted =
        server.delete_with(MAP, &propagation(PropagationPolicy::Foreground)).await.unwrap();
    assert_eq!(deleted.unwrap()["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let again = server.delete_with(MAP, &propagation(PropagationPolicy::Orphan)).await.unwrap();
    assert_eq!(again.unwrap()["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(
        server.delete_with(MAP, &propagation(PropagationPolicy::Background)).await.unwrap(),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_there_twice_is_there() {
    let server = Server::start().await;
    let twice = json!(["orphan", "orphan", "ex.io/f"]);
    server.create(MAPS, json!({"metadata": {"name": "a", "finalizers": twice}})).await.unwrap();
    let deleted = server.delete_with(MAP, &propagation(PropagationPolicy::Orphan)).await.unwrap();
    assert_eq!(deleted.unwrap()["metadata"]["finalizers"], twice);
}

/// The oldest way to ask for dependents to be deleted means to wait for them, if it is a namespace.
#[tokio::test(start_paused = true)]
async fn first_delete_of_a_namespace_that_orphans_nothing_is_in_the_foreground() {
    let server = Server::start().await;
    for (name, orphans, policy, finalizers) in [
        ("a", Some(false), None, json!(["foregroundDeletion"])),
        ("b", Some(true), None, json!(["orphan"])),
        ("c", None, Some(PropagationPolicy::Foreground), json!(["foregroundDeletion"])),
        ("d", None, Some(PropagationPolicy::Orphan), json!(["orphan"])),
        ("e", None, Some(PropagationPolicy::Background), Value::Null),
        ("f", None, None, Value::Null),
    ] {
        let namespace = json!({"metadata": {"name": name}});
        server.create("/api/v1/namespaces", namespace).await.unwrap();
        let options = DeleteOptions {
            orphan_dependents: orphans,
            propagation: policy,
            ..DeleteOptions::default()
        };
        let path = format!("/api/v1/namespaces/{name}");
        let deleted = server.delete_with(&path, &options).await.unwrap().unwrap();
        assert_eq!(deleted["metadata"]["finalizers"], finalizers, "{name}");
        assert_eq!(deleted["status"]["phase"], "Terminating");
    }
}

/// As on kube-apiserver: such a finalizer held the object forever.
#[tokio::test(start_paused = true)]
async fn finalizers_of_the_collector_hold_no_event() {
    let server = Server::start().await;
    let events = "/api/v1/namespaces/default/events";
    let event = |finalizers: Value| {
        json!({"metadata": {"name": "e", "finalizers": finalizers},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}})
    };
    let path = format!("{events}/e");
    server.create(events, event(json!(["foregroundDeletion"]))).await.unwrap();
    let options = propagation(PropagationPolicy::Orphan);
    assert_eq!(server.delete_with(&path, &options).await.unwrap(), None);
    server.create(events, event(json!(["ex.io/x", "orphan"]))).await.unwrap();
    let held = server.delete(&path).await.unwrap().unwrap();
    assert_eq!(held["metadata"]["finalizers"], json!(["ex.io/x"]));
}

#[tokio::test(start_paused = true)]
async fn jobs_orphan_by_default_with_a_warning() {
    let server = Server::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "nginx"}]}}}});
    server.create(jobs, job).await.unwrap();
    let deleted = server.delete(&format!("{jobs}/j")).await.unwrap().unwrap();
    assert_eq!(deleted["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(deleted["metadata"]["generation"], 2);
    let warning = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
    assert_eq!(server.warnings(), [warning]);
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_jobs_that_finds_none_warns_too() {
    let warning = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let server = Server::start().await;
    let refusal = refused(server.delete(&format!("{jobs}/absent")).await);
    assert_eq!(refusal, r#"404 jobs.batch "absent" not found"#);
    assert_eq!(server.warnings(), [warning]);
    let server = Server::start().await;
    server.delete_collection(jobs).await.unwrap();
    assert_eq!(server.warnings(), [warning]);
    let server = Server::start().await;
    let orphan = propagation(PropagationPolicy::Orphan);
    server.delete_with(&format!("{jobs}/absent"), &orphan).await.unwrap_err();
    assert!(server.warnings().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_is_removed_at_once_and_returned() {
    let (server, _) = with_pod("").await;
    let last = server.delete(POD).await.unwrap().unwrap();
    assert_eq!(last["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(last["metadata"]["resourceVersion"], server.revision().await.to_string());
    assert_eq!(refused(server.get(POD).await), r#"404 pods "p" not found"#);
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_gets_a_grace_period_that_can_only_be_shortened() {
    let (server, _) = with_pod("n").await;
    let grace =
        |seconds| DeleteOptions { grace_period_seconds: Some(seconds), ..DeleteOptions::default() };
    let marked = server.delete(POD).await.unwrap().unwrap();
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-11-20T07:00:30Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["generation"], 2);
    assert_eq!(server.delete(POD).await.unwrap(), Some(marked.clone()));
    assert_eq!(server.delete_with(POD, &grace(60)).await.unwrap(), Some(marked));
    let sooner = server.delete_with(POD, &grace(10)).await.unwrap().unwrap();
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-11-20T07:00:10Z");
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 10);
    assert_eq!(sooner["metadata"]["generation"], 2);
    let last = server.delete_with(POD, &grace(0)).await.unwrap().unwrap();
    assert_eq!(last["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(refused(server.get(POD).await), r#"404 pods "p" not found"#);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_loses_its_last_finalizer_has_no_list_of_them() {
    let (server, _) = with_pod("n").await;
    server.patch(POD, json!({"metadata": {"finalizers": ["orphan"]}})).await.unwrap();
    let options = propagation(PropagationPolicy::Background);
    let pod = server.delete_with(POD, &options).await.unwrap().unwrap();
    assert_eq!(pod["metadata"].get("finalizers"), None, "{pod}");
}

#[tokio::test(start_paused = true)]
async fn a_delete_ends_one_whose_second_commit_failed() {
    let (server, stored) = with_pod("n").await;
    let mut marked = stored;
    marked["metadata"]["deletionTimestamp"] = "2026-11-20T07:00:00Z".into();
    marked["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    marked["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let op = Op::Put("/registry/pods/default/p".into(), marked.to_string().into());
    server.store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    server.delete_with(POD, &now).await.unwrap();
    assert_eq!(refused(server.get(POD).await), r#"404 pods "p" not found"#);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_removed_when_it_is_finalized() {
    let server = Server::start().await;
    let (all, path) = ("/api/v1/namespaces", "/api/v1/namespaces/n");
    let created =
        server.create(all, json!({"metadata": {"name": "n", "namespace": "x"}})).await.unwrap();
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"]["phase"], "Active");
    assert_eq!(created["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
    assert!(created["metadata"].get("namespace").is_none());
    let marked = server.delete(path).await.unwrap().unwrap();
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert!(marked["metadata"].get("deletionGracePeriodSeconds").is_none());
    assert_eq!(server.delete(path).await.unwrap(), Some(marked.clone()));
    let error = server
        .create("/api/v1/namespaces/n/configmaps", json!({"metadata": {"generateName": "a-"}}))
        .await
        .unwrap_err();
    assert_eq!(
        error.0.message,
        r#"configmaps "a-" is forbidden: unable to create new content in namespace n because it is being terminated"#
    );
    let cause = &error.0.details.unwrap().causes[0];
    assert_eq!(
        (cause.reason.as_str(), cause.field.as_str()),
        ("NamespaceTerminating", "metadata.namespace")
    );
    let mut finalized = marked;
    finalized["spec"]["finalizers"] = json!([]);
    server.update("/api/v1/namespaces/n/finalize", finalized).await.unwrap();
    assert_eq!(refused(server.get(path).await), r#"404 namespaces "n" not found"#);
    assert_eq!(
        refused(server.delete("/api/v1/namespaces/default").await),
        r#"403 namespaces "default" is forbidden: this namespace may not be deleted"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_delete_changes_nothing() {
    let (server, stored) = with_map().await;
    let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    assert_eq!(server.delete_with(MAP, &dry).await.unwrap(), None);
    let dry = DeleteOptions { dry_run: true, ..propagation(PropagationPolicy::Foreground) };
    assert!(server.delete_with(MAP, &dry).await.unwrap().is_some());
    assert_eq!(server.get(MAP).await.unwrap(), stored);
}

#[tokio::test(start_paused = true)]
async fn a_deletecollection_returns_the_objects_as_they_were() {
    let (server, _) = with_map().await;
    server
        .create(MAPS, json!({"metadata": {"name": "b", "finalizers": ["ex.io/f"]}}))
        .await
        .unwrap();
    assert_eq!(server.delete_collection(MAPS).await.unwrap(), 2);
    assert_eq!(refused(server.get(MAP).await), r#"404 configmaps "a" not found"#);
    let held = server.get(&format!("{MAPS}/b")).await.unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
}

/// Refuses deletes of objects with a label, after a while.
#[derive(Debug)]
struct Keeps;
impl Admission for Keeps {
    fn name(&self) -> &str {
        "Keeps"
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            tokio::task::yield_now().await;
            match review.old() {
                Some(old) if old["metadata"]["labels"]["keep"] == "yes" => {
                    Err(review.forbidden("kept"))
                }
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletecollection_ends_at_the_first_refusal() {
    let server = server_with(|builder| builder.admission(Arc::new(Keeps))).await;
    for (name, keep) in [("a", "no"), ("b", "yes"), ("c", "no"), ("d", "no")] {
        let map = json!({"metadata": {"name": name, "labels": {"keep": keep}}});
        server.create(MAPS, map).await.unwrap();
    }
    let refusal = r#"403 configmaps "Unknown" is forbidden: kept"#;
    assert_eq!(refused(server.delete_collection(MAPS).await.map(|_| Value::Null)), refusal);
    assert_eq!(refused(server.get(MAP).await), r#"404 configmaps "a" not found"#);
    for name in ["b", "c", "d"] {
        server.get(&format!("{MAPS}/{name}")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletecollection_ends_at_an_object_that_a_precondition_excludes() {
    let (server, _) = with_map().await;
    let second = server.create(MAPS, json!({"metadata": {"name": "b"}})).await.unwrap();
    let uid = second["metadata"]["uid"].as_str().map(str::to_owned);
    let options = DeleteOptions { uid, ..DeleteOptions::default() };
    let request = server.request(Verb::DeleteCollection, MAPS);
    let list = ListOptions::default();
    let deleted = server.registry.delete_collection(&request, &list, &options).await;
    assert_eq!(deleted.unwrap_err().code(), 409);
    for name in ["a", "b"] {
        server.get(&format!("{MAPS}/{name}")).await.unwrap();
    }
}
