//! The roles and bindings of a fresh control plane.

use crate::user::{User, with_user};
use bytes::Bytes;
use expect_test::expect_file;
use serde_json::{Map, Value};
use setpoint_control_plane::{ControlPlane, SharedParts};
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_store::{MemoryStore, Op, RangeRequest, Store, Txn};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const KINDS: [&str; 4] = ["clusterrolebindings", "clusterroles", "rolebindings", "roles"];
/// What a server sets.
const SET_BY_SERVER: [&str; 4] = ["uid", "creationTimestamp", "managedFields", "generation"];

/// The stored roles and bindings, by key.
async fn stored(store: &MemoryStore) -> Vec<(String, Bytes)> {
    stored_of(store, &KINDS).await
}

/// The stored objects of these kinds, by key.
async fn stored_of(store: &MemoryStore, kinds: &[&str]) -> Vec<(String, Bytes)> {
    let mut all = Vec::new();
    for kind in kinds {
        let range = store.range(RangeRequest::prefix(format!("/registry/{kind}/"))).await.unwrap();
        let entries = range.value.entries.into_iter();
        all.extend(entries.map(|e| (String::from_utf8(e.key.to_vec()).unwrap(), e.value)));
    }
    all
}

/// A line of `roles.txt` for each object.
fn lines(objects: &[(String, Bytes)]) -> String {
    let mut lines = String::new();
    for (key, bytes) in objects {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        let metadata = &object["metadata"];
        let mut text = std::str::from_utf8(bytes).unwrap().to_owned();
        let managers = metadata["managedFields"].as_array().unwrap().iter();
        let times = managers.map(|m| &m["time"]).chain([&metadata["creationTimestamp"]]);
        for time in times {
            text = text.replace(time.as_str().unwrap(), "@now");
        }
        text = text.replace(metadata["uid"].as_str().unwrap(), "@uid");
        writeln!(lines, "{key} {text}").unwrap();
    }
    lines
}

/// Creates a stored object again, as a user would.
async fn create(user: &User, key: &str, object: &[u8]) {
    let mut object: Map<String, Value> = serde_json::from_slice(object).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|member, _| !SET_BY_SERVER.contains(&member.as_str()));
    // The rules of an aggregated role are its controller's.
    if object.contains_key("aggregationRule") {
        object["rules"] = Value::Null;
    }
    let path = match *key.split('/').collect::<Vec<_>>() {
        [_, _, kind, _] => kind.to_owned(),
        [_, _, kind, namespace, _] => format!("namespaces/{namespace}/{kind}"),
        _ => panic!("{key}"),
    };
    let path = format!("/apis/rbac.authorization.k8s.io/v1/{path}?fieldManager=kube-apiserver");
    user.create(&path, object.into()).await;
}

