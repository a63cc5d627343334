//! Resource quotas: what admission refuses, what the controller adds up (spec: admission §3).

use crate::admission::{Asker, PODS, pod, with_admission, with_plane};
use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::registry::AdmissionOptions;
use setpoint::store::MemoryStore;
use std::cell::Cell;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn quota(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec})
}
fn named(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
}
/// Creates a quota and waits until its status has been filled.
async fn limit(admin: &Asker, name: &str, spec: Value) {
    admin.create(QUOTAS, &quota(name, spec)).await;
    until(admin, name, |status| status["hard"].is_object()).await;
}
/// Waits, in virtual time, until the status of a quota fulfils a condition.
async fn until(admin: &Asker, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut status = Value::Null;
    for _ in 0..10_000 {
        status = admin.get(&format!("{QUOTAS}/{name}")).await["status"].clone();
        if is_so(&status) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name}: {status}");
}
async fn used(admin: &Asker, name: &str) -> Value {
    admin.get(&format!("{QUOTAS}/{name}")).await["status"]["used"].clone()
}

#[tokio::test(start_paused = true)]
async fn objects_are_counted_and_refused_beyond_the_limit() {
    with_admission(AdmissionOptions::default(), async |admin| {
        admin.create(SECRETS, &named("Secret", "s1")).await;
        limit(&admin, "q", json!({"hard": {"count/secrets": "2", "secrets": "3"}})).await;
        assert_eq!(used(&admin, "q").await, json!({"count/secrets": "1", "secrets": "1"}));
        let dry = format!("{SECRETS}?dryRun=All");
        assert_eq!(admin.post(&dry, &named("Secret", "s2")).await.code, 201);
        assert_eq!(used(&admin, "q").await["secrets"], "1");
        admin.create(SECRETS, &named("Secret", "s2")).await;
        assert_eq!(used(&admin, "q").await, json!({"count/secrets": "2", "secrets": "2"}));
        let refused = r#"secrets "s3" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=2, limited: count/secrets=2"#;
        for path in [SECRETS, &dry] {
            assert_eq!(admin.post(path, &named("Secret", "s3")).await.refusal(), (403, refused));
            // One without a name is called by the name that it would have got.
            let mut nameless = named("Secret", "");
            nameless["metadata"] = json!({"generateName": "s3-"});
            let answer = admin.post(path, &nameless).await;
            let (code, message) = answer.refusal();
            let name = message.split('"').nth(1).unwrap();
            assert_eq!((code, name.len(), &name[..3]), (403, 8, "s3-"), "{message}");
            assert_eq!(message.replace(name, "s3"), refused);
        }
        // A create that fails charges nothing.
        assert_eq!(admin.delete(&format!("{SECRETS}/s1")).await.code, 200);
        until(&admin, "q", |status| status["used"]["secrets"] == "1").await;
        assert_eq!(admin.post(SECRETS, &named("Secret", "s2")).await.code, 409);
        assert_eq!(used(&admin, "q").await["secrets"], "1");
        admin.create(SECRETS, &named("Secret", "s3")).await;
        // A changed limit is in the status soon.
        let more = json!({"spec": {"hard": {"secrets": "5", "count/secrets": null}}});
        assert_eq!(admin.patch(&format!("{QUOTAS}/q"), &more).await.code, 200);
        until(&admin, "q", |status| *status == json!({"hard": {"secrets": "5"}, "used": {"secrets": "2"}})).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_gets_a_deadline_is_charged_by_the_quota_of_its_new_scope() {
    with_admission(AdmissionOptions::default(), async |admin| {
        let spec = |scope: &str| json!({"hard": {"pods": "1"}, "scopes": [scope]});
        limit(&admin, "ending", spec("Terminating")).await;
        limit(&admin, "lasting", spec("NotTerminating")).await;
        admin.create(PODS, &pod("a", json!({}))).await;
        assert_eq!(used(&admin, "ending").await["pods"], "0");
        assert_eq!(used(&admin, "lasting").await["pods"], "1");
        // A change of something else charges nothing.
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(admin.patch(&format!("{PODS}/a"), &label).await.code, 200);
        let deadline = json!({"spec": {"activeDeadlineSeconds": 3600}});
        assert_eq!(admin.patch(&format!("{PODS}/a"), &deadline).await.code, 200);
        assert_eq!(used(&admin, "ending").await["pods"], "1");
        let refused = admin.post(PODS, &pod("b", deadline["spec"].clone())).await;
        assert_eq!(
            refused.refusal(),
            (403, r#"pods "b" is forbidden: exceeded quota: ending, requested: pods=1, used: pods=1, limited: pods=1"#)
        );
        // The controller takes it off the other one.
        until(&admin, "lasting", |status| status["used"]["pods"] == "0").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn resource_claims_are_charged_for_their_devices() {
    with_admission(AdmissionOptions::default(), async |admin| {
        let devices = "gold.deviceclass.resource.k8s.io/devices";
        limit(&admin, "q", json!({"hard": {devices: "3"}})).await;
        let claim = |name: &str, request: Value| {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}},
            })
        };
        let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
        admin.create(claims, &claim("a", json!({"deviceClassName": "gold", "count": 2}))).await;
        assert_eq!(used(&admin, "q").await, json!({devices: "2"}));
        admin.create(claims, &claim("b", json!({"deviceClassName": "iron", "count": 9}))).await;
        // All devices of a class count as the most that a claim can get.
        let all = claim("c", json!({"deviceClassName": "gold", "allocationMode": "All"}));
        assert_eq!(
            admin.post(claims, &all).await.refusal(),
            (403, &*format!(r#"resourceclaims.resource.k8s.io "c" is forbidden: exceeded quota: q, requested: {devices}=32, used: {devices}=2, limited: {devices}=3"#))
        );
        assert_eq!(admin.delete(&format!("{claims}/a")).await.code, 200);
        until(&admin, "q", |status| status["used"] == json!({devices: "0"})).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_charged_for_what_they_request() {
    with_admission(AdmissionOptions::default(), async |admin| {
        let hard = json!({"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"});
        limit(&admin, "q", json!({"hard": hard})).await;
        let of = |cpu: &str| json!({"containers": [{"name": "c", "image": "i:1", "resources": {
            "requests": {"cpu": cpu}, "limits": {"memory": "256Mi"}}}]});
        assert_eq!(
            admin.post(PODS, &pod("p", json!({}))).await.refusal(),
            (403, r#"pods "p" is forbidden: failed quota: q: must specify limits.memory for: c; requests.cpu for: c"#)
        );
        admin.create(PODS, &pod("a", of("600m"))).await;
        assert_eq!(used(&admin, "q").await, json!({"pods": "1", "requests.cpu": "600m", "limits.memory": "256Mi"}));
        assert_eq!(
            admin.post(PODS, &pod("b", of("600m"))).await.refusal(),
            (403, r#"pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"#)
        );
        let grown = json!({"spec": of("1")});
        let answer = admin.patch(&format!("{PODS}/a/resize"), &grown).await;
        assert_eq!(answer.code, 200, "{}", answer.message());
        assert_eq!(used(&admin, "q").await["requests.cpu"], "1");
        let grown = json!({"spec": of("1100m")});
        let answer = admin.patch(&format!("{PODS}/a/resize"), &grown).await;
        assert_eq!(
            answer.refusal(),
            (403, r#"pods "a" is forbidden: exceeded quota: q, requested: requests.cpu=100m, used: requests.cpu=1, limited: requests.cpu=1"#)
        );
        // A pod that has ended needs nothing.
        let ended = json!({"status": {"phase": "Succeeded"}});
        assert_eq!(admin.patch(&format!("{PODS}/a/status"), &ended).await.code, 200);
        until(&admin, "q", |status| status["used"]["pods"] == "0").await;
        admin.create(PODS, &pod("b", of("1"))).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn scopes_custom_resources_and_services_are_limited() {
    with_admission(AdmissionOptions::default(), async |admin| {
        limit(&admin, "best", json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]})).await;
        assert_eq!(
            admin.post(PODS, &pod("p", json!({}))).await.refusal(),
            (403, r#"pods "p" is forbidden: exceeded quota: best, requested: pods=1, used: pods=0, limited: pods=0"#)
        );
        let burstable = json!({"containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}]});
        admin.create(PODS, &pod("p", burstable)).await;

        define(&admin, "widget", "Widget").await;
        limit(&admin, "widgets", json!({"hard": {"count/widgets.ex.io": "1"}})).await;
        let widget = |name: &str| json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": name}});
        let widgets = "/apis/ex.io/v1/namespaces/default/widgets";
        admin.create(widgets, &widget("a")).await;
        assert_eq!(
            admin.post(widgets, &widget("b")).await.refusal(),
            (403, r#"widgets.ex.io "b" is forbidden: exceeded quota: widgets, requested: count/widgets.ex.io=1, used: count/widgets.ex.io=1, limited: count/widgets.ex.io=1"#)
        );
        assert_eq!(admin.delete(&format!("{widgets}/a")).await.code, 200);
        until(&admin, "widgets", |status| status["used"]["count/widgets.ex.io"] == "0").await;

        limit(&admin, "ports", json!({"hard": {"services.nodeports": "0"}})).await;
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]},
        });
        let services = "/api/v1/namespaces/default/services";
        admin.create(services, &service).await;
        let node_port = json!({"spec": {"type": "NodePort"}});
        assert_eq!(
            admin.patch(&format!("{services}/s"), &node_port).await.refusal(),
            (403, r#"services "s" is forbidden: exceeded quota: ports, requested: services.nodeports=1, used: services.nodeports=0, limited: services.nodeports=0"#)
        );
    })
    .await;
}

/// Defines a custom resource of the group `ex.io`, and waits until its objects are charged.
async fn define(admin: &Asker, singular: &str, kind: &str) {
    let plural = format!("{singular}s");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.ex.io")},
        "spec": {"group": "ex.io", "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
}

/// Only Kubernetes' own Events are not charged. A status may bring a claim into a scope.
#[tokio::test(start_paused = true)]
async fn events_of_others_and_statuses_of_claims_are_charged() {
    with_admission(AdmissionOptions::default(), async |admin| {
        define(&admin, "event", "Event").await;
        limit(&admin, "none", json!({"hard": {"count/events.ex.io": "0", "count/events": "0"}})).await;
        let event = json!({"apiVersion": "ex.io/v1", "kind": "Event", "metadata": {"name": "a"}});
        assert_eq!(
            admin.post("/apis/ex.io/v1/namespaces/default/events", &event).await.refusal(),
            (403, r#"events.ex.io "a" is forbidden: exceeded quota: none, requested: count/events.ex.io=1, used: count/events.ex.io=0, limited: count/events.ex.io=0"#)
        );
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a", "namespace": "default"},
            "involvedObject": {"namespace": "default"},
        });
        admin.create("/api/v1/namespaces/default/events", &event).await;

        let scope = json!({"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["fast"]});
        let spec = json!({
            "hard": {"persistentvolumeclaims": "0"},
            "scopeSelector": {"matchExpressions": [scope]},
        });
        limit(&admin, "fast", spec).await;
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
        admin.create(claims, &claim).await;
        let status = |class: &str| json!({"status": {"currentVolumeAttributesClassName": class}});
        let path = format!("{claims}/c/status");
        assert_eq!(
            admin.patch(&path, &status("fast")).await.refusal(),
            (403, r#"persistentvolumeclaims "c" is forbidden: exceeded quota: fast, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=0, limited: persistentvolumeclaims=0"#)
        );
        assert_eq!(admin.patch(&path, &status("slow")).await.code, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn limited_resources_need_a_covering_quota() {
    let options = AdmissionOptions::default().configure("ResourceQuota", json!({
        "limitedResources": [{"resource": "persistentvolumeclaims", "matchContains": ["gold.storageclass"]}],
    }));
    with_admission(options, async |admin| {
        let claim = |class: &str| json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": class},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}},
        });
        let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
        admin.create(claims, &claim("silver")).await;
        assert_eq!(
            admin.post(claims, &claim("gold")).await.refusal(),
            (403, r#"persistentvolumeclaims "gold" is forbidden: insufficient quota to consume: gold.storageclass.storage.k8s.io/persistentvolumeclaims,gold.storageclass.storage.k8s.io/requests.storage"#)
        );
        let hard = json!({
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
        });
        limit(&admin, "gold", json!({"hard": hard})).await;
        admin.create(claims, &claim("gold")).await;
    })
    .await;
}

/// Sixteen writers create and delete at once. Returns the largest number of objects that was seen.
async fn storm(admin: &Asker, limit: usize, writers: &[Vec<bool>]) -> usize {
    let write = async |n: usize, steps: &[bool]| {
        let (mut own, mut most) = (Vec::new(), 0);
        for (i, creates) in steps.iter().enumerate() {
            match (creates, own.pop()) {
                (false, Some(name)) => {
                    admin.delete(&format!("{MAPS}/{name}")).await;
                }
                (_, last) => {
                    own.extend(last);
                    let name = format!("m-{n}-{i}");
                    let answer = admin.post(MAPS, &named("ConfigMap", &name)).await;
                    match answer.code {
                        201 => own.push(name),
                        403 => assert!(
                            answer.message().contains("exceeded quota"),
                            "{}",
                            answer.message()
                        ),
                        code => panic!("{code}: {}", answer.message()),
                    }
                }
            }
            most = most.max(admin.get(MAPS).await["items"].as_array().map_or(0, Vec::len));
            assert!(most <= limit, "{most} objects, and the limit is {limit}");
        }
        most
    };
    let all = writers.iter().enumerate().map(|(n, steps)| write(n, steps));
    futures::future::join_all(all).await.into_iter().max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// However writers interleave, with each other and with the controller, there are never more
    /// objects than the limit, and the usage is right at the end.
    #[test]
    fn concurrent_writers_never_exceed_a_quota(
        limit_of_maps in 3..20_usize,
        writers in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.7), 1..8), 16),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(with_admission(AdmissionOptions::default(), async |admin| {
            limit(&admin, "q", json!({"hard": {"configmaps": limit_of_maps.to_string()}})).await;
            storm(&admin, limit_of_maps, &writers).await;
            let n = admin.get(MAPS).await["items"].as_array().map_or(0, Vec::len);
            let used = n.to_string();
            until(&admin, "q", |status| status["used"]["configmaps"] == used).await;
        }));
    }

    /// A server that ends in the middle of all that, at any write, has neither stored more than the
    /// limit nor charged what it has not stored: the next one on the same store has the right usage
    /// and lets the rest be created.
    #[test]
    fn a_crash_neither_exceeds_a_quota_nor_leaks_usage(
        limit_of_maps in 3..12_usize,
        n_answers in 1..40_usize,
        n_polls in 0..200_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = MemoryStore::default();
            let plane = |seed| {
                ControlPlane::builder().simulated(seed).store(Arc::new(store.clone()))
            };
            let gone = Notify::new();
            let crashed = Box::pin(with_plane(plane(0), async |admin| {
                limit(&admin, "q", json!({"hard": {"configmaps": limit_of_maps.to_string()}})).await;
                let answered = Cell::new(0);
                let create = async |n: usize| {
                    for i in 0.. {
                        admin.post(MAPS, &named("ConfigMap", &format!("m-{n}-{i}"))).await;
                        answered.set(answered.get() + 1);
                        if answered.get() >= n_answers {
                            return;
                        }
                    }
                };
                // Sixteen writers, until so many answers have come, and then some polls more.
                let mut writers = Box::pin(futures::future::join_all((0..16).map(create)));
                let mut n_left = n_polls;
                futures::future::poll_fn(|context| {
                    let is_over = writers.as_mut().poll(context).is_ready();
                    n_left -= usize::from(answered.get() >= n_answers && n_left > 0);
                    match is_over || answered.get() >= n_answers && n_left == 0 {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }
                })
                .await;
                gone.notify_one();
                std::future::pending::<()>().await;
            }));
            // The process is gone: dropping it stops whatever runs in it where it is.
            tokio::select! {
                () = crashed => {}
                () = gone.notified() => {}
            }
            with_plane(plane(1), async |admin| {
                let n = admin.get(MAPS).await["items"].as_array().map_or(0, Vec::len);
                assert!(n <= limit_of_maps, "{n} objects, and the limit is {limit_of_maps}");
                // No controller is needed for it.
                assert_eq!(used(&admin, "q").await["configmaps"], n.to_string());
                for i in n..limit_of_maps {
                    admin.create(MAPS, &named("ConfigMap", &format!("rest-{i}"))).await;
                }
                assert_eq!(admin.post(MAPS, &named("ConfigMap", "more")).await.code, 403);
            })
            .await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn containers_name_nothing_if_their_pod_has_resources() {
    with_admission(AdmissionOptions::default(), async |admin| {
        limit(&admin, "q", json!({"hard": {"limits.cpu": "1", "requests.memory": "1Gi"}})).await;
        let containers = json!([{"name": "c", "image": "i:1"}]);
        let refused = admin.post(PODS, &pod("a", json!({"containers": containers}))).await;
        assert_eq!(
            refused.refusal(),
            (403, r#"pods "a" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c"#)
        );
        let whole = json!({"containers": containers, "resources": {"requests": {"cpu": "100m"}}});
        admin.create(PODS, &pod("a", whole)).await;
    })
    .await;
}
