//! TokenRequests: rules, defaults, claims.

use super::*;

#[tokio::test(start_paused = true)]
async fn request_is_completed_and_answered() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        let uid = world.account("a").await;
        let answer = world.request("a", json!({})).await;
        assert_eq!(answer.code, 201);
        let mut body = answer.body;
        let token = body["status"]["token"].take();
        let claims = claims(token.as_str().unwrap());
        let now = body["metadata"]["creationTimestamp"].take();
        assert_eq!(now, "2026-01-01T00:00:00Z");
        let owned = body["metadata"]["managedFields"].take();
        assert_eq!(owned[0]["subresource"], "token");
        assert_eq!(owned[0]["fieldsV1"], json!({"f:spec": {"f:expirationSeconds": {}}}));
        assert_eq!(
            body,
            json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "metadata": {"name": "a", "namespace": "default", "uid": uid, "creationTimestamp": null, "managedFields": null},
                "spec": {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null},
                "status": {"token": null, "expirationTimestamp": "2026-01-01T01:00:00Z"},
            })
        );
        let id = claims["jti"].as_str().unwrap();
        assert_eq!(id.len(), 36);
        assert_eq!(
            claims,
            json!({
                "iss": ISSUER, "sub": "system:serviceaccount:default:a", "aud": [ISSUER],
                "exp": 1_767_229_200_u64, "iat": 1_767_225_600, "nbf": 1_767_225_600, "jti": id,
                "kubernetes.io": {
                    "namespace": "default", "serviceaccount": {"name": "a", "uid": uid},
                },
            })
        );
        assert_eq!(world.admin(Method::GET, &format!("{ACCOUNTS}/a/token"), Value::Null).await.code, 405);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn wrong_requests_are_refused_with_the_words_of_kubernetes() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        let uid = world.account("sa1").await;
        world.account("other").await;
        let pod = world.pod("p1", "sa1").await;
        world.pod("p2", "other").await;
        let post = async |account: &str, body: Value| {
            let path = format!("{ACCOUNTS}/{account}/token");
            let answer = world.admin(Method::POST, &path, body).await;
            let (code, message) = answer.error();
            (code, message.to_owned())
        };
        let bound = |kind: &str, name: &str, uid: &str| {
            json!({"spec": {"boundObjectRef": {
                "apiVersion": "v1", "kind": kind, "name": name, "uid": uid,
            }}})
        };
        let invalid = r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: "#;
        for (body, code, message) in [
            (
                json!({"spec": {"expirationSeconds": 599}}),
                422,
                format!("{invalid}599: may not specify a duration less than 10 minutes"),
            ),
            (
                json!({"spec": {"expirationSeconds": 4_294_967_297_u64}}),
                422,
                format!("{invalid}4294967297: may not specify a duration larger than 2^32 seconds"),
            ),
            (
                json!({"metadata": {"name": "x"}}),
                422,
                r#"TokenRequest.authentication.k8s.io "sa1" is invalid: metadata.name: Invalid value: "x": must match the service account name if specified"#.to_owned(),
            ),
            (
                json!({"metadata": {"namespace": "x"}}),
                400,
                "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
            ),
            (
                json!({"metadata": {"uid": "x"}}),
                409,
                format!(r#"Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "sa1": the UID in the token request (x) does not match the UID of the service account ({uid})"#),
            ),
            (
                bound("Pod", "p2", ""),
                400,
                r#"cannot bind token for serviceaccount "sa1" to pod running with different serviceaccount name."#.to_owned(),
            ),
            (
                bound("Pod", "p1", "zz"),
                409,
                r#"Operation cannot be fulfilled on Pod "p1": the UID in the bound object reference (zz) does not match the UID in record. The object might have been deleted and then recreated"#.to_owned(),
            ),
            (bound("Pod", "x", ""), 404, r#"pods "x" not found"#.to_owned()),
            (bound("Secret", "x", ""), 404, r#"secrets "x" not found"#.to_owned()),
            (bound("Node", "x", ""), 404, r#"nodes "x" not found"#.to_owned()),
            (bound("Pod", "", ""), 400, "Name parameter required.".to_owned()),
            (
                bound("ConfigMap", "x", ""),
                400,
                "cannot bind token to object of type /v1, Kind=ConfigMap".to_owned(),
            ),
        ] {
            assert_eq!(post("sa1", body.clone()).await, (code, message), "{body}");
        }
        assert_eq!(post("zz", json!({})).await, (404, r#"serviceaccounts "zz" not found"#.to_owned()));
        assert_eq!(post("sa1", bound("Pod", "p1", &pod)).await.0, 201);
        let own = json!({"metadata": {"name": "sa1", "namespace": "default", "uid": uid}});
        assert_eq!(post("sa1", own).await.0, 201);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lifetime_is_shortened_with_a_warning() {
    let tokens = ServiceAccountTokens::new().max_expiration(Duration::from_secs(7200));
    with_tokens(tokens, async |world| {
        world.account("a").await;
        let answer = world.request("a", json!({"expirationSeconds": 9000})).await;
        let warning = answer.headers["warning"].to_str().unwrap();
        assert_eq!(
            warning,
            r#"299 - "requested expiration of 9000 seconds shortened to 7200 seconds""#
        );
        assert_eq!(answer.body["spec"]["expirationSeconds"], 7200);
        assert_eq!(answer.body["status"]["expirationTimestamp"], "2026-01-01T02:00:00Z");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn injected_tokens_live_for_a_year() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        world.account("a").await;
        world.pod("p", "a").await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
        let now = 1_767_225_600_u64;
        let answer =
            world.request("a", json!({"expirationSeconds": 3607, "boundObjectRef": pod})).await;
        assert_eq!(answer.body["status"]["expirationTimestamp"], "2026-01-01T01:00:07Z");
        let token = claims(answer.body["status"]["token"].as_str().unwrap());
        assert_eq!(token["exp"], now + 365 * 24 * 3600);
        assert_eq!(token["kubernetes.io"]["warnafter"], now + 3607);
        // There is no such node.
        assert_eq!(token["kubernetes.io"]["node"], json!({"name": "n1"}));
        // Neither without a pod, nor for others.
        for spec in [
            json!({"expirationSeconds": 3607}),
            json!({"expirationSeconds": 3607, "boundObjectRef": pod, "audiences": ["vault"]}),
            json!({"expirationSeconds": 3608, "boundObjectRef": pod}),
        ] {
            let token = claims(&world.token("a", spec.clone()).await);
            assert_eq!(token["exp"], now + spec["expirationSeconds"].as_u64().unwrap());
            assert!(token["kubernetes.io"].get("warnafter").is_none());
        }
    })
    .await;
    let plain = ServiceAccountTokens::new().extend_expiration(false);
    with_tokens(plain, async |world| {
        world.account("a").await;
        world.pod("p", "a").await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
        let spec = json!({"expirationSeconds": 3607, "boundObjectRef": pod});
        let token = claims(&world.token("a", spec).await);
        assert_eq!(token["exp"], 1_767_225_600_u64 + 3607);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_says_when_an_extended_token_should_have_been_replaced() {
    let sink = std::sync::Arc::new(Annotations::default());
    let ring = KeyRing::from_system();
    ring.set(keys());
    let tokens = ServiceAccountTokens::new().keys(ring);
    let plane = ControlPlane::builder().simulated(0).service_account_tokens(tokens);
    let plane = plane.audit(sink.clone()).build();
    let world = World { server: plane.server().clone() };
    with_person_of(plane, async |_| {
        world.account("a").await;
        world.pod("p", "a").await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
        let spec = json!({"expirationSeconds": 3607, "boundObjectRef": pod});
        let token = world.token("a", spec).await;
        let stale = async || {
            sink.0.lock().clear();
            world.whoami(&token).await.unwrap();
            let own = sink.0.lock().pop().unwrap();
            own.get("authentication.k8s.io/stale-token").cloned()
        };
        assert_eq!(stale().await, None);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(stale().await, None);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let said = stale().await.unwrap();
        let (subject, seconds) = said.rsplit_once(' ').unwrap();
        assert_eq!(
            subject,
            "subject: system:serviceaccount:default:a, seconds after warning threshold:"
        );
        assert!((50..60).contains(&seconds.parse::<u64>().unwrap()), "{said}");
    })
    .await;
}
