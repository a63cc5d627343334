//! What webhooks are shown: users of a kubeconfig, by plugin and server.

use crate::admission_webhooks::{MAPS, MUTATING, VALIDATING, configure, hook, map, plane};
use crate::https::{Ca, with_user};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::AdmissionConfiguration;
use setpoint::registry::FeatureGates;
use std::collections::BTreeMap;
use std::sync::Arc;

#[tokio::test]
async fn webhooks_are_shown_the_user_that_is_named_as_their_server() {
    let (ca, seen) = (Ca::new(), Arc::new(Mutex::new(BTreeMap::new())));
    let of_server = seen.clone();
    let answer = move |path: &str, review: Value| {
        of_server.lock().insert(path.to_owned(), review["authorization"].clone());
        let (uid, allowed) = (&review["request"]["uid"], path != "/probe");
        let answer = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": uid, "allowed": allowed},
        });
        (200, answer.to_string())
    };
    let server = ca.serve_raw(answer).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("users");
    let users = json!([
        {"name": server.address.to_string(), "user": {"token": "for this one"}},
        {"name": "*", "user": {"token": "for others"}},
    ]);
    let document = json!({"apiVersion": "v1", "kind": "Config", "users": users});
    std::fs::write(&kubeconfig, document.to_string()).unwrap();
    let path = folder.path().join("admission");
    let load = |kubeconfig: &str| {
        let document = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [{"name": "MutatingAdmissionWebhook", "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": kubeconfig,
            }}],
        });
        std::fs::write(&path, document.to_string()).unwrap();
        AdmissionConfiguration::load(&path, FeatureGates::default())
    };
    let error = load("users").unwrap_err().to_string();
    let text = r#"kubeConfigFile: Invalid value: "users": must be an absolute file path"#;
    assert!(error.ends_with(text), "{error}");
    let credentials = load(kubeconfig.to_str().unwrap()).unwrap().webhook_credentials().unwrap();
    let plane = plane().webhook_credentials(credentials);
    with_user(plane, async |user, _| {
        for (path, name) in [(MUTATING, "m"), (VALIDATING, "v")] {
            let hook = hook(name, server.config(&format!("/{name}")), &["configmaps"]);
            configure(&user, &server, path, name, &[hook]).await;
        }
        user.create(MAPS, &map("a")).await;
        let seen = seen.lock().clone();
        assert_eq!((&seen["/m"], &seen["/v"]), (&json!("Bearer for this one"), &Value::Null));
    })
    .await;
}

#[tokio::test]
async fn a_webhook_that_demands_a_certificate_is_shown_that_of_its_user() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let answer = |path: &str, review: Value| {
        let answer = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": review["request"]["uid"], "allowed": path != "/probe"},
        });
        (200, answer.to_string())
    };
    let (probe, demanding) = (ca.serve_raw(answer).await, ca.serve_raw_for(&clients, answer).await);
    let (certificate, key) = clients.sign_for(&["apiserver"]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let as_data = json!({
        "client-certificate-data": STANDARD.encode(&certificate),
        "client-key-data": STANDARD.encode(&key),
    });
    let as_files = json!({
        "client-certificate": file("client.crt", &certificate),
        "client-key": file("client.key", &key),
    });
    for user in [as_data, as_files] {
        let users = json!([{"name": demanding.address.to_string(), "user": user}]);
        let document = json!({"apiVersion": "v1", "kind": "Config", "users": users});
        let kubeconfig = file("users", &document.to_string());
        let document = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [{"name": "MutatingAdmissionWebhook", "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": kubeconfig,
            }}],
        });
        let path = file("admission", &document.to_string());
        let configured = AdmissionConfiguration::load(&path, FeatureGates::default());
        let credentials = configured.unwrap().webhook_credentials().unwrap();
        with_user(plane().webhook_credentials(credentials), async |user, _| {
            let hook = |name: &str| hook(name, demanding.config("/"), &["configmaps"]);
            configure(&user, &probe, MUTATING, "m", &[hook("m")]).await;
            user.create(MAPS, &map("a")).await;
            // The other plugin has no users, and shows nothing.
            configure(&user, &probe, VALIDATING, "v", &[hook("v")]).await;
            let refused = user.send("POST", MAPS, &map("b")).await.shown();
            let failed = "500 Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: Post ";
            assert!(refused.starts_with(failed), "{refused}");
        })
        .await;
    }
}
