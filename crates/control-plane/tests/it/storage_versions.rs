//! What servers leave in StorageVersions.

use crate::user::{User, as_account, with_user};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use serde_json::{Value, json};
use setpoint_apiserver::{Attributes, Identity, Intercepted, Interceptor};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder, ServeOptions};
use setpoint_controllers::StorageVersionCollector;
use setpoint_object::ApiError;
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_store::MemoryStore;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

fn gated(gates: &[Feature]) -> ControlPlaneBuilder {
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
    as_account(gated(&[Feature::StorageVersionAPI]), account, run, async |user| {
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
    for gates in [&[][..], &[Feature::StorageVersionAPI]] {
        with_user(gated(gates), async |user| {
            write(&user, "apps.x", &[("gone", "v1")]).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            let found = user.get(&format!("{VERSIONS}/apps.x")).await;
            assert_eq!(found.is_null(), !gates.is_empty(), "{found:#}");
        })
        .await;
    }
}

/// What the server itself writes into StorageVersions waits until this is true; with a name, only
/// what it writes into that one fails instead.
#[derive(Debug)]
struct Gate(watch::Receiver<bool>, Option<&'static str>);

impl Interceptor for Gate {
    fn intercept<'a>(
        &'a self,
        parts: &'a Parts,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Intercepted> {
        let path = parts.uri.path();
        let is_held = request.identity.is_loopback()
            && !request.verb.is_read_only()
            && path.starts_with(VERSIONS);
        let mut opened = self.0.clone();
        async move {
            match self.1 {
                _ if !is_held || *opened.borrow() => Intercepted::Continue,
                Some(name) if path.ends_with(&format!("{name}/status")) => {
                    Intercepted::Fail(ApiError::internal("out of order"))
                }
                Some(_) => Intercepted::Continue,
                None => {
                    opened.wait_for(|is_open| *is_open).await.unwrap();
                    Intercepted::Continue
                }
            }
        }
        .boxed()
    }
}

/// Runs a served plane with the feature gate while `act` uses it: its administrator, the server
/// itself, and whether it is ready.
async fn with_barrier(
    plane: ControlPlaneBuilder,
    act: impl AsyncFnOnce(User, User, watch::Receiver<bool>),
) {
    let plane = plane.simulated(1).build();
    let (own, admin) = (User::of(&plane), plane.server().client_as(Identity::admin()));
    let serving = plane.serve(ServeOptions::new((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let ready = serving.ready();
    let stop = CancellationToken::new();
    let acting = async {
        act(User::from(admin), own, ready).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(serving.run(stop.clone()), acting);
    ended.unwrap();
}

/// Code and message of a create.
async fn outcome(user: &User, path: &str, body: Value) -> (u16, String) {
    match user.request("POST", path, &body).await {
        Ok(_) => (201, String::new()),
        Err(kube_client::Error::Api(status)) => {
            assert_eq!(status.reason == "ServiceUnavailable", status.code == 503);
            (status.code, status.message)
        }
        Err(error) => panic!("create {path}: {error}"),
    }
}

fn refused(resource: &str, last: &str) -> (u16, String) {
    let message = format!(
        "wait for storage version registration to complete for resource: {resource}, last seen error: {last}"
    );
    (503, message)
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const HOOK: &str = "poststarthook/built-in-resources-storage-version-updater";

/// Deletes an object that need not exist, which says whether writes pass.
async fn deletion(user: &User, path: &str) -> u16 {
    match user.request("DELETE", path, &Value::Null).await {
        Err(kube_client::Error::Api(status)) => status.code,
        other => panic!("delete {path}: {other:?}"),
    }
}

fn definition(plural: &str) -> Value {
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    });
    let names = json!({"plural": plural, "kind": plural.to_uppercase()});
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": names, "versions": [version],
        },
    })
}

/// kube-apiserver's integration test `TestStorageVersionBootstrap`.
#[tokio::test(start_paused = true)]
async fn writes_of_built_in_resources_wait_until_storage_versions_are_written() {
    let store = Arc::new(MemoryStore::default());
    with_user(ControlPlane::builder().store(store.clone()), async |user| {
        user.create(DEFINITIONS, definition("widgets")).await;
        let widgets = format!("{DEFINITIONS}/widgets.example.com");
        user.until(&widgets, |found| found.to_string().contains("Established")).await;
    })
    .await;
    let (open, opened) = watch::channel(false);
    let plane = gated(&[Feature::StorageVersionAPI]).store(store);
    let plane = plane.interceptor(Arc::new(Gate(opened, None)));
    with_barrier(plane, async |admin, own, mut ready| {
        let named = |name: &str| json!({"metadata": {"name": name}});
        let namespaces = "/api/v1/namespaces";
        for (path, body, resource) in [
            (MAPS, named("one"), "configmaps"),
            (DEFINITIONS, definition("gadgets"), "customresourcedefinitions.apiextensions.k8s.io"),
            (&LEASES.replace("kube-system", "default"), named("x"), "leases.coordination.k8s.io"),
            (namespaces, named("x"), "namespaces"),
            // Whether the object and its kind of subresource are there is asked later.
            (&format!("{namespaces}/default/pods/x/eviction"), named("x"), "pods"),
        ] {
            assert_eq!(outcome(&admin, path, body).await, refused(resource, "<nil>"));
        }
        assert_eq!(deletion(&admin, &format!("{MAPS}/one")).await, 503);
        let review = json!({"spec": {"token": "x"}});
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "WIDGETS", "metadata": {"name": "x"},
        });
        for (user, path, body) in [
            (&admin, VERSIONS, named("example.com.x")),
            (&admin, LEASES, named("x")),
            (&own, namespaces, named("x")),
            (&admin, "/apis/authentication.k8s.io/v1/tokenreviews", review),
            (&admin, "/apis/example.com/v1/widgets", widget),
        ] {
            assert_eq!(outcome(user, path, body).await, (201, String::new()), "{path}");
        }
        assert_eq!(outcome(&own, MAPS, named("one")).await.0, 503);
        assert!(admin.get(namespaces).await.is_object());
        let page = admin.text("/readyz").await;
        assert!(page.contains(&format!("[-]{HOOK} failed")), "{page}");
        assert!(!*ready.borrow());
        open.send_replace(true);
        ready.wait_for(|ready| *ready).await.unwrap();
        assert_eq!(outcome(&admin, MAPS, named("one")).await, (201, String::new()));
        assert_eq!(admin.text("/readyz").await, "ok");
        assert!(admin.text("/readyz?verbose").await.contains(&format!("[+]{HOOK} ok")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn writes_wait_for_their_own_storage_version_only() {
    let (open, opened) = watch::channel(false);
    let plane = gated(&[Feature::StorageVersionAPI]);
    let plane = plane.interceptor(Arc::new(Gate(opened, Some("apps.deployments"))));
    with_barrier(plane, async |admin, _, mut ready| {
        let named = |name: &str| json!({"metadata": {"name": name}});
        // Its error comes with the first round.
        let refusal = refused("deployments.apps", "Internal error occurred: out of order");
        while outcome(&admin, DEPLOYMENTS, named("x")).await != refusal {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        admin
            .until(&format!("{VERSIONS}/storage.k8s.io.volumeattachments"), |found| {
                servers(found).len() == 1
            })
            .await;
        assert_eq!(outcome(&admin, MAPS, named("one")).await, (201, String::new()));
        assert_eq!(outcome(&admin, DEPLOYMENTS, named("x")).await, refusal);
        assert!(!*ready.borrow());
        open.send_replace(true);
        ready.wait_for(|ready| *ready).await.unwrap();
        // It is an invalid one.
        assert_eq!(outcome(&admin, DEPLOYMENTS, named("x")).await.0, 422);
    })
    .await;
}

/// Without a listener nobody writes StorageVersions, and without the feature gate nothing waits.
#[tokio::test(start_paused = true)]
async fn writes_pass_where_no_storage_versions_are_written() {
    let one = || json!({"metadata": {"name": "one"}});
    with_user(gated(&[Feature::StorageVersionAPI]), async |user| {
        assert_eq!(outcome(&user, MAPS, one()).await.0, 201);
        assert_eq!(user.text("/readyz").await, "ok");
    })
    .await;
    let (_open, opened) = watch::channel(false);
    let plane = gated(&[]).interceptor(Arc::new(Gate(opened, None)));
    with_barrier(plane, async |admin, _, mut ready| {
        ready.wait_for(|ready| *ready).await.unwrap();
        assert_eq!(outcome(&admin, MAPS, one()).await.0, 201);
        assert!(!admin.text("/readyz?verbose").await.contains(HOOK));
    })
    .await;
}
