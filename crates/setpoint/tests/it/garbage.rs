//! Garbage collection, observed by a client that deletes objects.

use crate::plane::{
    NETWORKS_CRD, Person, map, maps, network, networks, owner, with_person, with_person_of,
};
use futures::future::BoxFuture;
use kube_client::client::Body;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint_controllers::gc::{FIRST_LISTS_MAX, ObjectEvent, ObjectFeed};
use setpoint_controllers::{GarbageCollector, NamespaceController, Setup};
use setpoint_log::testing::{self, Lines};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Waits long enough for every reaction to happen.
async fn quiet() {
    tokio::time::sleep(Duration::from_secs(120)).await;
}

impl Person {
    async fn map(&self, namespace: &str, name: &str, owners: &[Value]) -> Value {
        self.create(&maps(namespace, ""), &map(name, owners)).await
    }

    async fn namespace(&self, name: &str) -> Value {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create("/api/v1/namespaces", &namespace).await
    }

    /// What prevents the removal of a namespace, by its conditions.
    async fn problems(&self, namespace: &str) -> Vec<String> {
        let path = format!("/api/v1/namespaces/{namespace}");
        let namespace = self.get(&path).await.expect("something is held");
        assert_eq!(namespace["status"]["phase"], "Terminating");
        let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .filter(|condition| condition["status"] == "True")
            .map(|condition| condition["message"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn names(&self, collection: &str) -> Vec<String> {
        let list = self.get(collection).await.unwrap();
        let names = list["items"].as_array().unwrap().iter();
        names.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn owners_of(object: &Value) -> usize {
    object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)
}

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_in_the_background() {
    with_person(async |person| {
        let a = person.map("default", "a", &[]).await;
        let b = person.map("default", "b", &[owner(&a)]).await;
        person.map("default", "c", &[owner(&b)]).await;
        person.map("default", "bystander", &[]).await;
        quiet().await;
        assert_eq!(person.names(&maps("default", "")).await, ["a", "b", "bystander", "c"]);
        person.delete(&maps("default", "a"), "Background").await;
        assert!(person.get(&maps("default", "a")).await.is_none(), "the owner goes at once");
        person.gone(&maps("default", "b")).await;
        person.gone(&maps("default", "c")).await;
        assert!(person.get(&maps("default", "bystander")).await.is_some());
    })
    .await;
}

/// What is stored beside a Service, for its addresses and ports, is not the Service.
#[tokio::test(start_paused = true)]
async fn dependents_with_records_of_the_server_are_collected_and_orphaned() {
    with_person(async |person| {
        let services = |name: &str| format!("/api/v1/namespaces/default/services/{name}");
        let service = |name: &str, kind: &str, owner: Value| {
            json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": name, "ownerReferences": [owner]},
                "spec": {"type": kind, "ports": [{"port": 80}]}})
        };
        // The collector starts with the first object that has an owner.
        let a = person.map("default", "a", &[]).await;
        person.map("default", "b", &[owner(&a)]).await;
        quiet().await;
        for (policy, remains) in [("Background", false), ("Foreground", false), ("Orphan", true)] {
            let owned = person.map("default", "o", &[]).await;
            for kind in ["ClusterIP", "NodePort", "LoadBalancer"] {
                let name = kind.to_lowercase();
                person
                    .create(
                        services("").trim_end_matches('/'),
                        &service(&name, kind, owner(&owned)),
                    )
                    .await;
            }
            quiet().await;
            person.delete(&maps("default", "o"), policy).await;
            quiet().await;
            for name in ["clusterip", "nodeport", "loadbalancer"] {
                let found = person.get(&services(name)).await;
                assert_eq!(found.as_ref().map(owners_of), remains.then_some(0), "{policy} {name}");
            }
        }
    })
    .await;
}

/// A kind that is served in other versions only is not known: its object may be there.
#[tokio::test(start_paused = true)]
async fn an_owner_of_a_version_that_is_not_served_is_not_missing() {
    with_person(async |person| {
        let owned = person.map("default", "owner", &[]).await;
        for (name, version, kind) in [
            ("a", "v2", "ConfigMap"),
            ("b", "rbac.authorization.k8s.io/v9", "Role"),
            ("c", "v1", "Nope"),
        ] {
            let mut other = owner(&owned);
            other["apiVersion"] = version.into();
            other["kind"] = kind.into();
            person.map("default", name, &[other]).await;
        }
        quiet().await;
        person.delete(&maps("default", "owner"), "Background").await;
        quiet().await;
        assert_eq!(person.names(&maps("default", "")).await, ["a", "b", "c"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn owner_waits_for_its_dependents_in_the_foreground() {
    with_person(async |person| {
        let a = person.map("default", "a", &[]).await;
        let mut b = map("b", &[owner(&a)]);
        b["metadata"]["finalizers"] = json!(["example.com/hold"]);
        person.create(&maps("default", ""), &b).await;
        person.map("default", "c", &[owner(&a)]).await;
        quiet().await;
        person.delete(&maps("default", "a"), "Foreground").await;
        person.gone(&maps("default", "c")).await;
        quiet().await;
        let a = person.get(&maps("default", "a")).await.expect("b still blocks it");
        assert_eq!(a["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        let b = person.get(&maps("default", "b")).await.unwrap();
        assert!(b["metadata"]["deletionTimestamp"].is_string());
        person.patch(&maps("default", "b"), &json!({"metadata": {"finalizers": null}})).await;
        person.gone(&maps("default", "b")).await;
        person.gone(&maps("default", "a")).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_without_their_reference() {
    with_person(async |person| {
        let a = person.map("default", "a", &[]).await;
        let b = person.map("default", "b", &[owner(&a)]).await;
        person.map("default", "c", &[owner(&b), owner(&a)]).await;
        quiet().await;
        person.delete(&maps("default", "a"), "Orphan").await;
        person.gone(&maps("default", "a")).await;
        quiet().await;
        assert_eq!(owners_of(&person.get(&maps("default", "b")).await.unwrap()), 0);
        assert_eq!(owners_of(&person.get(&maps("default", "c")).await.unwrap()), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deletion_right_after_creation_finds_its_dependents() {
    // The collector has not seen the dependents yet when the owner is deleted.
    with_person(async |person| {
        for policy in ["Background", "Foreground", "Orphan"] {
            let a = person.map("default", "a", &[]).await;
            person.map("default", "b", &[owner(&a)]).await;
            person.delete(&maps("default", "a"), policy).await;
            person.gone(&maps("default", "a")).await;
            if policy == "Orphan" {
                quiet().await;
                let b = person.get(&maps("default", "b")).await.expect(policy);
                assert_eq!(owners_of(&b), 0, "{policy}");
            } else {
                person.gone(&maps("default", "b")).await;
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn owner_in_another_namespace_does_not_count() {
    with_person(async |person| {
        person.namespace("other").await;
        let a = person.map("other", "a", &[]).await;
        quiet().await;
        person.map("default", "b", &[owner(&a)]).await;
        person.gone(&maps("default", "b")).await;
        assert!(person.get(&maps("other", "a")).await.is_some());
        let events = person.get("/api/v1/namespaces/default/events").await.unwrap();
        let event = &events["items"][0];
        assert_eq!(event["reason"], "OwnerRefInvalidNamespace", "{events:#}");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["involvedObject"]["name"], "b");
        let uid = a["metadata"]["uid"].as_str().unwrap();
        assert_eq!(
            event["message"],
            format!(
                "ownerRef [v1/ConfigMap, namespace: default, name: a, uid: {uid}] does not exist in namespace \"default\""
            )
        );
        // An object of the cluster has no owner in a namespace, and stays.
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r", "ownerReferences": [owner(&a)]}});
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        person.create(roles, &role).await;
        quiet().await;
        assert!(person.get(&format!("{roles}/r")).await.is_some());
        let events = person.get("/api/v1/namespaces/default/events").await.unwrap();
        let events = events["items"].as_array().unwrap().iter();
        let of_role = |event: &&Value| event["involvedObject"]["kind"] == "ClusterRole";
        let event = events.clone().find(of_role).unwrap_or_else(|| panic!("{events:#?}"));
        assert_eq!(event["involvedObject"]["namespace"], Value::Null);
        assert_eq!(
            event["message"],
            format!(
                "ownerRef [v1/ConfigMap, namespace: , name: a, uid: {uid}] does not exist in namespace \"\""
            )
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn cycles_are_deleted() {
    with_person(async |person| {
        for policy in ["Foreground", "Background"] {
            let a = person.map("default", "a", &[]).await;
            let b = person.map("default", "b", &[owner(&a)]).await;
            let patch = json!({"metadata": {"ownerReferences": [owner(&b)]}});
            person.patch(&maps("default", "a"), &patch).await;
            quiet().await;
            person.delete(&maps("default", "a"), policy).await;
            person.gone(&maps("default", "a")).await;
            person.gone(&maps("default", "b")).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn absent_owner_does_not_count() {
    with_person(async |person| {
        let absent = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "11111111-2222-3333-4444-555555555555"},
        });
        quiet().await;
        person.map("default", "b", &[owner(&absent)]).await;
        person.gone(&maps("default", "b")).await;
        // An object with the owner's name and another uid is another object.
        let a = person.map("default", "a", &[]).await;
        person.map("default", "b", &[owner(&absent)]).await;
        person.gone(&maps("default", "b")).await;
        // One existing owner of two is enough, and the reference to the other is removed.
        person.map("default", "b", &[owner(&absent), owner(&a)]).await;
        quiet().await;
        let b = person.get(&maps("default", "b")).await.expect("it has an owner");
        assert_eq!(b["metadata"]["ownerReferences"], json!([owner(&a)]));
        // Whether an object of an unserved kind exists is unknown.
        let unknown = json!({
            "apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "a", "uid": "1-2"},
        });
        person.map("default", "kept", &[owner(&unknown)]).await;
        quiet().await;
        assert!(person.get(&maps("default", "kept")).await.is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn custom_resources_own_and_are_owned() {
    with_person(async |person| {
        person.define_networks().await;
        let a = person.map("default", "a", &[]).await;
        let mut b = network("b", "10.0.0.0/24", "10.0.0.1");
        b["metadata"]["ownerReferences"] = json!([owner(&a)]);
        let b = person.create(&networks("default", ""), &b).await;
        person.map("default", "c", &[owner(&b)]).await;
        quiet().await;
        assert!(person.get(&maps("default", "c")).await.is_some());
        person.delete(&maps("default", "a"), "Foreground").await;
        person.gone(&maps("default", "a")).await;
        assert!(person.get(&networks("default", "b")).await.is_none());
        person.gone(&maps("default", "c")).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn definition_is_removed_after_its_instances() {
    with_person(async |person| {
        person.define_networks().await;
        let mut held = network("held", "10.0.0.0/24", "10.0.0.1");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let held = person.create(&networks("default", ""), &held).await;
        person.create(&networks("default", ""), &network("free", "10.0.1.0/24", "10.0.1.1")).await;
        person.map("default", "owned", &[owner(&held)]).await;
        person.delete(NETWORKS_CRD, "Background").await;
        person.gone(&networks("default", "free")).await;
        quiet().await;
        let crd = person.get(NETWORKS_CRD).await.expect("an instance is held");
        assert!(crd["metadata"]["deletionTimestamp"].is_string());
        let patch = json!({"metadata": {"finalizers": null}});
        person.patch(&networks("default", "held"), &patch).await;
        person.gone(NETWORKS_CRD).await;
        assert!(person.get(&networks("default", "")).await.is_none(), "it is not served any more");
        // Defined again, it starts empty.
        person.define_networks().await;
        assert_eq!(person.names(&networks("default", "")).await, [] as [&str; 0]);
        quiet().await;
        let owned = person.get(&maps("default", "owned")).await;
        assert!(owned.is_none(), "its owner is gone, which shows once the kind is served again");
    })
    .await;
}

/// An owner whose deletion was seen is gone, also if its kind is gone by the time that its
/// dependents are looked at.
#[tokio::test(start_paused = true)]
async fn dependents_of_instances_are_deleted_after_the_definition() {
    with_person(async |person| {
        person.define_networks().await;
        for i in 0..40 {
            let instance = network(&format!("n{i}"), "10.0.0.0/24", "10.0.0.1");
            let instance = person.create(&networks("default", ""), &instance).await;
            person.map("default", &format!("m{i}"), &[owner(&instance)]).await;
        }
        person.map("default", "bystander", &[]).await;
        quiet().await;
        person.delete(NETWORKS_CRD, "Background").await;
        person.gone(NETWORKS_CRD).await;
        quiet().await;
        assert_eq!(person.names(&maps("default", "")).await, ["bystander"]);
    })
    .await;
}

/// A feed of what the test says.
struct Told(mpsc::Receiver<ObjectEvent>);

impl ObjectFeed for Told {
    fn next(&mut self) -> BoxFuture<'_, Option<ObjectEvent>> {
        Box::pin(self.0.recv())
    }
}

/// An owner may be looked at for its own owners when the collector does not know yet that it is
/// deleted, and that it has dependents.
#[tokio::test(start_paused = true)]
async fn orphans_are_found_by_a_collector_that_is_behind() {
    let plane = ControlPlane::builder().simulated(1).controllers(false).build();
    with_person_of(plane, async |person| {
        let mut absent = owner(&person.map("default", "a", &[]).await);
        absent["uid"] = "another".into();
        let created = person.map("default", "b", &[absent]).await;
        let dependent = person.map("default", "c", &[owner(&created)]).await;
        person.delete(&maps("default", "b"), "Orphan").await;
        let deleted = person.get(&maps("default", "b")).await.expect("it has dependents");

        let (tell, told) = mpsc::channel(8);
        let collector = GarbageCollector::new(person.client.clone()).seed(1).feed(Told(told));
        let _running = JoinSet::from_iter([collector.run(CancellationToken::new())]);
        let put = |object: &Value| ObjectEvent::Put(object.to_string().into());
        for event in [ObjectEvent::Restarted, put(&created), ObjectEvent::Synced] {
            tell.send(event).await.unwrap();
        }
        quiet().await;
        for event in [put(&dependent), put(&deleted)] {
            tell.send(event).await.unwrap();
        }
        person.gone(&maps("default", "b")).await;
        quiet().await;
        let orphan = person.get(&maps("default", "c")).await.expect("it was to be orphaned");
        assert_eq!(owners_of(&orphan), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn objects_are_deleted_with_their_namespace() {
    with_person(async |person| {
        person.define_networks().await;
        person.namespace("doomed").await;
        let a = person.map("doomed", "a", &[]).await;
        person.map("doomed", "b", &[owner(&a)]).await;
        person.create(&networks("doomed", ""), &network("n", "10.0.0.0/24", "10.0.0.1")).await;
        person.map("default", "bystander", &[]).await;
        person.delete("/api/v1/namespaces/doomed", "Background").await;
        person.gone("/api/v1/namespaces/doomed").await;
        person.namespace("doomed").await;
        assert_eq!(person.names(&maps("doomed", "")).await, [] as [&str; 0]);
        assert_eq!(person.names(&networks("doomed", "")).await, [] as [&str; 0]);
        assert!(person.get(&maps("default", "bystander")).await.is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn finalizer_blocks_its_namespace() {
    with_person(async |person| {
        person.namespace("doomed").await;
        let mut held = map("held", &[]);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        person.create(&maps("doomed", ""), &held).await;
        person.map("doomed", "free", &[]).await;
        person.delete("/api/v1/namespaces/doomed", "Background").await;
        person.gone(&maps("doomed", "free")).await;
        quiet().await;
        assert_eq!(
            person.problems("doomed").await,
            [
                "Some resources are remaining: configmaps. has 1 resource instances",
                "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
            ]
        );
        let refused = person
            .request("POST", &maps("doomed", ""), "application/json", &map("late", &[]))
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("is being terminated"), "{refused}");
        person.patch(&maps("doomed", "held"), &json!({"metadata": {"finalizers": null}})).await;
        person.gone("/api/v1/namespaces/doomed").await;
    })
    .await;
}

/// Pods of a node have their grace period; without its kubelet, nobody removes them.
#[tokio::test(start_paused = true)]
async fn pods_that_outlive_their_grace_period_are_a_problem_of_their_namespace() {
    with_person(async |person| {
        person.namespace("doomed").await;
        let pods = "/api/v1/namespaces/doomed/pods";
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "stays", "finalizers": ["example.com/hold"]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        person.create(pods, &pod).await;
        person.map("doomed", "m", &[]).await;
        person.delete("/api/v1/namespaces/doomed", "Background").await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(person.problems("doomed").await, [""; 0]);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(person.problems("doomed").await, [""; 0], "the finalizer is waited for");
        let stays = format!("{pods}/stays");
        person.patch(&stays, &json!({"metadata": {"finalizers": null}})).await;
        quiet().await;
        assert_eq!(
            person.problems("doomed").await,
            [
                "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: doomed for gvr: /v1, Resource=pods"
            ]
        );
        assert!(person.get(&maps("doomed", "m")).await.is_some(), "pods go first");
        let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        person.request("DELETE", &stays, "application/json", &now).await.unwrap();
        person.gone("/api/v1/namespaces/doomed").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn namespace_deleted_in_the_foreground_is_removed() {
    with_person(async |person| {
        person.namespace("doomed").await;
        person.map("doomed", "a", &[]).await;
        person.delete("/api/v1/namespaces/doomed", "Foreground").await;
        person.gone("/api/v1/namespaces/doomed").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deleted_definition_causes_no_warning() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(lines.clone())
        .finish();
    let _guard = testing::set_default(subscriber);
    with_person(async |person| {
        for _ in 0..3 {
            person.define_networks().await;
            // The collector has found the type and watches it.
            quiet().await;
            person.delete(NETWORKS_CRD, "Background").await;
            person.gone(NETWORKS_CRD).await;
            quiet().await;
        }
    })
    .await;
    assert_eq!(lines.text(), "");
}

/// Runs a collector over a remote server that serves Networks and answers lists of them with this
/// status, or not at all.
async fn collect_with_failing_lists_of_networks(code: Option<u16>) {
    let plane = ControlPlane::builder().simulated(1).controllers(false).build();
    let person = Person { client: plane.client() };
    let mut running = JoinSet::new();
    running.spawn(async move { plane.run(CancellationToken::new()).await.unwrap() });
    person.define_networks().await;
    let a = person.map("default", "a", &[]).await;
    person.map("default", "b", &[owner(&a)]).await;
    let inner = person.client.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let inner = inner.clone();
        async move {
            if !request.uri().path().ends_with("/networks") {
                return inner.send(request).await;
            }
            let Some(code) = code else {
                return Err(kube_client::Error::Service("connection refused".into()));
            };
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "metadata": {},
                "reason": "", "message": "no",
            });
            let mut answer = http::Response::new(Body::from(status.to_string().into_bytes()));
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok(answer)
        }
    });
    let collector = GarbageCollector::new(kube_client::Client::new(service, "default")).seed(1);
    running.spawn(collector.run(CancellationToken::new()));
    person.delete(&maps("default", "a"), "Background").await;
    person.gone(&maps("default", "b")).await;
}

#[tokio::test(start_paused = true)]
async fn type_that_cannot_be_listed_does_not_delay_others() {
    for code in [None, Some(500)] {
        let started = tokio::time::Instant::now();
        collect_with_failing_lists_of_networks(code).await;
        let took = started.elapsed();
        assert!(took >= FIRST_LISTS_MAX, "{code:?}: perhaps it would have come back: {took:?}");
        assert!(took < FIRST_LISTS_MAX * 2, "{code:?}: {took:?}");
    }
    let started = tokio::time::Instant::now();
    collect_with_failing_lists_of_networks(Some(403)).await;
    assert!(started.elapsed() < FIRST_LISTS_MAX / 2, "a refusal is not waited for");
}

#[tokio::test(start_paused = true)]
async fn namespace_with_changing_errors_is_retried_with_back_off() {
    let plane = ControlPlane::builder().simulated(1).controllers(false).build();
    let person = Person { client: plane.client() };
    let clock = plane.server().registry().clock().clone();
    let mut running = JoinSet::new();
    running.spawn(async move { plane.run(CancellationToken::new()).await.unwrap() });
    let inner = person.client.clone();
    let n_tries = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn({
        let n_tries = n_tries.clone();
        move |request: http::Request<Body>| {
            let (inner, n_tries) = (inner.clone(), n_tries.clone());
            async move {
                if request.method() != http::Method::DELETE
                    || !request.uri().path().ends_with("/configmaps")
                {
                    return inner.send(request).await;
                }
                let n = n_tries.fetch_add(1, Ordering::Relaxed);
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                    "reason": "InternalError", "message": format!("failure {n}"), "metadata": {},
                });
                let mut answer = http::Response::new(Body::from(status.to_string().into_bytes()));
                *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                Ok::<_, kube_client::Error>(answer)
            }
        }
    });
    let client = kube_client::Client::new(service, "default");
    let setup = Setup::new(client, clock).seed(0);
    let namespaces = setup.run(CancellationToken::new(), |setup, manager| {
        NamespaceController::new(setup.clone()).add_to(manager)
    });
    running.spawn(async { namespaces.await.unwrap() });
    person.namespace("doomed").await;
    person.delete("/api/v1/namespaces/doomed", "Background").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Ten by back-off, and one 5 s after each change of the conditions.
    let n = n_tries.load(Ordering::Relaxed);
    assert!((5..=30).contains(&n), "{n} tries in a minute");
}
