//! Reviews as API servers write them, and their answers as trees.

use base64::Engine as _;
use serde_json::{Value, json};
use setpoint_webhook::{Reply, Webhooks};

/// An `AdmissionReview` in v1 with UID `u`.
pub(crate) fn admission(operation: &str, object: &Value, old_object: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "name": "a", "namespace": "default", "operation": operation,
        "userInfo": {"username": "anna", "groups": ["system:authenticated"], "extra": {"k": ["v"]}},
        "object": object, "oldObject": old_object, "dryRun": false,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
    }})
}

/// Posts a review that is answered with one; its `response`.
pub(crate) async fn ask(webhooks: &Webhooks, path: &str, review: &Value) -> Value {
    let reply = webhooks.handle(path, review.to_string()).await;
    assert_eq!(reply.code, 200, "{reply:?}");
    let mut answer = tree(&reply);
    assert_eq!(answer["apiVersion"], review["apiVersion"]);
    assert_eq!(answer["kind"], review["kind"]);
    assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
    answer["response"].take()
}

/// What a reply says.
pub(crate) fn tree(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

/// The patch of a response, decoded.
pub(crate) fn patch(response: &Value) -> Value {
    assert_eq!(response["patchType"], "JSONPatch");
    let text = response["patch"].as_str().unwrap();
    let text = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    serde_json::from_slice(&text).unwrap()
}
