//! Migrations of stored objects.

use crate::user::{User, account, by_user_agent, with_server, with_user};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder};
use setpoint_controllers::{PodCertificateCleaner, Setup, StorageVersionMigrator};
use setpoint_registry::{Feature, Identity, RuntimeConfig};
use setpoint_store::{At, MemoryStore, Store as _};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.io";
const WIDGETS: &str = "/apis/example.io/v1/namespaces/default/widgets";

fn gated(builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
    let gates = [Feature::StorageVersionMigrator];
    builder.runtime_config(RuntimeConfig::with_gates("api/beta", gates).unwrap())
}

/// A definition with two versions, of which the first is stored.
async fn define(user: &User) {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }},
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    user.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    user.until("/apis/example.io/v1", |found| !found.is_null()).await;
}

async fn create_widget(user: &User, name: &str) -> Value {
    let widget = json!({
        "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"size": 1},
    });
    user.create(WIDGETS, widget).await
}

/// Has the second version stored.
async fn store_second(user: &User) {
    let mut definition = user.get(DEFINITION).await;
    definition["spec"]["versions"][0]["storage"] = false.into();
    definition["spec"]["versions"][1]["storage"] = true.into();
    user.request("PUT", DEFINITION, &definition).await.unwrap();
    let stored = user.until(DEFINITION, |found| found["status"]["storedVersions"][1] == "v2").await;
    assert_eq!(stored["status"]["storedVersions"], json!(["v1", "v2"]));
}

async fn migrate(user: &User, name: &str, group: &str, resource: &str) {
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": {"name": name}, "spec": {"resource": {"group": group, "resource": resource}},
    });
    user.create(MIGRATIONS, migration).await;
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// Waits until a migration does not run any more.
async fn ended(user: &User, name: &str) -> Value {
    let path = format!("{MIGRATIONS}/{name}");
    user.until(&path, |found| condition(found, "Running")["status"] == "False").await
}

