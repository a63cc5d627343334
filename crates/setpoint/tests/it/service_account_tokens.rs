//! Tokens of service accounts: requested, used, reviewed, refused, discovered.

mod bootstrap;
mod controllers;
mod refused;
mod requested;
mod secrets;
mod signed_elsewhere;

use crate::plane::with_person_of;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{Anonymous, ApiServer};
use setpoint::registry::jwt::{KeyRing, KeySet, SigningKey};
use setpoint::registry::{Identity, ServiceAccountTokens};
use std::time::Duration;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// A key that tests know.
fn key(byte: u8) -> SigningKey {
    let fill = |bytes: &mut [u8]| {
        bytes.fill(byte);
        Ok(())
    };
    SigningKey::generate(fill).unwrap()
}

/// The keys of the servers in these tests.
fn keys() -> KeySet {
    KeySet::new(key(7))
}

struct World {
    server: ApiServer,
}

struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    /// The code and the message of an error.
    fn error(&self) -> (u16, &str) {
        (self.code.as_u16(), self.body["message"].as_str().unwrap_or_default())
    }
}

/// Keeps the annotations of requests, at each stage.
#[derive(Debug, Default)]
struct Annotations(parking_lot::Mutex<Vec<std::collections::BTreeMap<String, String>>>);

impl setpoint::apiserver::AuditSink for Annotations {
    fn record(&self, event: setpoint::apiserver::AuditEvent) {
        self.0.lock().push(event.request.audit_annotations());
    }
}

impl World {
    async fn send(&self, mut request: http::Request<()>, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let json = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert("content-type", json);
        let request = request.map(|()| http_body_util::Full::new(bytes::Bytes::from(body)));
        let response = self.server.serve(request).await;
        let (code, headers) = (response.status(), response.headers().clone());
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        Answer { code, headers, body: serde_json::from_slice(&body).unwrap_or_default() }
    }

    async fn admin(&self, method: Method, path: &str, body: Value) -> Answer {
        let mut request = http::Request::builder().method(method).uri(path).body(()).unwrap();
        request.extensions_mut().insert(Identity::admin());
        self.send(request, &body).await
    }

    /// Creates an object and returns its uid.
    async fn create(&self, path: &str, object: Value) -> String {
        let created = self.admin(Method::POST, path, object).await;
        assert_eq!(created.code, 201, "{}", created.body);
        created.body["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn account(&self, name: &str) -> String {
        self.create(ACCOUNTS, json!({"metadata": {"name": name}})).await
    }

    async fn pod(&self, name: &str, account: &str) -> String {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "serviceAccountName": account, "nodeName": "n1",
                "containers": [{"name": "a", "image": "a"}],
            },
        });
        self.create(PODS, pod).await
    }

    async fn delete(&self, path: &str) {
        let options = json!({"gracePeriodSeconds": 0});
        let deleted = self.admin(Method::DELETE, path, options).await;
        assert_eq!(deleted.code, 200, "{}", deleted.body);
    }

    /// Waits, in virtual time, until the watch cache and the controllers have followed a change.
    async fn settled(&self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    /// Requests a token.
    async fn request(&self, account: &str, spec: Value) -> Answer {
        let path = format!("{ACCOUNTS}/{account}/token");
        self.admin(Method::POST, &path, json!({"spec": spec})).await
    }

    async fn token(&self, account: &str, spec: Value) -> String {
        let answer = self.request(account, spec).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.body["status"]["token"].as_str().unwrap().to_owned()
    }

    async fn with_token(&self, token: &str, method: Method, path: &str, body: Value) -> Answer {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("authorization", format!("Bearer {token}")).body(()).unwrap();
        self.send(request, &body).await
    }

    /// The user of a token; `Err` is the code.
    async fn whoami(&self, token: &str) -> Result<Value, u16> {
        let answer = self.with_token(token, Method::POST, WHOAMI, json!({})).await;
        match answer.code.as_u16() {
            201 => Ok(answer.body["status"]["userInfo"].clone()),
            code => Err(code),
        }
    }

    /// The status of a token's review.
    async fn review(&self, token: &str, audiences: &[&str]) -> Value {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        let answer = self.admin(Method::POST, REVIEWS, review).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.body["status"].clone()
    }
}

/// Runs a control plane with [`keys`] in virtual time.
async fn with_tokens(tokens: ServiceAccountTokens, test: impl AsyncFnOnce(World)) {
    let ring = KeyRing::from_system();
    ring.set(keys());
    let plane = ControlPlane::builder().simulated(0).service_account_tokens(tokens.keys(ring));
    let plane = plane.build();
    let world = World { server: plane.server().clone() };
    with_person_of(plane, async |_| test(world).await).await;
}

