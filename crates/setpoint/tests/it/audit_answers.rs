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

#[tokio::test]
async fn requests_for_deprecated_versions_are_marked() {
    let events = logged("- {level: Metadata, resources: [{group: \"\"}]}\n", async |server| {
        for resource in ["endpoints", "configmaps"] {
            let path = format!("/api/v1/namespaces/default/{resource}/x");
            send(server, jane(), Method::GET, &path, Value::Null).await;
        }
    })
    .await;
    let marks = |resource: &str| {
        let is_it = |event: &&Value| {
            event["objectRef"]["resource"] == resource
                && event["user"]["username"] == "jane"
                && event["stage"] == "ResponseComplete"
        };
        let event = events.iter().find(is_it).unwrap_or_else(|| panic!("{events:#?}"));
        ["k8s.io/deprecated", "k8s.io/removed-release"]
            .map(|name| event["annotations"][name].clone())
    };
    assert_eq!(marks("endpoints"), [json!("true"), Value::Null]);
    assert_eq!(marks("configmaps"), [Value::Null, Value::Null]);
}
