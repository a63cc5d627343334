//! Tokens in Secrets.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

fn secret(name: &str, account: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "annotations": {"kubernetes.io/service-account.name": account},
        },
        "type": "kubernetes.io/service-account-token",
    })
}

impl World {
    async fn secret(&self, name: &str) -> Value {
        self.admin(Method::GET, &format!("{SECRETS}/{name}"), Value::Null).await.body
    }
}

fn decoded(secret: &Value, key: &str) -> String {
    let value = STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
    String::from_utf8(value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_secret_gets_a_token_that_does_not_expire() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        let uid = world.account("a").await;
        world.create(SECRETS, secret("s", "a")).await;
        world.settled().await;
        let filled = world.secret("s").await;
        assert_eq!(decoded(&filled, "namespace"), "default");
        assert_eq!(
            filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
            uid
        );
        let token = decoded(&filled, "token");
        assert_eq!(
            claims(&token),
            json!({
                "iss": "kubernetes/serviceaccount",
                "sub": "system:serviceaccount:default:a",
                "kubernetes.io/serviceaccount/namespace": "default",
                "kubernetes.io/serviceaccount/secret.name": "s",
                "kubernetes.io/serviceaccount/service-account.name": "a",
                "kubernetes.io/serviceaccount/service-account.uid": uid,
            })
        );
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        let who = world.whoami(&token).await.unwrap();
        assert_eq!(
            who,
            json!({
                "username": "system:serviceaccount:default:a", "uid": uid,
                "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
            })
        );
        let used = world.secret("s").await;
        assert_eq!(
            used["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"],
            "2026-01-01"
        );
        // It is for the server's audiences.
        assert_eq!(world.review(&token, &[]).await["audiences"], json!([ISSUER]));
        assert_eq!(world.review(&token, &["vault"]).await["authenticated"], Value::Null);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_secrets_token_ends_with_the_secret_and_the_secret_with_the_account() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        world.account("a").await;
        for name in ["s", "t", "u"] {
            world.create(SECRETS, secret(name, "a")).await;
        }
        world.settled().await;
        let token = async |name| decoded(&world.secret(name).await, "token");
        let (of_s, of_t, of_u) = (token("s").await, token("t").await, token("u").await);
        world.delete(&format!("{SECRETS}/s")).await;
        world.settled().await;
        assert_eq!(world.whoami(&of_s).await, Err(401));
        // A token of the same key that the Secret does not have.
        let path = format!("{SECRETS}/t");
        let mut replaced = world.secret("t").await;
        replaced["data"]["token"] = STANDARD.encode(&of_s).into();
        assert_eq!(world.admin(Method::PUT, &path, replaced).await.code, 200);
        world.settled().await;
        let review = world.review(&of_t, &[]).await;
        assert_eq!(
            review["error"],
            "[invalid bearer token, token does not match server's copy]"
        );
        // Marked as invalid.
        let mut marked = world.secret("u").await;
        marked["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"] = "2026-01-01".into();
        assert_eq!(world.admin(Method::PUT, &format!("{SECRETS}/u"), marked).await.code, 200);
        world.settled().await;
        assert_eq!(world.whoami(&of_u).await, Err(401));
        let labels = &world.secret("u").await["metadata"]["labels"];
        assert_eq!(labels["kubernetes.io/legacy-token-last-used"], "2026-01-01", "it was tried");
        world.delete(&format!("{ACCOUNTS}/a")).await;
        world.settled().await;
        for name in ["t", "u"] {
            assert_eq!(world.secret(name).await["code"], 404, "{name}");
        }
        // Neither does a Secret stay whose account never was.
        for account in ["zz", "z z", "zz/token", "zz?limit=1"] {
            world.create(SECRETS, secret("v", account)).await;
            world.settled().await;
            assert_eq!(world.secret("v").await["code"], 404, "{account}");
        }
        let unnamed = json!({
            "metadata": {"name": "w"}, "type": "kubernetes.io/service-account-token",
        });
        let refused = world.admin(Method::POST, SECRETS, unnamed).await;
        assert_eq!(
            refused.error(),
            (422, r#"Secret "w" is invalid: metadata.annotations[kubernetes.io/service-account.name]: Required value"#)
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_secrets_token_outlives_the_secret_if_it_is_not_looked_up() {
    with_tokens(ServiceAccountTokens::new().lookup(false), async |world| {
        let uid = world.account("a").await;
        world.create(SECRETS, secret("s", "a")).await;
        world.settled().await;
        let token = decoded(&world.secret("s").await, "token");
        world.delete(&format!("{ACCOUNTS}/a")).await;
        world.settled().await;
        assert_eq!(world.secret("s").await["code"], 404);
        assert_eq!(world.whoami(&token).await.unwrap()["uid"], uid);
    })
    .await;
}
