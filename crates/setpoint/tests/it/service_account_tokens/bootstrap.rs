//! Bootstrap tokens: Secrets of `kube-system`.

use super::*;

const SYSTEM_SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const TOKEN: &str = "abcdef.0123456789abcdef";

fn secret() -> Value {
    json!({
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef",
            "expiration": "2026-01-01T01:00:00Z",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:workers",
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_token_is_accepted_until_it_expires_and_is_then_deleted() {
    let plane = ControlPlane::builder().simulated(0).bootstrap_tokens(true).build();
    let world = World { server: plane.server().clone() };
    with_person_of(plane, async |_| {
        assert_eq!(world.whoami(TOKEN).await, Err(401));
        world.create(SYSTEM_SECRETS, secret()).await;
        world.settled().await;
        assert_eq!(
            world.whoami(TOKEN).await.unwrap(),
            json!({
                "username": "system:bootstrap:abcdef",
                "groups": ["system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"],
            })
        );
        assert_eq!(world.whoami("abcdef.0123456789abcdee").await, Err(401));
        assert_eq!(world.review(TOKEN, &[]).await["authenticated"], true);
        // It knows no audiences: it counts for the server's.
        let other = world.review(TOKEN, &["vault"]).await;
        assert_eq!(other, json!({"user": {}, "error": "invalid bearer token"}));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(world.whoami(TOKEN).await, Err(401));
        world.settled().await;
        let path = format!("{SYSTEM_SECRETS}/bootstrap-token-abcdef");
        assert_eq!(world.admin(Method::GET, &path, Value::Null).await.code, 404);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bootstrap_tokens_are_off_by_default() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        world.create(SYSTEM_SECRETS, secret()).await;
        world.settled().await;
        assert_eq!(world.whoami(TOKEN).await, Err(401));
    })
    .await;
}
