//! Token reviews (WHK-10).

use crate::review::tree;
use serde_json::{Value, json};
use setpoint_webhook::{Authenticated, Refusal, TokenRequest, UserInfo, Webhooks};

async fn know(request: TokenRequest) -> Result<Option<Authenticated>, Refusal> {
    match &*request.token {
        "annas" => {
            let user = UserInfo {
                username: "anna".into(),
                groups: vec!["staff".into()],
                ..UserInfo::default()
            };
            Ok(Some(Authenticated { user, audiences: request.audiences }))
        }
        "broken" => Err(Refusal::denied("the directory is down")),
        "bomb" => panic!("on fire"),
        _ => Ok(None),
    }
}

#[tokio::test]
async fn token_is_authenticated_rejected_or_an_error_whk_10() {
    let webhooks = Webhooks::builder().authenticate("/token", know).build().unwrap();
    for (token, status) in [
        (
            "annas",
            json!({"authenticated": true, "user": {"username": "anna", "groups": ["staff"]}, "audiences": ["x"]}),
        ),
        ("theirs", json!({})),
        ("broken", json!({"error": "the directory is down"})),
        ("bomb", json!({"error": "panic: on fire [recovered]"})),
        ("", json!({"error": "token is empty"})),
    ] {
        for version in ["authentication.k8s.io/v1", "authentication.k8s.io/v1beta1"] {
            let review = json!({"apiVersion": version, "kind": "TokenReview",
                "metadata": {"uid": "u", "creationTimestamp": null}, "spec": {"token": token, "audiences": ["x"]}});
            let reply = webhooks.handle("/token", review.to_string()).await;
            let wanted = json!({"apiVersion": version, "kind": "TokenReview",
                "metadata": {"uid": "u"}, "spec": {}, "status": status});
            assert_eq!((reply.code, tree(&reply)), (200, wanted));
        }
    }
    let reply = webhooks.handle("/token", "{}").await;
    assert_eq!((reply.code, &tree(&reply)["kind"]), (400, &Value::from("Status")));
}

#[tokio::test]
async fn token_is_not_printed() {
    let review = json!({"spec": {"token": "secret"}}).to_string();
    let webhooks = Webhooks::builder()
        .authenticate("/token", async |request: TokenRequest| {
            assert!(!format!("{request:?}").contains("secret"));
            Ok(None)
        })
        .build()
        .unwrap();
    let reply = webhooks.handle("/token", review).await;
    assert_eq!(tree(&reply)["status"], json!({}));
}
