//! The Node authorizer over HTTP requests: agents read what pods on their nodes refer to.

use crate::plane::with_person_of;
use crate::rbac::{admin, send, settled};
use http::Method;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::ApiServer;
use setpoint::registry::Identity;

const DEFAULT: &str = "/api/v1/namespaces/default";

fn agent(node: &str) -> Identity {
    Identity::new(&format!("system:node:{node}"), ["system:nodes", "system:authenticated"])
}

async fn code(server: &ApiServer, node: &str, method: Method, path: &str) -> u16 {
    send(server, agent(node), method, path, Value::Null).await.0.as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_readable_from_the_binding_of_its_pod_to_its_deletion() {
    let plane = ControlPlane::builder().simulated(0).node_authorizer().rbac().build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        let server = &server;
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}});
        admin(server, &format!("{DEFAULT}/secrets"), secret).await;
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
            },
        });
        admin(server, &format!("{DEFAULT}/pods"), pod).await;
        settled().await;
        let path = format!("{DEFAULT}/secrets/s");
        let (status, answer) = send(server, agent("n1"), Method::GET, &path, Value::Null).await;
        assert_eq!(status, 403);
        assert_eq!(
            answer["message"],
            r#"secrets "s" is forbidden: User "system:node:n1" cannot get resource "secrets" in API group "" in the namespace "default": no relationship found between node 'n1' and this object"#
        );

        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
        admin(server, &format!("{DEFAULT}/pods/p/binding"), binding).await;
        settled().await;
        assert_eq!(code(server, "n1", Method::GET, &path).await, 200);
        let selected = format!("{DEFAULT}/secrets?fieldSelector=metadata.name%3Ds");
        assert_eq!(code(server, "n1", Method::GET, &selected).await, 200);
        assert_eq!(code(server, "n2", Method::GET, &path).await, 403);
        assert_eq!(code(server, "n1", Method::GET, &format!("{DEFAULT}/secrets")).await, 403);
        assert_eq!(code(server, "n1", Method::DELETE, &path).await, 403);
        let on = |node| format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        assert_eq!(code(server, "n1", Method::GET, &on("n1")).await, 200);
        assert_eq!(code(server, "n1", Method::GET, &on("n2")).await, 403);

        let gone = json!({"gracePeriodSeconds": 0});
        let pod = format!("{DEFAULT}/pods/p");
        let (status, _) = send(server, Identity::admin(), Method::DELETE, &pod, gone).await;
        assert_eq!(status, 200);
        settled().await;
        assert_eq!(code(server, "n1", Method::GET, &path).await, 403);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_an_agent_are_not_all_listed_and_those_of_others_are() {
    let plane = ControlPlane::builder().simulated(0).node_authorizer().rbac().build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let review = json!({"spec": {"namespace": "default"}});
        for (user, is_incomplete) in
            [(agent("n1"), true), (Identity::new("bob", ["system:authenticated"]), false)]
        {
            let (status, answer) = send(&server, user, Method::POST, path, review.clone()).await;
            assert_eq!(status, 201, "{answer}");
            assert_eq!(answer["status"]["incomplete"], is_incomplete);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_review_may_ask_about_a_selection() {
    let plane = ControlPlane::builder().simulated(0).node_authorizer().build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let ask = async |selector: Value| {
            let mut attributes = json!({"verb": "list", "resource": "pods", "version": "v1"});
            attributes["fieldSelector"] = selector;
            let review = json!({"spec": {
                "user": "system:node:n1", "groups": ["system:nodes"],
                "resourceAttributes": attributes,
            }});
            send(&server, Identity::admin(), Method::POST, path, review).await
        };
        let of_node = |node: &str| {
            let values = [node];
            json!({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": values}]})
        };
        for (selector, is_allowed) in [
            (of_node("n1"), true),
            (of_node("n2"), false),
            (json!({"rawSelector": "spec.nodeName=n1"}), true),
            (Value::Null, false),
        ] {
            let (status, answer) = ask(selector.clone()).await;
            assert_eq!(status, 201, "{answer}");
            assert_eq!(answer["status"]["allowed"], is_allowed, "{selector}");
        }
        let mut both = of_node("n1");
        both["rawSelector"] = "a=b".into();
        for (selector, why) in [
            (both, "fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements"),
            (json!({}), "fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required"),
        ] {
            let (status, answer) = ask(selector).await;
            assert_eq!(status, 422);
            assert!(answer["message"].as_str().unwrap().ends_with(why), "{answer}");
        }
    })
    .await;
}
