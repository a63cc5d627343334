//! Tokens that are not accepted.

use super::*;

/// The claims of a good token of an account.
fn good(uid: &str) -> Value {
    json!({
        "iss": ISSUER, "sub": "system:serviceaccount:default:a", "aud": [ISSUER],
        "exp": 1_767_229_200_u64, "iat": 1_767_225_600, "nbf": 1_767_225_600, "jti": "j",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "a", "uid": uid}},
    })
}

/// Changes an object.
type Change<'a> = &'a dyn Fn(&mut Value);

#[tokio::test(start_paused = true)]
async fn claims_must_be_right() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        let uid = world.account("a").await;
        let signed = |change: &dyn Fn(&mut Value)| {
            let mut claims = good(&uid);
            change(&mut claims);
            keys().sign(&claims).unwrap()
        };
        assert!(world.whoami(&signed(&|_| {})).await.is_ok());
        let now = 1_767_225_600_u64;
        // Within the leeway.
        assert!(world.whoami(&signed(&|c| c["nbf"] = (now + 50).into())).await.is_ok());
        assert!(world.whoami(&signed(&|c| c["exp"] = (now - 50).into())).await.is_ok());
        let not_yet = (now + 90).into();
        let changes: [(Change<'_>, &str); 9] = [
            (&|c| c["exp"] = (now - 90).into(), "service account token has expired"),
            (&|c| c["nbf"] = Value::clone(&not_yet), "service account token is not valid yet"),
            (&|c| c["iat"] = Value::clone(&not_yet), "service account token is issued in the future"),
            (
                &|c| c["aud"] = json!(["foo"]),
                r#"token audiences ["foo"] is invalid for the target audiences ["https://kubernetes.default.svc.cluster.local"]"#,
            ),
            (&|c| c["iss"] = "https://other".into(), ""),
            (
                &|c| drop(c.as_object_mut().unwrap().remove("exp")),
                "the token lacks the claims of a service account",
            ),
            (
                &|c| c["sub"] = "system:serviceaccount:kube-system:a".into(),
                "the token lacks the claims of a service account",
            ),
            (
                &|c| c["kubernetes.io"]["serviceaccount"]["uid"] = "x".into(),
                "service account UID (UID) does not match claim (x)",
            ),
            (
                &|c| {
                    c["sub"] = "system:serviceaccount:default:sx".into();
                    c["kubernetes.io"]["serviceaccount"]["name"] = "sx".into();
                },
                r#"serviceaccounts "sx" not found"#,
            ),
        ];
        for (change, why) in changes {
            let token = signed(change);
            assert_eq!(world.whoami(&token).await, Err(401), "{why}");
            let expected = match why {
                "" => "invalid bearer token".to_owned(),
                why => format!("[invalid bearer token, {}]", why.replace("(UID)", &format!("({uid})"))),
            };
            assert_eq!(world.review(&token, &[]).await, json!({"user": {}, "error": expected}));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn signatures_must_be_of_an_accepted_key() {
    use base64::Engine as _;
    let encode =
        |part: &Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(part.to_string());
    with_tokens(ServiceAccountTokens::new(), async |world| {
        let uid = world.account("a").await;
        let claims = good(&uid);
        let token = keys().sign(&claims).unwrap();
        let own = key(7);
        let id = own.verifying_key().id();
        let forged = KeySet::new(key(8)).sign(&claims).unwrap();
        let (_, signature) = forged.rsplit_once('.').unwrap();
        let none = format!("{}.{}.", encode(&json!({"alg": "none"})), encode(&claims));
        let swapped = format!(
            "{}.{}.{signature}",
            encode(&json!({"alg": "ES256", "kid": id})),
            encode(&claims)
        );
        let (signed, _) = token.rsplit_once('.').unwrap();
        for (token, why) in [
            (forged.clone(), "no key verifies the token"),
            (swapped, "the token's signature is invalid"),
            (none, "no key verifies the token"),
            (format!("{signed}."), "the token's signature is invalid"),
        ] {
            assert_eq!(world.whoami(&token).await, Err(401), "{why}");
            let review = world.review(&token, &[]).await;
            assert_eq!(review["error"], format!("[invalid bearer token, {why}]"));
        }
        // Rotation: both keys, then only the new one. What was verified is known for ten seconds.
        assert!(world.whoami(&token).await.is_ok());
        let ring = world.server.registry().service_account_tokens().key_ring();
        ring.set(KeySet::new(key(8)).verify_also([key(7).verifying_key().clone()]));
        assert!(world.whoami(&forged).await.is_ok());
        ring.set(KeySet::new(key(8)));
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(world.whoami(&token).await, Err(401));
        assert!(world.whoami(&forged).await.is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_with_its_objects() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        world.account("a").await;
        world.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
        world.create(SECRETS, json!({"metadata": {"name": "s"}})).await;
        world.pod("p", "a").await;
        let bound = |kind: &str, name: &str| {
            json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}})
        };
        let of_pod = world.token("a", bound("Pod", "p")).await;
        let of_secret = world.token("a", bound("Secret", "s")).await;
        let of_node = world.token("a", bound("Node", "n1")).await;
        for token in [&of_pod, &of_secret, &of_node] {
            assert!(world.whoami(token).await.is_ok());
        }
        let gone = json!({
            "user": {},
            "error": "[invalid bearer token, service account token has been invalidated]",
        });
        world.delete(&format!("{SECRETS}/s")).await;
        world.settled().await;
        assert_eq!(world.review(&of_secret, &[]).await, gone);
        // The node of a pod is only recorded.
        world.delete("/api/v1/nodes/n1").await;
        world.settled().await;
        assert_eq!(world.review(&of_node, &[]).await, gone);
        assert!(world.whoami(&of_pod).await.is_ok());
        world.delete(&format!("{PODS}/p")).await;
        world.settled().await;
        assert_eq!(world.review(&of_pod, &[]).await, gone);
        // A pod of the same name is another pod.
        let pod = world.pod("p", "a").await;
        let review = world.review(&of_pod, &[]).await;
        let error = review["error"].as_str().unwrap();
        assert!(error.contains(&format!("pod UID ({pod}) does not match")), "{error}");
        let of_account = world.token("a", json!({})).await;
        assert!(world.whoami(&of_account).await.is_ok());
        world.delete(&format!("{ACCOUNTS}/a")).await;
        world.settled().await;
        assert_eq!(world.whoami(&of_account).await, Err(401));
        world.account("a").await;
        assert_eq!(world.whoami(&of_account).await, Err(401));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_refused_where_none_is_needed() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        world.account("a").await;
        let get = async |header: Option<&str>, path: &str| {
            let mut request = http::Request::get(path);
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            world.send(request.body(()).unwrap(), &Value::Null).await
        };
        assert_eq!(get(None, "/healthz").await.code, 200);
        assert_eq!(get(Some("Bearer x"), "/healthz").await.code, 401);
        assert_eq!(get(Some("Basic x"), "/healthz").await.code, 200);
        let spaced = get(Some("Bearer  x"), "/api").await;
        assert_eq!(spaced.code, 401);
        assert_eq!(
            spaced.headers["warning"],
            r#"299 - "the provided Authorization header contains extra space before the bearer token, and is ignored""#
        );
        // Nobody's request for health is answered, and says so too.
        let spaced = get(Some("Bearer  x"), "/healthz").await;
        assert_eq!(spaced.code, 200);
        assert!(spaced.headers.contains_key("warning"));
    })
    .await;
}
