//! What servers leave in StorageVersions.

use crate::user::{User, as_account, with_user};
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder};
use setpoint_controllers::StorageVersionCollector;
use setpoint_registry::RuntimeConfig;
use std::time::Duration;

const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

fn gated(gates: &[&str]) -> ControlPlaneBuilder {
    let served = "internal.apiserver.k8s.io/v1alpha1=true";
    ControlPlane::builder().runtime_config(RuntimeConfig::with_gates(served, gates).unwrap())
}

async fn lease(user: &User, name: &str, component: &str) {
    let labels = json!({"apiserver.kubernetes.io/identity": component});
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 3600});
    user.create(LEASES, json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await;
}

/// A StorageVersion that servers have written, each with the version that it stores.
async fn write(user: &User, name: &str, servers: &[(&str, &str)]) {
    user.create(VERSIONS, json!({"metadata": {"name": name}, "spec": {}})).await;
    let server = |(id, version): &(&str, &str)| {
        json!({
            "apiServerID": id, "encodingVersion": version, "decodableVersions": ["v1", "v2"],
        })
    };
    let first = servers[0].1;
    let common = servers.iter().all(|(_, version)| *version == first).then_some(first);
    let servers: Vec<_> = servers.iter().map(server).collect();
    let status = json!({"storageVersions": servers, "commonEncodingVersion": common});
    let status = json!({"status": status});
    user.patch(&format!("{VERSIONS}/{name}/status"), status).await;
}

fn servers(version: &Value) -> Vec<&str> {
    let servers = version["status"]["storageVersions"].as_array().into_iter().flatten();
    servers.filter_map(|server| server["apiServerID"].as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn servers_without_a_lease_are_removed() {
    let run = |setup, stop| StorageVersionCollector::new(setup).run(stop).boxed();
    let account = "storage-version-garbage-collector";
    as_account(gated(&["StorageVersionAPI"]), account, run, async |user| {
        lease(&user, "one", "kube-apiserver").await;
        lease(&user, "two", "kube-apiserver").await;
        lease(&user, "no-server", "other").await;
        let path = |name: &str| format!("{VERSIONS}/{name}");
        write(&user, "apps.both", &[("one", "v1"), ("two", "v2")]).await;
        write(&user, "apps.second", &[("two", "v1")]).await;
        write(&user, "apps.gone", &[("gone", "v1"), ("one", "v1"), ("no-server", "v1")]).await;
        let found = user.until(&path("apps.gone"), |found| servers(found) == ["one"]).await;
        assert_eq!(found["status"]["commonEncodingVersion"], "v1");
        let condition = &found["status"]["conditions"][0];
        assert_eq!(condition["type"], "AllEncodingVersionsEqual");
        assert_eq!(condition["reason"], "CommonEncodingVersionSet");
        assert_eq!(condition["message"], "Common encoding version set");
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(servers(&user.get(&path("apps.both")).await), ["one", "two"]);
        user.delete(&format!("{LEASES}/two")).await;
        let found = user.until(&path("apps.both"), |found| servers(found) == ["one"]).await;
        assert_eq!(found["status"]["commonEncodingVersion"], "v1");
        user.until(&path("apps.second"), Value::is_null).await;
        assert_eq!(servers(&user.get(&path("apps.gone")).await), ["one"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_plane_collects_storage_versions_with_the_feature_gate() {
    for gates in [&[][..], &["StorageVersionAPI"]] {
        with_user(gated(gates), async |user| {
            write(&user, "apps.x", &[("gone", "v1")]).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            let found = user.get(&format!("{VERSIONS}/apps.x")).await;
            assert_eq!(found.is_null(), !gates.is_empty(), "{found:#}");
        })
        .await;
    }
}