/// The version in which a widget is stored.
async fn stored_version(store: &MemoryStore, name: &str) -> String {
    let key = format!("/registry/example.io/widgets/default/{name}");
    let found = store.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap();
    let object: Value = serde_json::from_slice(&found.value).unwrap();
    object["apiVersion"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn custom_objects_are_stored_in_the_new_version() {
    let store = MemoryStore::default();
    let plane = gated(ControlPlane::builder()).store(Arc::new(store.clone()));
    with_user(plane, async |user| {
        define(&user).await;
        // More than a page has.
        let mut before = Vec::new();
        for n in 0..1200 {
            before.push(create_widget(&user, &format!("w-{n}")).await);
        }
        store_second(&user).await;
        create_widget(&user, "late").await;
        assert_eq!(stored_version(&store, "w-7").await, "example.io/v1");

        migrate(&user, "m", "example.io", "widgets").await;
        let migration = ended(&user, "m").await;
        let running = condition(&migration, "Running");
        assert_eq!(running["reason"], "MigrationCompleted");
        assert_eq!(running["message"], "Migration completed");
        let succeeded = condition(&migration, "Succeeded");
        assert_eq!(succeeded["status"], "True");
        assert_eq!(succeeded["reason"], "StorageVersionMigrationSucceeded");
        assert!(migration["status"]["resourceVersion"].is_string());
        for n in 0..1200 {
            let name = format!("w-{n}");
            assert_eq!(stored_version(&store, &name).await, "example.io/v2", "{name}");
        }
        // Nothing but the stored form has changed.
        let mut after = user.get(&format!("{WIDGETS}/w-7")).await;
        assert_ne!(after["metadata"]["resourceVersion"], before[7]["metadata"]["resourceVersion"]);
        after["metadata"]["resourceVersion"] = before[7]["metadata"]["resourceVersion"].clone();
        assert_eq!(after, before[7]);

        let definition = user.get(DEFINITION).await;
        assert_eq!(definition["status"]["storedVersions"], json!(["v2"]));
        let migrating = condition(&definition, "StorageMigrating");
        assert_eq!(migrating["status"], "False");
        assert_eq!(migrating["reason"], "MigrationSucceeded");
        assert_eq!(
            migrating["message"],
            "The migration has succeeded and the stored versions have been updated"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn migrations_of_a_resource_run_one_after_the_other() {
    let store = MemoryStore::default();
    let plane = gated(ControlPlane::builder()).store(Arc::new(store.clone()));
    with_user(plane, async |user| {
        define(&user).await;
        for n in 0..3 {
            create_widget(&user, &format!("w-{n}")).await;
        }
        for name in ["b", "a", "c"] {
            migrate(&user, name, "example.io", "widgets").await;
        }
        migrate(&user, "maps", "", "configmaps").await;
        let mut started = Vec::new();
        for name in ["a", "b", "c", "maps"] {
            let migration = ended(&user, name).await;
            assert_eq!(condition(&migration, "Succeeded")["status"], "True", "{name}");
            let version = migration["status"]["resourceVersion"].as_str().unwrap();
            started.push(version.parse::<u64>().unwrap());
        }
        // The first one runs at once. Of those that wait, created in one second, the first by name
        // is next.
        let [a, b, c, _] = started[..] else { panic!("{started:?}") };
        assert!(b < a && a < c, "{started:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_migrated_fails() {
    with_user(gated(ControlPlane::builder()), async |user| {
        for (name, group, resource, message) in [
            ("absent", "example.io", "widgets", "resource does not exist in discovery"),
            (
                "reviews",
                "authorization.k8s.io",
                "subjectaccessreviews",
                "resource \"authorization.k8s.io/v1, Resource=subjectaccessreviews\" does not support discovery operations: [update patch list]",
            ),
            (
                "bindings",
                "",
                "bindings",
                "resource \"/v1, Resource=bindings\" does not support discovery operations: [update patch list]",
            ),
        ] {
            migrate(&user, name, group, resource).await;
            let migration = ended(&user, name).await;
            let failed = condition(&migration, "Failed");
            assert_eq!(failed["status"], "True", "{migration:#}");
            assert_eq!(failed["reason"], "StorageVersionMigrationFailed");
            assert_eq!(failed["message"], message);
            assert!(condition(&migration, "Succeeded").is_null());
        }
        // A definition that comes within a minute is waited for.
        migrate(&user, "early", "example.io", "widgets").await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        define(&user).await;
        let migration = ended(&user, "early").await;
        assert_eq!(condition(&migration, "Succeeded")["status"], "True");
    })
    .await;
}

/// With `--use-service-account-credentials` the original writes as this account; what it watches,
/// it watches as itself.
#[tokio::test(start_paused = true)]
async fn migrator_works_with_its_own_account_and_role() {
    let store = MemoryStore::default();
    let plane = gated(ControlPlane::builder()).rbac().controllers(false);
    let plane = plane.store(Arc::new(store.clone()));
    with_server(plane, async |user, server| {
        define(&user).await;
        create_widget(&user, "w").await;
        store_second(&user).await;
        migrate(&user, "m", "example.io", "widgets").await;
        migrate(&user, "roles", "rbac.authorization.k8s.io", "clusterroles").await;
        migrate(&user, "accounts", "", "serviceaccounts").await;
        let watching = server
            .client_as(Identity::new("system:kube-controller-manager", ["system:authenticated"]));
        let own = account(&server, "storage-version-migrator-controller");
        let client = by_user_agent("storage-version-migrator-controller", own, watching);
        let stop = CancellationToken::new();
        let running = Setup::new(client, server.registry().clock().clone())
            .seed(1)
            .run(stop.clone(), |setup, manager| {
                StorageVersionMigrator::new(setup.clone()).add_to(manager)
            });
        let acting = async {
            for name in ["m", "roles", "accounts"] {
                let migration = ended(&user, name).await;
                assert_eq!(condition(&migration, "Succeeded")["status"], "True", "{migration:#}");
            }
            assert_eq!(stored_version(&store, "w").await, "example.io/v2");
            assert_eq!(user.get(DEFINITION).await["status"]["storedVersions"], json!(["v2"]));
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(running, acting);
        ended.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn old_requests_for_certificates_of_pods_are_deleted() {
    const REQUESTS: &str =
        "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
    let gates = [Feature::PodCertificateRequest];
    let config = RuntimeConfig::with_gates("api/beta", gates).unwrap();
    let plane = ControlPlane::builder().rbac().controllers(false).runtime_config(config);
    with_server(plane, async |user, server| {
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
            "metadata": {"name": "r"},
            "spec": {
                "signerName": "example.com/x", "podName": "p",
                "podUID": "1d5ec3b6-9f4e-4a8f-8d44-1f2f8f6c2a11",
                "serviceAccountName": "a", "serviceAccountUID": "a", "nodeName": "n", "nodeUID": "n",
                "pkixPublicKey": STANDARD.encode(include_bytes!("../../../jwt/testdata/possession/p256.der")),
                "proofOfPossession": STANDARD.encode(include_bytes!("../../../jwt/testdata/possession/p256.sig")),
            },
        });
        user.create(REQUESTS, request).await;
        // With the account and the role of the original.
        let own = account(&server, "podcertificaterequestcleaner");
        let stop = CancellationToken::new();
        let running = Setup::new(own, server.registry().clock().clone()).seed(1).run(
            stop.clone(),
            |setup, manager| PodCertificateCleaner::new(setup.clone()).add_to(manager),
        );
        let acting = async {
            let path = format!("{REQUESTS}/r");
            tokio::time::sleep(Duration::from_secs(14 * 60)).await;
            assert!(user.get(&path).await.is_object());
            user.until(&path, Value::is_null).await;
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(running, acting);
        ended.unwrap();
    })
    .await;
}
