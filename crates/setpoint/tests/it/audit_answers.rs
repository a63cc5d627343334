//! What the audit log has of answers that are no objects.
use crate::audit_log::{jane, logged};
use crate::rbac::send;
use http::Method;
use serde_json::{Value, json};
use setpoint::registry::Identity;

#[tokio::test]
async fn bindings_and_evictions_succeed_with_a_status() {
    let pods = "/api/v1/namespaces/default/pods";
    let events = logged("- {level: Metadata, users: [jane]}", async |server| {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        send(server, Identity::admin(), Method::POST, pods, pod).await;
        let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
        send(server, jane(), Method::POST, &format!("{pods}/p/binding"), binding).await;
        let eviction = json!({"metadata": {"name": "p"}});
        send(server, jane(), Method::POST, &format!("{pods}/p/eviction"), eviction).await;
    })
    .await;
    let ends = events.iter().filter(|event| event["stage"] == "ResponseComplete");
    let ends: Vec<&Value> = ends.map(|event| &event["responseStatus"]).collect();
    let success = json!({"metadata": {}, "status": "Success", "code": 201});
    assert_eq!(ends, [&success, &success]);
}

#[tokio::test]
async fn a_refused_document_says_why() {
    let events = logged("- {level: Metadata, users: [jane]}", async |server| {
        send(server, jane(), Method::POST, "/api", Value::Null).await;
    })
    .await;
    let end = &events.last().unwrap()["responseStatus"];
    assert_eq!(end["message"], "the server does not allow this method on the requested resource");
    assert_eq!((&end["reason"], &end["code"]), (&json!("MethodNotAllowed"), &json!(405)));
}