/// After a change of `bootstrap.json`, empty the file and run this with `UPDATE_EXPECT=1`: without
/// templates, a control plane makes the objects by the write path.
#[tokio::test(start_paused = true)]
async fn roles_of_the_start_equal_those_of_the_write_path() {
    let store = MemoryStore::default();
    let plane = ControlPlane::builder().rbac().store(Arc::new(store.clone()));
    with_user(plane, async |user| {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let start = stored(&store).await;
        let ops = start.iter().map(|(key, _)| Op::Delete(key.clone().into())).collect();
        store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
        for (key, object) in &start {
            create(&user, key, object).await;
        }
        // The aggregation of rules.
        tokio::time::sleep(Duration::from_secs(30)).await;
        let made = lines(&stored(&store).await);
        expect_file!["../../../registry/src/bootstrap/roles.txt"].assert_eq(&made);
        assert_eq!(lines(&start), made);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn restart_changes_no_role() {
    let store = MemoryStore::default();
    let mut revisions = Vec::new();
    for _ in 0..2 {
        let plane = ControlPlane::builder().rbac().store(Arc::new(store.clone()));
        with_user(plane, async |_| tokio::time::sleep(Duration::from_secs(30)).await).await;
        revisions.push(store.revision().await.unwrap());
    }
    assert_eq!(revisions[0], revisions[1]);
}

/// A store from before Kubernetes 1.14 has no `system:public-info-viewer`.
#[tokio::test(start_paused = true)]
async fn public_information_is_for_those_who_may_discover() {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let (discovery, public) = ("system:discovery", "system:public-info-viewer");
    let store = MemoryStore::default();
    let plane = || ControlPlane::builder().rbac().store(Arc::new(store.clone()));
    let auto = "rbac.authorization.kubernetes.io/autoupdate";
    let users = serde_json::json!([
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"},
    ]);
    with_user(plane(), async |user| {
        let change = serde_json::json!({
            "metadata": {"annotations": {auto: "false", "who": "me"}}, "subjects": users,
        });
        user.patch(&format!("{BINDINGS}/{discovery}"), change).await;
    })
    .await;
    let key = format!("/registry/clusterrolebindings/{public}");
    let ops = vec![Op::Delete(key.into())];
    store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    with_user(plane(), async |user| {
        let made = user.get(&format!("{BINDINGS}/{public}")).await;
        assert_eq!((&made["subjects"], &made["roleRef"]["name"]), (&users, &public.into()));
        assert_eq!(made["metadata"]["annotations"]["who"], "me");
    })
    .await;
}

/// Two control planes have the same bytes, and neither sees the other's changes. Namespaces are
/// their own.
#[tokio::test(start_paused = true)]
async fn shared_objects_are_one_text_and_each_planes_own_objects() {
    const VIEW: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view";
    const OTHERS: [&str; 4] = [
        "apiregistration.k8s.io/apiservices",
        "flowschemas",
        "prioritylevelconfigurations",
        "priorityclasses",
    ];
    let parts = SharedParts::default();
    let mut all = Vec::new();
    for _ in 0..2 {
        let store = MemoryStore::default();
        let plane = ControlPlane::builder().rbac().shared_parts(parts.clone());
        with_user(plane.store(Arc::new(store.clone())), async |user| {
            let held = stored_of(&store, &[&KINDS[..], &OTHERS].concat()).await;
            let namespace = user.get("/api/v1/namespaces/kube-system").await;
            let view = user.get(VIEW).await;
            assert!(view["metadata"]["labels"].get("changed").is_none());
            user.patch(VIEW, serde_json::json!({"metadata": {"labels": {"changed": "yes"}}})).await;
            let changed = user.get(VIEW).await;
            assert_eq!(changed["metadata"]["uid"], view["metadata"]["uid"]);
            all.push((held, namespace["metadata"]["uid"].clone()));
        })
        .await;
    }
    let [(first, cluster), (second, other)] = &all[..] else { panic!("two planes") };
    assert_ne!(cluster, other);
    assert_eq!(first.len(), second.len());
    let places = |held: &[(String, Bytes)]| -> Vec<(String, *const u8)> {
        held.iter().map(|(key, bytes)| (key.clone(), bytes.as_ptr())).collect()
    };
    assert_eq!(places(first), places(second));
}

/// Roles that a kube-apiserver has with a feature gate only.
#[tokio::test(start_paused = true)]
async fn feature_gate_adds_roles_and_rules() {
    let migrator = "system:controller:storage-version-migrator-controller";
    for gates in [&[][..], &[Feature::StorageVersionMigrator]] {
        let config = RuntimeConfig::with_gates("", gates).unwrap();
        with_user(ControlPlane::builder().rbac().runtime_config(config), async |user| {
            let role = user.get(&format!("{ROLES}/{migrator}")).await;
            assert_eq!(role.is_null(), gates.is_empty(), "{role}");
        })
        .await;
    }
    for gates in [&[][..], &[Feature::GenericWorkload]] {
        let config = RuntimeConfig::with_gates("", gates).unwrap();
        with_user(ControlPlane::builder().rbac().runtime_config(config), async |user| {
            // Aggregated from the rules that the gate adds.
            let has = |role: &Value| role["rules"].to_string().contains("podgroups");
            let is_as_the_gate = |role: &Value| role.is_object() && has(role) != gates.is_empty();
            for name in ["view", "edit", "admin", "system:kube-scheduler"] {
                user.until(&format!("{ROLES}/{name}"), is_as_the_gate).await;
            }
            let protection = "system:controller:podgroup-protection-controller";
            let role = user.get(&format!("{ROLES}/{protection}")).await;
            assert_eq!(role.is_null(), gates.is_empty(), "{role}");
        })
        .await;
    }
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let bundles = |role: &Value| role["rules"].to_string().contains("clustertrustbundles");
    for gates in [&[][..], &[Feature::ClusterTrustBundle]] {
        let config = RuntimeConfig::with_gates("", gates).unwrap();
        with_user(ControlPlane::builder().rbac().runtime_config(config), async |user| {
            tokio::time::sleep(Duration::from_secs(30)).await;
            let node = user.get(&format!("{ROLES}/system:node")).await;
            assert_eq!(bundles(&node), !gates.is_empty(), "{node}");
            assert!(node["rules"].as_array().unwrap().len() > 20);
            let reader = "system:cluster-trust-bundle-discovery";
            let role = user.get(&format!("{ROLES}/{reader}")).await;
            assert_eq!(bundles(&role), !gates.is_empty(), "{role}");
            let bindings = ROLES.replace("roles", "rolebindings");
            let binding = user.get(&format!("{bindings}/{reader}")).await;
            assert_eq!(binding.is_null(), gates.is_empty(), "{binding}");
        })
        .await;
    }
}
