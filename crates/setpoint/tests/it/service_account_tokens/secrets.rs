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
        let mut own = secret("own", "a");
        own["stringData"] = json!({"namespace": "foo"});
        world.create(SECRETS, own).await;
        world.settled().await;
        assert_eq!(decoded(&world.secret("own").await, "namespace"), "foo");
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
        let path = format!("{ACCOUNTS}/a");
        let mut account = world.admin(Method::GET, &path, Value::Null).await.body;
        account["secrets"] = json!([{"name": "x"}, {"name": "s"}]);
        assert_eq!(world.admin(Method::PUT, &path, account).await.code, 200);
        world.delete(&format!("{SECRETS}/s")).await;
        world.settled().await;
        // Its account lists it no more, but other names.
        let account = world.admin(Method::GET, &path, Value::Null).await.body;
        assert_eq!(account["secrets"], json!([{"name": "x"}]));
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
            "[invalid bearer token, Token does not match server's copy]"
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

#[tokio::test(start_paused = true)]
async fn the_use_of_a_secrets_token_is_seen_in_the_audit_log_warned_of_and_counted() {
    let sink = std::sync::Arc::new(Annotations::default());
    let ring = KeyRing::from_system();
    ring.set(keys());
    let tokens = ServiceAccountTokens::new().keys(ring);
    let plane = ControlPlane::builder().simulated(0).rbac().service_account_tokens(tokens);
    let plane = plane.audit(sink.clone()).build();
    let world = World { server: plane.server().clone() };
    with_person_of(plane, async |_| {
        world.account("a").await;
        for name in ["made", "manual", "marked"] {
            world.create(SECRETS, secret(name, "a")).await;
        }
        let listed = json!([{"name": "made"}]);
        let account = format!("{ACCOUNTS}/a");
        let mut lists = world.admin(Method::GET, &account, Value::Null).await.body;
        lists["secrets"] = listed;
        assert_eq!(world.admin(Method::PUT, &account, lists).await.code, 200);
        world.settled().await;
        let token = async |name| decoded(&world.secret(name).await, "token");
        let uses = async |name: &str, token: &str| {
            sink.0.lock().clear();
            let answer = world.with_token(token, Method::POST, WHOAMI, json!({})).await;
            let annotations = sink.0.lock().pop().unwrap_or_default();
            let key = format!("authentication.k8s.io/legacy-token-{name}");
            let warnings = answer.headers.get_all("warning").iter();
            let warnings: Vec<_> = warnings.map(|text| text.to_str().unwrap().to_owned()).collect();
            (answer.code.as_u16(), annotations.get(&key).cloned(), warnings)
        };
        let text = |text: &str| Some(text.to_owned());
        let (code, secret, warnings) =
            uses("autogenerated-secret", &token("made").await).await;
        assert_eq!((code, secret), (201, text("made")));
        assert_eq!(
            warnings,
            [r#"299 - "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.""#]
        );
        // The answer to who may not do it has the warning, too.
        let of_made = token("made").await;
        let refused = world.with_token(&of_made, Method::GET, "/metrics", Value::Null).await;
        let n_warnings = refused.headers.get_all("warning").iter().count();
        assert_eq!((refused.code.as_u16(), n_warnings), (403, 1));
        let manual = uses("manual-secret", &token("manual").await).await;
        assert_eq!(manual, (201, text("manual"), Vec::new()));
        let mut marked = world.secret("marked").await;
        let of_marked = decoded(&marked, "token");
        marked["metadata"]["labels"] =
            json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"});
        let path = format!("{SECRETS}/marked");
        assert_eq!(world.admin(Method::PUT, &path, marked).await.code, 200);
        world.settled().await;
        let refused = uses("invalidated", &of_marked).await;
        assert_eq!(refused, (401, text("marked/default"), Vec::new()));
        // An empty label is none.
        let mut marked = world.secret("marked").await;
        marked["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"] = "".into();
        assert_eq!(world.admin(Method::PUT, &path, marked).await.code, 200);
        world.settled().await;
        let accepted = uses("manual-secret", &of_marked).await;
        assert_eq!(accepted, (201, text("marked"), Vec::new()));
        let counted = world.server.figures().tokens();
        let counted: Vec<u64> = counted.iter().map(|family| match &family.series {
            setpoint::registry::figures::Series::Counters(all) => all[0].1,
            _ => 0,
        }).collect();
        assert_eq!(counted, [0, 0, 4, 2, 2, 1]);
    })
    .await;
}
