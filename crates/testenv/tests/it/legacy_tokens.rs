//! Tokens in Secrets that nobody uses.

use crate::cluster::Cluster;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{LegacyTokens, Setup};
use setpoint_object::time::Clock;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const MAP: &str = "kube-apiserver-legacy-service-account-token-tracking";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

fn of_secret(name: &str) -> String {
    format!("{SECRETS}/{name}")
}

fn invalid_since(secret: &Value) -> Option<&str> {
    secret["metadata"]["labels"][INVALID_SINCE].as_str()
}

/// The ConfigMap of a server that has noted uses for long.
async fn note_since(cluster: &Cluster, date: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP}, "data": {"since": date},
    });
    // The controller may have made it.
    let path = format!("{MAPS}/{MAP}?fieldManager=user&force=true");
    cluster.send("PATCH", &path, "application/apply-patch+yaml", &map).await.unwrap();
}

/// An account with tokens, all of which it lists except `manual`.
async fn tokens(cluster: &Cluster) {
    let listed = ["unused", "used", "mounted"].map(|name| json!({"name": name}));
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": listed,
    });
    cluster.create(ACCOUNTS, &account).await;
    for name in ["unused", "used", "mounted", "manual"] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": name, "annotations": {"kubernetes.io/service-account.name": "a"},
                "labels": {"kubernetes.io/legacy-token-last-used":
                    if name == "used" { "2027-12-01" } else { "2026-01-01" }},
            },
        });
        cluster.create(SECRETS, &secret).await;
    }
    let volume = json!({"name": "v", "secret": {"secretName": "mounted"}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]},
    });
    cluster.create("/api/v1/namespaces/default/pods", &pod).await;
}

/// A clock that is two years ahead: 2028-01-01.
fn in_two_years(clock: &Clock) -> Clock {
    Clock::starting_at(clock.now() + DAY * 730)
}

/// How long the controller of the scenario runs: its first pass is at once, the next a day later.
const LIFE: Duration = Duration::from_secs(60 * 60);

/// Waits for the first pass of the controller that runs next.
async fn next_pass() {
    tokio::time::sleep(LIFE).await;
}

/// Writes again what a user writes if the token is still to be deleted.
async fn mark_long_ago(cluster: &Cluster) {
    let labels = json!({"metadata": {"labels": {INVALID_SINCE: "2026-06-01"}}});
    cluster.patch(&of_secret("unused"), &labels).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn the_first_secret_begins_the_notes_of_uses(env: &TestEnv) {
    let cluster = Cluster::of(env);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    cluster.create(SECRETS, &secret).await;
    let map = cluster.until(&format!("{MAPS}/{MAP}"), |map| !map.is_null()).await;
    assert_eq!(map["data"], json!({"since": "2026-01-01"}));
    assert_eq!(map["metadata"]["managedFields"][0]["manager"], "kube-apiserver");
    // What is no date is mended at the next pass.
    cluster.patch(&format!("{MAPS}/{MAP}"), &json!({"data": {"since": "long ago"}})).await;
    tokio::time::sleep(DAY).await;
    let is_mended = |map: &Value| map["data"]["since"] == "2026-01-02";
    cluster.until(&format!("{MAPS}/{MAP}"), is_mended).await;
}

/// Tokens of an account that are used, mounted, made by hand, and unused.
struct Tokens;

impl Scenario for Tokens {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), in_two_years(&life.clock)).seed(life.seed);
        while !life.stop.is_cancelled() {
            let controller = LegacyTokens::new(&setup).run(life.stop.clone());
            // A control plane that stays up for days takes long to play.
            _ = tokio::time::timeout(LIFE, controller).await;
        }
        Ok(())
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        note_since(&cluster, "2026-01-01").await;
        tokens(&cluster).await;
        next_pass().await;
        cluster.until(&of_secret("unused"), |secret| invalid_since(secret).is_some()).await;
        for name in ["used", "mounted", "manual"] {
            let secret = cluster.get(&of_secret(name)).await.unwrap();
            assert_eq!(invalid_since(&secret), None, "{name}");
        }
        next_pass().await;
        assert!(cluster.get(&of_secret("unused")).await.is_some(), "it may still be used");
        mark_long_ago(&cluster).await;
        next_pass().await;
        cluster.until(&of_secret("unused"), Value::is_null).await;
        assert_eq!(cluster.list(SECRETS).await.len(), 3);
    }
}

#[test]
fn unused_tokens_end_with_every_plan() {
    check(&Tokens, &Plans::new().crashes().storms(8));
}
