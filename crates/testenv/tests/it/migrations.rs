//! Objects that are stored in another version, and tokens that sign.

use crate::cluster::{Cluster, condition, has, until_either};
use crate::storms::observer::{at_every_change, of};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{BootstrapSigner, Setup, StorageVersionMigrator};
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::time::Duration;

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.io";
const WIDGETS: &str = "/apis/example.io/v1/namespaces/default/widgets";

/// Objects of a custom resource whose storage version changes, twice.
struct Migrations;

fn definition(stored: &str) -> Value {
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == stored,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1"), version("v2")],
        },
    })
}

async fn widget(cluster: &Cluster, name: &str) {
    let widget = json!({
        "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"size": 1},
    });
    cluster.create(WIDGETS, &widget).await;
}

impl Scenario for Migrations {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        let gates = [Feature::StorageVersionMigrator];
        let config = RuntimeConfig::with_gates("api/beta", gates).expect("a valid text");
        builder.controllers(false).runtime_config(config)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let mut manager = life.manager().build();
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        StorageVersionMigrator::new(setup).add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        // A version in which an object is stored cannot be removed from the definition.
        let watch = at_every_change(env, "/registry/", |objects, change| {
            let mut definitions = of(objects, "apiextensions.k8s.io/customresourcedefinitions");
            let Some(definition) = definitions.next() else { return };
            let listed = &definition["status"]["storedVersions"];
            for widget in of(objects, "example.io/widgets") {
                let version = widget["apiVersion"].as_str().unwrap_or_default();
                let version = version.trim_start_matches("example.io/");
                let mut listed = listed.as_array().into_iter().flatten();
                assert!(listed.any(|listed| listed == version), "{change}: {version}");
            }
        });
        until_either(watch, migrate_twice(env)).await;
    }
}

async fn migrate_twice(env: &TestEnv) {
    let cluster = Cluster::of(env);
    cluster.create(DEFINITIONS, &definition("v1")).await;
    cluster.until("/apis/example.io/v1", |found| !found.is_null()).await;
    for n in 0..5 {
        widget(&cluster, &format!("w-{n}")).await;
    }
    for (stored, name) in [("v2", "there"), ("v1", "back")] {
        let versions = definition(stored)["spec"]["versions"].clone();
        cluster.patch(DEFINITION, &json!({"spec": {"versions": versions}})).await;
        cluster
            .until(DEFINITION, |found| {
                found["status"]["storedVersions"].as_array().is_some_and(|all| all.len() == 2)
            })
            .await;
        widget(&cluster, &format!("w-{name}")).await;
        let migration = json!({
            "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
            "metadata": {"name": name},
            "spec": {"resource": {"group": "example.io", "resource": "widgets"}},
        });
        cluster.create(MIGRATIONS, &migration).await;
        let path = format!("{MIGRATIONS}/{name}");
        let ended = |found: &Value| condition(found, "Running")["status"] == "False";
        let migration = cluster.until(&path, ended).await;
        assert!(has(&migration, "Succeeded"), "{migration:#}");
        // Its version differs between plays.
        cluster.delete(&path, &json!({})).await;
        let definition = cluster.get(DEFINITION).await.expect("the definition");
        assert_eq!(definition["status"]["storedVersions"], json!([stored]));
    }
}

/// The final state has the versions in which objects are stored.
#[test]
fn objects_are_stored_in_the_version_of_the_definition_with_every_plan() {
    check(&Migrations, &Plans::new().crashes().storms(8));
}

/// Tokens that come, go and expire while `cluster-info` is signed.
struct Signatures;

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

impl Scenario for Signatures {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        BootstrapSigner::new(setup).run(life.stop.clone()).await
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let info = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info"},
            "data": {"kubeconfig": "a", "jws-kubeconfig-zzzzzz": "of nobody"},
        });
        cluster.create("/api/v1/namespaces/kube-public/configmaps", &info).await;
        let token = async |id: &str, expiration: String| {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
                "metadata": {"name": format!("bootstrap-token-{id}")},
                "stringData": {
                    "token-id": id, "token-secret": "0123456789abcdef",
                    "usage-bootstrap-signing": "true", "expiration": expiration,
                },
            });
            cluster.create(SECRETS, &secret).await;
        };
        let soon = env.clock().now() + Duration::from_secs(10_000);
        let late = env.clock().now() + Duration::from_secs(1_000_000);
        token("aaaaaa", soon.rfc3339().to_string()).await;
        token("bbbbbb", late.rfc3339().to_string()).await;
        token("cccccc", late.rfc3339().to_string()).await;
        let until = async |content: &str, ids: &[&str]| {
            let expected = |id: &&str| {
                let signature =
                    setpoint_jwt::sign_detached(content.as_bytes(), id, b"0123456789abcdef");
                (format!("jws-kubeconfig-{id}"), Value::from(signature))
            };
            let mut data: serde_json::Map<String, Value> = ids.iter().map(expected).collect();
            data.insert("kubeconfig".to_owned(), content.into());
            let data = Value::Object(data);
            cluster.until(INFO, |info| info["data"] == data).await;
        };
        cluster.patch(INFO, &json!({"data": {"kubeconfig": "b"}})).await;
        cluster.delete(&format!("{SECRETS}/bootstrap-token-cccccc"), &json!({})).await;
        until("b", &["bbbbbb"]).await;
    }
}

#[test]
fn cluster_info_has_the_signatures_of_its_tokens_with_every_plan() {
    check(&Signatures, &Plans::new().crashes().storms(8));
}
