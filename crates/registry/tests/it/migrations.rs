//! StorageVersionMigrations, which are served with their feature gate.
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_store::{At, MemoryStore, Store as _};
use std::sync::Arc;

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";

async fn server() -> Server {
    let config = RuntimeConfig::with_gates("api/beta", [Feature::StorageVersionMigrator]).unwrap();
    let store = Arc::new(MemoryStore::default());
    Server::configured(store.clone(), store, |builder| builder.seed(7).runtime_config(config)).await
}

fn migration(group: &str, resource: &str) -> Value {
    json!({
        "metadata": {"name": "m"},
        "spec": {"resource": {"group": group, "resource": resource}},
        "status": {"resourceVersion": "7"},
    })
}

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

#[tokio::test(start_paused = true)]
async fn migration_names_a_resource_and_is_immutable() {
    let server = server().await;
    for (group, resource, why) in [
        ("", "", "spec.resource.resource: Required value: resource is required to be set"),
        ("", "A", "spec.resource.resource: Invalid value: \"A\": a DNS-1035 label must consist of"),
        ("", "pods/status", "spec.resource.resource: Invalid value: \"pods/status\": a DNS-1035"),
        ("A", "pods", "spec.resource.group: Invalid value: \"A\": a lowercase RFC 1123 subdomain"),
    ] {
        let error = refused(server.create(MIGRATIONS, migration(group, resource)).await);
        assert!(error.starts_with("422 ") && error.contains(why), "{error}");
    }
    let made = server.create(MIGRATIONS, migration("apps", "deployments")).await.unwrap();
    assert_eq!(made["status"], json!({}), "a new one has no status");
    let key = b"/registry/storageversionmigrations/m";
    let stored = server.store.get(key, At::Latest).await.unwrap().value.unwrap();
    let start =
        br#"{"kind":"StorageVersionMigration","apiVersion":"storagemigration.k8s.io/v1beta1","#;
    assert!(stored.value.starts_with(start));
    let other = json!({"spec": {"resource": {"resource": "replicasets"}}});
    assert_eq!(
        refused(server.patch(&format!("{MIGRATIONS}/m"), other).await),
        r#"422 StorageVersionMigration.storagemigration.k8s.io "m" is invalid: spec: Invalid value: {"Resource":{"group":"apps","resource":"replicasets"}}: field is immutable"#
    );
    let labels = json!({"metadata": {"labels": {"a": "b"}}, "status": {"resourceVersion": "1"}});
    let changed = server.patch(&format!("{MIGRATIONS}/m"), labels).await.unwrap();
    assert_eq!(changed["status"], json!({}));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn end_and_version_of_a_migration_are_set_once() {
    let server = server().await;
    server.create(MIGRATIONS, migration("", "pods")).await.unwrap();
    let path = format!("{MIGRATIONS}/m/status");
    let check = async |status: Value, why: &str| {
        let error = refused(server.patch(&path, json!({"status": status})).await);
        assert!(error.starts_with("422 ") && error.contains(why), "{error}");
    };
    for version in ["0", "07", "a", "-1"] {
        let why = format!(
            "status.resourceVersion: Invalid value: \"{version}\": resource version is not well formed: {version}"
        );
        check(json!({"resourceVersion": version}), &why).await;
    }
    let both = [condition("Succeeded", "True"), condition("Failed", "True")];
    check(
        json!({"conditions": both}),
        r#"status.conditions: Invalid value: [{"type":"Succeeded","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":""},{"type":"Failed","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":""}]: Both success and failed conditions cannot be true at the same time"#,
    )
    .await;
    check(
        json!({"conditions": [{"type": "Running", "status": "maybe"}]}),
        "status.conditions[0].status: Unsupported value: \"maybe\"",
    )
    .await;
    let ended = json!({
        "resourceVersion": "99999999999999999999999",
        "conditions": [condition("Running", "True"), condition("Succeeded", "True")],
    });
    let changed = server.patch(&path, json!({"status": ended})).await.unwrap();
    assert_eq!(changed["status"], ended);
    check(
        json!({"resourceVersion": "7"}),
        "status.resourceVersion: Invalid value: \"7\": field is immutable",
    )
    .await;
    check(
        json!({"resourceVersion": null}),
        "status.resourceVersion: Invalid value: \"\": field is immutable",
    )
    .await;
    check(
        json!({"conditions": [condition("Succeeded", "False")]}),
        "Success condition cannot be set to false once it is true",
    )
    .await;
    server.stop().await;
}
