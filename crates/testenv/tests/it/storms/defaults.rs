//! What every namespace has, and the Secrets with tokens.

use super::observer::{at_every_change, of};
use crate::cluster::{Cluster, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{
    NamespaceController, NamespaceDefaults, Setup, TokenCleaner, TokenSecrets,
};
use setpoint_jwt::KeyRing;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NAMESPACES: &str = "/api/v1/namespaces";
const ROOT_CA: &str = "the certificate";
/// How far the process's clock may be from the server's, in seconds.
const SKEW_SECS: u64 = 31;

/// Namespaces that lose their defaults, and one that is deleted.
struct Defaults;

impl Scenario for Defaults {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        let defaults = setup.clone().run(life.stop.clone(), |setup, manager| {
            NamespaceController::new(setup.clone()).add_to(manager)?;
            NamespaceDefaults::new(setup.clone()).root_ca(Some(ROOT_CA.into())).add_to(manager)
        });
        // Keys outlive the process, as in a file.
        let keys = KeyRing::new(Box::new(|bytes| {
            bytes.fill(7);
            Ok(())
        }));
        let secrets = TokenSecrets::new(setup.clone(), keys)
            .root_ca(Some(ROOT_CA.into()))
            .run(life.stop.clone());
        let cleaner = TokenCleaner::new(setup).run(life.stop.clone());
        tokio::try_join!(defaults, secrets, cleaner).map(drop)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let is_over = AtomicBool::new(false);
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if !change.is_of("secrets") {
                return;
            }
            // A token is of the account that exists, and does not change.
            let token = |secret: &Value| secret["data"]["token"].as_str().map(str::to_owned);
            if let (Some(old), Some(new)) = (token(&change.old), token(&change.new)) {
                assert_eq!(old, new, "{change}");
            }
            let is_token = change.old["type"] == "bootstrap.kubernetes.io/token";
            if change.begins_deletion() && is_token && !is_over.load(Ordering::Relaxed) {
                let now = env.clock().now().0.as_secs() + SKEW_SECS;
                assert!(now >= expiry(&change.old), "{change} has not expired");
            }
            if change.begins_deletion() && change.old["type"] == TYPE {
                let uid = &change.old["metadata"]["annotations"][UID];
                let exists = |account: &Value| !uid.is_null() && account["metadata"]["uid"] == *uid;
                let is_by_user = change.key.ends_with("/t2");
                assert!(
                    is_by_user || !of(objects, "serviceaccounts").any(exists),
                    "{change}: it has its account"
                );
            }
        });
        until_either(watch, users(env, &cluster, &is_over)).await;
    }
}

const TYPE: &str = "kubernetes.io/service-account-token";
const UID: &str = "kubernetes.io/service-account.uid";

fn expiry(secret: &Value) -> u64 {
    let text = secret["metadata"]["labels"]["expires"].as_str().unwrap();
    text.parse().unwrap()
}

/// A bootstrap token that expires after a time.
fn bootstrap(env: &TestEnv, id: &str, after: Duration) -> Value {
    let at = env.clock().now() + after;
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": format!("bootstrap-token-{id}"),
            "labels": {"expires": at.0.as_secs().to_string()},
        },
        "stringData": {
            "token-id": id, "token-secret": "0123456789abcdef", "expiration": at.rfc3339(),
        },
    })
}

async fn users(env: &TestEnv, cluster: &Cluster, is_over: &AtomicBool) {
    let is_right = |map: &Value| map["data"] == json!({"ca.crt": ROOT_CA});
    for name in ["one", "two"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.create(NAMESPACES, &namespace).await;
    }
    for (id, after) in [("aaaaaa", 20), ("bbbbbb", 100_000)] {
        let secret = bootstrap(env, id, Duration::from_secs(after));
        cluster.create("/api/v1/namespaces/kube-system/secrets", &secret).await;
    }
    let account = |namespace: &str| format!("{NAMESPACES}/{namespace}/serviceaccounts/default");
    let map = |namespace: &str| format!("{NAMESPACES}/{namespace}/configmaps/kube-root-ca.crt");
    for name in ["one", "two", "default", "kube-system"] {
        cluster.until(&account(name), Value::is_object).await;
        cluster.until(&map(name), is_right).await;
    }
    // Two tokens of an account, of which one account goes.
    let robot =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    cluster.create(&format!("{NAMESPACES}/one/serviceaccounts"), &robot).await;
    for (name, of) in [("t1", "robot"), ("t2", "default")] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": TYPE,
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": of}},
        });
        cluster.create(&format!("{NAMESPACES}/one/secrets"), &secret).await;
    }
    let has_token = |secret: &Value| secret["data"]["token"].is_string();
    for name in ["t1", "t2"] {
        cluster.until(&format!("{NAMESPACES}/one/secrets/{name}"), has_token).await;
    }
    cluster.delete(&format!("{NAMESPACES}/one/serviceaccounts/robot"), &json!({})).await;
    cluster.until(&format!("{NAMESPACES}/one/secrets/t1"), Value::is_null).await;

    // They are restored, except in a namespace that ends.
    cluster.delete(&map("one"), &json!({})).await;
    let wrong = json!({"data": {"ca.crt": "wrong", "more": "x"}});
    cluster.patch(&map("default"), &wrong).await;
    cluster.delete(&account("default"), &json!({})).await;
    cluster.delete(&format!("{NAMESPACES}/two"), &json!({})).await;
    cluster.until(&map("one"), is_right).await;
    cluster.until(&map("default"), is_right).await;
    cluster.until(&account("default"), Value::is_object).await;
    cluster.until(&format!("{NAMESPACES}/two"), Value::is_null).await;
    // Tokens differ between plays.
    cluster.delete(&format!("{NAMESPACES}/one/secrets/t2"), &json!({})).await;
    let cleaned = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-aaaaaa";
    cluster.until(cleaned, Value::is_null).await;
    let kept = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-bbbbbb";
    is_over.store(true, Ordering::Relaxed);
    cluster.delete(kept, &json!({})).await;
}

#[test]
fn namespaces_have_their_defaults_with_every_plan() {
    check(&Defaults, &Plans::new().storms(10));
}
