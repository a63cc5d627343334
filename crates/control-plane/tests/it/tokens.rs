//! Bootstrap tokens: signatures with them, and their end, by controllers with their own roles.

use crate::user::{User, as_account, with_user};
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlane;
use setpoint_controllers::{BootstrapSigner, Selection, TokenCleaner};
use std::time::Duration;

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const MAPS: &str = "/api/v1/namespaces/kube-public/configmaps";
const INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const CONTENT: &str = "Hello from the other side. I must have called a thousand times.";

async fn publish(user: &User) {
    let info = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": CONTENT, "other": "x", "jws-kubeconfig-zzzzzz": "of nobody"},
    });
    user.create(MAPS, info).await;
}

/// A token with the id `id`; its members may be replaced.
async fn create(user: &User, name: &str, id: &str, members: Value) {
    let mut data = json!({
        "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
    });
    data.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": name}, "stringData": data,
    });
    user.create(SECRETS, secret).await;
}

/// The ids of the tokens that have signed, sorted.
fn signed(info: &Value) -> Vec<&str> {
    let data = info["data"].as_object().into_iter().flatten();
    data.filter_map(|(name, _)| name.strip_prefix("jws-kubeconfig-")).collect()
}

async fn until_signed(user: &User, ids: &[&str]) -> Value {
    user.until(INFO, |info| signed(info) == ids).await
}

/// What users see of the signer.
async fn sign(user: User) {
    publish(&user).await;
    let hour = json!({"expiration": "2026-01-01T01:00:00Z"});
    create(&user, "bootstrap-token-aaaaaa", "aaaaaa", json!({})).await;
    create(&user, "bootstrap-token-bbbbbb", "bbbbbb", hour).await;
    // No tokens that sign.
    create(&user, "bootstrap-token-cccccc", "cccccc", json!({"usage-bootstrap-signing": "yes"}))
        .await;
    create(
        &user,
        "bootstrap-token-dddddd",
        "dddddd",
        json!({"expiration": "2000-01-01T00:00:00Z"}),
    )
    .await;
    create(&user, "bootstrap-token-eeeeee", "ffffff", json!({})).await;
    create(&user, "a-token", "gggggg", json!({})).await;
    let info = until_signed(&user, &["aaaaaa", "bbbbbb"]).await;
    let expected = setpoint_jwt::sign_detached(CONTENT.as_bytes(), "aaaaaa", b"0123456789abcdef");
    assert_eq!(info["data"]["jws-kubeconfig-aaaaaa"], expected);
    assert_eq!(info["data"]["other"], "x");
    // Another text, another signature.
    user.patch(INFO, json!({"data": {"kubeconfig": "another"}})).await;
    user.until(INFO, |info| info["data"]["jws-kubeconfig-aaaaaa"] != expected.as_str()).await;
    user.delete(&format!("{SECRETS}/bootstrap-token-aaaaaa")).await;
    until_signed(&user, &["bbbbbb"]).await;
    // The other one expires.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    until_signed(&user, &[]).await;
    assert_eq!(user.get(INFO).await["data"], json!({"kubeconfig": "another", "other": "x"}));
}

#[tokio::test(start_paused = true)]
async fn cluster_info_is_signed_with_each_token() {
    let selection: Selection = "*,bootstrapsigner".parse().unwrap();
    with_user(ControlPlane::builder().controllers(selection), sign).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_signed_by_default() {
    with_user(ControlPlane::builder().controllers(Selection::all()), async |user| {
        publish(&user).await;
        create(&user, "bootstrap-token-aaaaaa", "aaaaaa", json!({})).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(signed(&user.get(INFO).await), ["zzzzzz"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn signer_works_with_its_own_account_and_role() {
    let run = |setup, stop| BootstrapSigner::new(setup).run(stop).boxed();
    as_account(ControlPlane::builder(), "bootstrap-signer", run, sign).await;
}

#[tokio::test(start_paused = true)]
async fn token_cleaner_works_with_its_own_account_and_role() {
    let run = |setup, stop| TokenCleaner::new(setup).run(stop).boxed();
    let act = async |user: User| {
        let hour = json!({"expiration": "2026-01-01T01:00:00Z"});
        create(&user, "bootstrap-token-aaaaaa", "aaaaaa", hour).await;
        create(&user, "bootstrap-token-bbbbbb", "bbbbbb", json!({})).await;
        let old = json!({"expiration": "2000-01-01T00:00:00Z"});
        create(&user, "bootstrap-token-cccccc", "cccccc", old).await;
        let path = |id: &str| format!("{SECRETS}/bootstrap-token-{id}");
        user.until(&path("cccccc"), Value::is_null).await;
        assert!(user.get(&path("aaaaaa")).await.is_object());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        user.until(&path("aaaaaa"), Value::is_null).await;
        assert!(user.get(&path("bbbbbb")).await.is_object());
    };
    as_account(ControlPlane::builder(), "token-cleaner", run, act).await;
}
