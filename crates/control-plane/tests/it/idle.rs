//! Controllers that sleep while there is nothing to do.

use crate::user::{User, with_user};
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, ServeOptions};
use setpoint_registry::RuntimeConfig;
use setpoint_store::{At, MemoryStore, Store as _};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const NAMESPACES: &str = "/api/v1/namespaces";
const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Long enough that controllers sleep.
async fn quiet() {
    tokio::time::sleep(Duration::from_secs(30)).await;
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

async fn account_of(user: &User, namespace: &str, except: &str) -> String {
    let path = format!("{NAMESPACES}/{namespace}/serviceaccounts/default");
    let found = user.until(&path, |found| !uid(found).is_empty() && uid(found) != except).await;
    uid(&found)
}

/// The revision of the store.
async fn revision(user: &User) -> Value {
    user.get(NAMESPACES).await["metadata"]["resourceVersion"].clone()
}

#[tokio::test(start_paused = true)]
async fn fresh_control_plane_is_what_its_controllers_would_make() {
    for plane in [ControlPlane::builder(), ControlPlane::builder().rbac()] {
        with_user(plane, async |user| {
            let first = revision(&user).await;
            for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
                let account = format!("{NAMESPACES}/{namespace}/serviceaccounts/default");
                assert!(!uid(&user.get(&account).await).is_empty(), "{namespace}");
            }
            quiet().await;
            assert_eq!(revision(&user).await, first);
        })
        .await;
    }
    // Without the controller of service accounts there are none.
    with_user(ControlPlane::builder().controllers(false), async |user| {
        let account = format!("{NAMESPACES}/default/serviceaccounts/default");
        assert!(user.get(&account).await.is_null());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn served_control_plane_has_its_ca_as_the_controller_would_publish_it() {
    let store = MemoryStore::default();
    let plane = ControlPlane::builder().rbac().store(Arc::new(store.clone())).simulated(1).build();
    let user = User::of(&plane);
    let serving = plane.serve(ServeOptions::new((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let (mut ready, ca) = (serving.ready(), serving.ca().to_owned());
    let stop = CancellationToken::new();
    let running = serving.run(stop.clone());
    let acting = async {
        ready.wait_for(|ready| *ready).await.unwrap();
        let mut at_start = Vec::new();
        for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let path = format!("{NAMESPACES}/{namespace}/configmaps/kube-root-ca.crt");
            let map = user.get(&path).await;
            assert_eq!(map["data"], json!({"ca.crt": ca}), "{namespace}");
            at_start.push((path, stored_map(&store, namespace).await, uid(&map)));
        }
        quiet().await;
        for (path, first, first_uid) in at_start {
            user.delete(&path).await;
            let again = user.until(&path, |map| !map.is_null() && uid(map) != first_uid).await;
            let namespace = again["metadata"]["namespace"].as_str().unwrap();
            assert_eq!(stored_map(&store, namespace).await, first);
        }
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(running, acting);
    ended.unwrap();
}

/// The stored ConfigMap with the CA, without uid and times.
async fn stored_map(store: &MemoryStore, namespace: &str) -> String {
    let key = format!("/registry/configmaps/{namespace}/kube-root-ca.crt");
    let found = store.get(&Bytes::from(key), At::Latest).await.unwrap().value.unwrap();
    let mut text = String::from_utf8(found.value.to_vec()).unwrap();
    let object: Value = serde_json::from_str(&text).unwrap();
    let metadata = &object["metadata"];
    let times = [&metadata["creationTimestamp"], &metadata["managedFields"][0]["time"]];
    for value in times.into_iter().chain([&metadata["uid"]]) {
        text = text.replace(value.as_str().unwrap(), "");
    }
    text
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_completed_and_deleted_after_any_quiet_time() {
    with_user(ControlPlane::builder(), async |user| {
        let first = account_of(&user, "default", "").await;
        for round in 0..3 {
            quiet().await;
            let name = format!("ns-{round}");
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            user.create(NAMESPACES, body).await;
            account_of(&user, &name, "").await;
            quiet().await;
            user.delete(&format!("{NAMESPACES}/{name}")).await;
            user.until(&format!("{NAMESPACES}/{name}"), Value::is_null).await;
        }
        quiet().await;
        user.delete(&format!("{NAMESPACES}/default/serviceaccounts/default")).await;
        account_of(&user, "default", &first).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn flow_schemas_and_api_services_are_kept_after_a_quiet_time() {
    with_user(ControlPlane::builder(), async |user| {
        quiet().await;
        let schema = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": "mine"},
            "spec": {"priorityLevelConfiguration": {"name": "absent"}, "matchingPrecedence": 500},
        });
        user.create(&format!("{FLOW}/flowschemas"), schema).await;
        let dangling = |wanted: &'static str| {
            move |schema: &Value| {
                let mut all = schema["status"]["conditions"].as_array().into_iter().flatten();
                all.any(|one| one["type"] == "Dangling" && one["status"] == wanted)
            }
        };
        let path = format!("{FLOW}/flowschemas/mine");
        user.until(&path, dangling("True")).await;
        quiet().await;
        let level = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": "absent"},
            "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
        });
        user.create(&format!("{FLOW}/prioritylevelconfigurations"), level).await;
        user.until(&path, dangling("False")).await;

        quiet().await;
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.io"},
            "spec": {
                "group": "example.io", "scope": "Cluster",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        user.create(DEFINITIONS, definition).await;
        let service = format!("{API_SERVICES}/v1.example.io");
        user.until(&service, |found| !found.is_null()).await;
        quiet().await;
        user.delete(&format!("{DEFINITIONS}/widgets.example.io")).await;
        user.until(&service, Value::is_null).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dependents_are_collected_after_a_quiet_time() {
    with_user(ControlPlane::builder(), async |user| {
        quiet().await;
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = |name: &str, owners: Value| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "ownerReferences": owners},
            })
        };
        let owner = user.create(maps, map("owner", json!([]))).await;
        quiet().await;
        let reference = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner),
        });
        user.create(maps, map("dependent", json!([reference]))).await;
        quiet().await;
        assert!(user.get(&format!("{maps}/dependent")).await.is_object());
        user.delete(&format!("{maps}/owner")).await;
        user.until(&format!("{maps}/dependent"), Value::is_null).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn roles_are_aggregated_after_a_quiet_time() {
    with_user(ControlPlane::builder().rbac(), async |user| {
        quiet().await;
        let rules = json!([{"verbs": ["get"], "apiGroups": ["example.io"], "resources": ["widgets"]}]);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"},
            },
            "rules": rules,
        });
        user.create(CLUSTER_ROLES, role).await;
        let has_rule = |role: &Value| {
            let mut all = role["rules"].as_array().into_iter().flatten();
            all.any(|rule| *rule == rules[0])
        };
        user.until(&format!("{CLUSTER_ROLES}/view"), has_rule).await;
        quiet().await;
        user.delete(&format!("{CLUSTER_ROLES}/widgets")).await;
        user.until(&format!("{CLUSTER_ROLES}/view"), |role| !has_rule(role)).await;
    })
    .await;
}

/// The story: the first control plane of a process with a change of an APIService read what is
/// registered at the start, and all later ones took that for theirs, whatever they served.
#[tokio::test(start_paused = true)]
async fn control_planes_of_one_process_have_a_discovery_of_their_own() {
    let beta = || {
        let config = RuntimeConfig::with_gates("resource.k8s.io/v1beta2", []).unwrap();
        ControlPlane::builder().runtime_config(config)
    };
    for (plane, expected) in [
        (beta(), &["v1", "v1beta2"][..]),
        (ControlPlane::builder(), &["v1"]),
        (beta(), &["v1", "v1beta2"]),
    ] {
        with_user(plane, async |user| {
            quiet().await;
            let path = format!("{API_SERVICES}/v1.batch");
            user.patch(&path, json!({"metadata": {"labels": {"mine": "yes"}}})).await;
            quiet().await;
            let group = user.get("/apis/resource.k8s.io").await;
            let versions = group["versions"].as_array().into_iter().flatten();
            let versions: Vec<&str> =
                versions.map(|version| version["version"].as_str().unwrap_or_default()).collect();
            assert_eq!(versions, expected);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_follows_api_services_from_their_first_change() {
    with_user(ControlPlane::builder().controllers(false), async |user| {
        quiet().await;
        let at_first = user.get("/apis").await;
        let path = format!("{API_SERVICES}/v1.batch");
        user.patch(&path, json!({"metadata": {"labels": {"mine": "yes"}}})).await;
        quiet().await;
        assert_eq!(user.get("/apis").await, at_first);
        user.delete(&path).await;
        quiet().await;
        let names = |groups: &Value| -> Vec<String> {
            let groups = groups["groups"].as_array().into_iter().flatten();
            groups.map(|group| group["name"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let mut without = names(&at_first);
        without.retain(|name| name != "batch");
        assert_eq!(names(&user.get("/apis").await), without);
    })
    .await;
    // The next one of the process begins with all of them.
    with_user(ControlPlane::builder().controllers(false), async |user| {
        quiet().await;
        assert!(user.get("/apis").await.to_string().contains("\"batch\""));
    })
    .await;
}