/// The claims of a token.
fn claims(token: &str) -> Value {
    use base64::Engine as _;
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    serde_json::from_slice(&claims).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_is_its_account_and_expires() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        let uid = world.account("a").await;
        let token = world.token("a", json!({"expirationSeconds": 600})).await;
        let who = world.whoami(&token).await.unwrap();
        let id = format!("JTI={}", claims(&token)["jti"].as_str().unwrap());
        assert_eq!(
            who,
            json!({
                "username": "system:serviceaccount:default:a", "uid": uid,
                "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": [id]},
            })
        );
        // A minute of leeway.
        tokio::time::sleep(Duration::from_secs(655)).await;
        assert!(world.whoami(&token).await.is_ok());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(world.whoami(&token).await, Err(401));
        let review = world.review(&token, &[]).await;
        assert_eq!(review["error"], "[invalid bearer token, service account token has expired]");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bound_tokens_name_their_objects() {
    with_tokens(ServiceAccountTokens::new(), async |world| {
        world.account("a").await;
        let node = world.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
        let pod = world.pod("p", "a").await;
        let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
        let who = world.whoami(&world.token("a", bound).await).await.unwrap();
        let extra =
            |name: &str| who["extra"][format!("authentication.kubernetes.io/{name}")].clone();
        assert_eq!(extra("pod-name"), json!(["p"]));
        assert_eq!(extra("pod-uid"), json!([pod]));
        assert_eq!(extra("node-name"), json!(["n1"]));
        assert_eq!(extra("node-uid"), json!([node]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn reviews_run_every_authenticator() {
    with_tokens(ServiceAccountTokens::new().issuer("https://a").audience("api"), async |world| {
        let uid = world.account("a").await;
        let token = world.token("a", json!({"audiences": ["api", "vault"]})).await;
        let user = world.review(&token, &[]).await;
        assert_eq!((&user["authenticated"], &user["audiences"]), (&json!(true), &json!(["api"])));
        assert_eq!(user["user"]["uid"], uid);
        assert_eq!(user["user"]["username"], "system:serviceaccount:default:a");
        let vault = world.review(&token, &["vault", "x"]).await;
        assert_eq!(vault["audiences"], json!(["vault"]));
        assert_eq!(
            world.review(&token, &["foo"]).await,
            json!({
                "user": {},
                "error": r#"[invalid bearer token, token audiences ["api" "vault"] is invalid for the target audiences ["foo"]]"#,
            })
        );
        let unknown = json!({"user": {}, "error": "invalid bearer token"});
        for token in ["no-token", "a.b.c", "two words", "\u{1}", "a\nb", "é"] {
            assert_eq!(world.review(token, &[]).await, unknown, "{token:?}");
        }
        // A request with these has no token.
        for token in [" ", "\n", " a"] {
            assert_eq!(world.review(token, &[]).await, json!({"user": {}}), "{token:?}");
        }
        let empty = world.admin(Method::POST, REVIEWS, json!({"spec": {"token": ""}})).await;
        assert_eq!(
            empty.error(),
            (400, "token is required for TokenReview in authentication")
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_a_request_would_not_show_is_anonymous() {
    let plane = ControlPlane::builder().simulated(0).anonymous(Anonymous::Everywhere).build();
    let world = World { server: plane.server().clone() };
    with_person_of(plane, async |_| {
        let anonymous = |audiences: Value| {
            json!({"authenticated": true, "audiences": audiences,
                "user": {"username": "system:anonymous", "groups": ["system:unauthenticated"]}})
        };
        for token in [" ", "\n", " a"] {
            assert_eq!(world.review(token, &[]).await, anonymous(json!([ISSUER])), "{token:?}");
        }
        assert_eq!(world.review(" ", &["foo"]).await, anonymous(json!(["foo"])));
        assert_eq!(world.review("a", &[]).await["error"], "invalid bearer token");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn keys_are_published_for_service_accounts_only() {
    let ring = KeyRing::from_system();
    ring.set(keys().verify_also([key(8).verifying_key().clone()]));
    let tokens = ServiceAccountTokens::new().keys(ring.clone());
    let builder = ControlPlane::builder().simulated(0).rbac().service_account_tokens(tokens);
    let plane = builder.address("example.com:6443").build();
    let world = World { server: plane.server().clone() };
    with_person_of(plane, async |_| {
        world.account("a").await;
        let token = world.token("a", json!({})).await;
        let get = async |path| world.with_token(&token, Method::GET, path, Value::Null).await;
        let found = get("/.well-known/openid-configuration").await;
        assert_eq!(
            found.body,
            json!({
                "issuer": ISSUER,
                "jwks_uri": "https://example.com:6443/openid/v1/jwks",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            })
        );
        assert_eq!(found.headers["content-type"], "application/json");
        assert_eq!(found.headers["cache-control"], "public, max-age=3600");
        let found = get("/openid/v1/jwks").await;
        assert_eq!(found.headers["content-type"], "application/jwk-set+json");
        assert_eq!(found.headers["cache-control"], "public, max-age=3600");
        assert_eq!(found.body, ring.current().unwrap().jwks());
        // The account itself may do nothing else.
        assert_eq!(get("/api/v1/namespaces").await.code, 403);
        let path = "/openid/v1/jwks";
        let mut request = http::Request::get(path).body(()).unwrap();
        assert_eq!(world.send(request.clone(), &Value::Null).await.code, 401);
        request.extensions_mut().insert(Identity::new("bob", ["system:authenticated"]));
        assert_eq!(world.send(request, &Value::Null).await.code, 403);
    })
    .await;
}
