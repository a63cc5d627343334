//! Tokens of an OpenID Connect issuer that serves its documents over HTTPS.

mod distributed;

use crate::https::{Ca, Hooks};
use crate::plane::{Person, with_person_of};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::ApiServer;
use setpoint::object::time::Clock;
use setpoint::oidc::{AuthenticationConfig, Observer, Oidc, OidcOptions};
use setpoint::registry::jwt::{KeySet, SigningKey};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// An issuer.
struct Idp {
    served: Hooks,
    ca: Arc<Ca>,
    keys: Arc<Mutex<KeySet>>,
    /// The code of its answers; 200: it works.
    code: Arc<Mutex<u16>>,
    /// What it answers besides its own documents, by path.
    answers: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
    /// Requests for those: paths, and headers `Authorization`.
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

fn new_keys() -> KeySet {
    KeySet::new(SigningKey::generate_from_system().unwrap())
}

impl Idp {
    async fn start() -> Self {
        Self::start_of(Ca::new().into()).await
    }

    /// An issuer whose server has a certificate of this authority.
    async fn start_of(ca: Arc<Ca>) -> Self {
        let (certificate, key) = ca.sign_for(&["127.0.0.1"]);
        Self::start_as(ca, &certificate, &key).await
    }

    /// An issuer whose server has this certificate and key, in PEM.
    async fn start_as(ca: Arc<Ca>, certificate: &str, key: &str) -> Self {
        let url = Arc::new(OnceLock::<String>::new());
        let keys = Arc::new(Mutex::new(new_keys()));
        let code = Arc::new(Mutex::new(200));
        let answers = Arc::new(Mutex::new(BTreeMap::<String, (u16, String)>::new()));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (own_url, own_keys, own_code) = (url.clone(), keys.clone(), code.clone());
        let (own_answers, own_asked) = (answers.clone(), asked.clone());
        let served = ca
            .serve_raw_as(certificate, key, move |path, shown| {
                if let Some(answer) = own_answers.lock().get(path) {
                    let shown = shown["authorization"].as_str().unwrap_or_default();
                    own_asked.lock().push((path.to_owned(), shown.to_owned()));
                    return answer.clone();
                }
                let url = own_url.get().unwrap();
                let body = match path {
                    "/.well-known/openid-configuration" => {
                        json!({"issuer": url, "jwks_uri": format!("{url}/keys")})
                    }
                    "/keys" => own_keys.lock().jwks(),
                    _ => json!(null),
                };
                (*own_code.lock(), body.to_string())
            })
            .await;
        url.set(served.url("")).unwrap();
        Self { served, ca, keys, code, answers, asked }
    }

    fn url(&self) -> String {
        self.served.url("")
    }

    /// A token that it has signed with its present key.
    fn token(&self, more: Value) -> String {
        let now = Clock::wall().now().0.as_secs();
        let mut claims = json!({"iss": self.url(), "aud": "setpoint", "exp": now + 600});
        for (claim, value) in more.as_object().unwrap() {
            claims[claim] = value.clone();
        }
        self.keys.lock().sign(&claims).unwrap()
    }

    /// The entry of a configuration.
    fn entry(&self) -> Value {
        json!({
            "issuer": {
                "url": self.url(), "audiences": ["setpoint"],
                "certificateAuthority": self.ca.pem(),
            },
            "claimMappings": {
                "username": {"expression": "'idp:' + claims.sub"},
                "groups": {"claim": "roles", "prefix": "idp:"},
                "extra": [{"key": "acme.com/tenant", "valueExpression": "claims.?tenant.orValue('')"}],
            },
            "userValidationRules": [
                {"expression": "!user.username.endsWith('root')", "message": "reserved"},
            ],
        })
    }
}

fn config(entries: Value) -> String {
    let tree = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": entries,
    });
    tree.to_string()
}

/// `401`, or who a token's user is.
async fn who(server: &ApiServer, token: &str) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(review.to_string())))
        .unwrap();
    let response = server.serve(request).await;
    if response.status() == 401 {
        return json!(401);
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    answer["status"]["userInfo"].clone()
}

/// The status of a token's review.
async fn review(person: &Person, token: &str) -> Value {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = person.request("POST", path, "application/json", &review).await.unwrap();
    answer["status"].clone()
}

/// Repeats until the token is accepted: the keys are read in the background.
async fn accepted(server: &ApiServer, token: &str) -> Value {
    for _ in 0..3000 {
        let user = who(server, token).await;
        if user != 401 {
            return user;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the token is not accepted");
}

/// As Go does, and as `openssl req -x509` makes certificates.
#[tokio::test]
async fn the_authority_of_an_issuer_may_be_its_own_certificate() {
    let (ca, key) = Ca::of_itself();
    let certificate = ca.pem();
    let idp = Idp::start_as(ca.into(), &certificate, &key).await;
    let config = AuthenticationConfig::parse(config(json!([idp.entry()])).as_bytes()).unwrap();
    let issuers = Oidc::new(&config, OidcOptions::new(Clock::wall())).unwrap();
    let plane = ControlPlane::builder().issuers(issuers).build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        let user = accepted(&server, &idp.token(json!({"sub": "jane"}))).await;
        assert_eq!(user["username"], "idp:jane");
    })
    .await;
}

#[tokio::test]
async fn tokens_of_an_issuer_are_accepted_while_its_keys_are_known() {
    let idp = Idp::start().await;
    let config = AuthenticationConfig::parse(config(json!([idp.entry()])).as_bytes()).unwrap();
    let issuers = Oidc::new(&config, OidcOptions::new(Clock::wall())).unwrap();
    let plane = ControlPlane::builder().issuers(issuers).build();
    let server = plane.server().clone();
    with_person_of(plane, async |person| {
        let token = idp.token(json!({"sub": "jane", "roles": ["a"], "tenant": "t", "jti": "j"}));
        let jane = json!({
            "username": "idp:jane", "groups": ["idp:a", "system:authenticated"],
            "extra": {
                "acme.com/tenant": ["t"],
                "authentication.kubernetes.io/credential-id": ["JTI=j"],
            },
        });
        assert_eq!(accepted(&server, &token).await, jane);
        assert_eq!(review(&person, &token).await["user"], jane);

        for (claims, why) in [
            (
                json!({"sub": "x", "aud": "other"}),
                r#"oidc: verify token: oidc: expected audience "setpoint" got ["other"]"#,
            ),
            (
                json!({"sub": "x", "exp": 1_000_000_000}),
                "oidc: verify token: oidc: token is expired (Token Expiry: 2001-09-09 01:46:40 +0000 UTC)",
            ),
            (
                json!({"sub": "root"}),
                "oidc: error evaluating user info validation rule: validation expression '!user.username.endsWith('root')' failed: reserved",
            ),
        ] {
            let token = idp.token(claims);
            assert_eq!(who(&server, &token).await, 401, "{why}");
            let error = review(&person, &token).await["error"].clone();
            assert_eq!(error, format!("[invalid bearer token, {why}]"));
        }
        // Another issuer is not known at all.
        let other = idp.token(json!({"sub": "x", "iss": "https://other"}));
        assert_eq!(review(&person, &other).await["error"], "invalid bearer token");

        // A rotation is seen at once, and so is a token of neither key.
        let before = idp.token(json!({"sub": "before"}));
        *idp.keys.lock() = new_keys();
        assert_eq!(who(&server, &idp.token(json!({"sub": "after"}))).await["username"], "idp:after");
        let unknown = review(&person, &before).await["error"].clone();
        let unverified =
            "oidc: verify token: failed to verify signature: failed to verify id token signature";
        assert_eq!(unknown, format!("[invalid bearer token, {unverified}]"));

        // Without the issuer, its keys stay, and unknown ones are refused.
        *idp.code.lock() = 503;
        assert_eq!(who(&server, &idp.token(json!({"sub": "later"}))).await["username"], "idp:later");
        assert_eq!(who(&server, &before).await, 401);
        *idp.keys.lock() = new_keys();
        let error = review(&person, &idp.token(json!({"sub": "x"}))).await["error"].clone();
        let error = error.as_str().unwrap();
        assert!(error.contains("fetching keys oidc: get keys failed 503"), "{error}");
        // However many such tokens come, the issuer is asked a few times only.
        for n in 0..20 {
            assert_eq!(who(&server, &idp.token(json!({"sub": n.to_string()}))).await, 401);
        }
        let error = review(&person, &idp.token(json!({"sub": "x"}))).await["error"].clone();
        assert_eq!(error, format!("[invalid bearer token, {unverified}]"));
    })
    .await;
}

#[tokio::test]
async fn a_token_makes_the_keys_of_a_known_issuer_be_read_again() {
    let idp = Idp::start().await;
    idp.answers.lock().insert("/keys".into(), (503, String::new()));
    let config = AuthenticationConfig::parse(config(json!([idp.entry()])).as_bytes()).unwrap();
    let issuers = Oidc::new(&config, OidcOptions::new(Clock::wall())).unwrap();
    let plane = ControlPlane::builder().issuers(issuers).build();
    let server = plane.server().clone();
    with_person_of(plane, async |person| {
        let token = idp.token(json!({"sub": "jane"}));
        let failed = "fetching keys oidc: get keys failed 503";
        loop {
            let error = review(&person, &token).await["error"].clone();
            if error.as_str().unwrap().contains(failed) {
                break;
            }
            tokio::task::yield_now().await;
        }
        // As soon as the issuer has keys, not only after the next pause.
        idp.answers.lock().clear();
        assert_eq!(who(&server, &token).await["username"], "idp:jane");
    })
    .await;
}

/// What an observer is told.
#[derive(Debug, Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Observer for Told {
    fn checked(&self, issuer: &str, _: Duration, is_accepted: bool) {
        self.0.lock().push(format!("{issuer} checked {is_accepted}"));
    }
    fn keys_read(&self, issuer: &str, hash: Option<&[u8; 32]>) {
        self.0.lock().push(format!("{issuer} keys {}", hash.is_some()));
    }
    fn left(&self, issuer: &str) {
        self.0.lock().push(format!("{issuer} left"));
    }
}

/// As kube-apiserver: an issuer that nobody uses is not asked for its keys.
#[tokio::test]
async fn the_first_token_makes_the_keys_be_read() {
    let (idp, next) = (Idp::start().await, Idp::start().await);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    std::fs::write(&path, config(json!([idp.entry()]))).unwrap();
    idp.answers.lock().insert("/keys".into(), (503, String::new()));
    let (told, reports) = (Told::default(), Arc::new(Mutex::new(0)));
    let counted = reports.clone();
    let options = OidcOptions::new(Clock::wall())
        .reload(&path)
        .reload_period(Duration::from_millis(20))
        .report(move |_| *counted.lock() += 1)
        .observer(told.clone());
    let (loaded, _) = AuthenticationConfig::load(&path, &[]).unwrap();
    let plane = ControlPlane::builder().issuers(Oidc::new(&loaded, options).unwrap()).build();
    let server = plane.server().clone();
    with_person_of(plane, async |person| {
        // Of no issuer: it shows only that the server works.
        assert_eq!(who(&server, &next.token(json!({"sub": "x"}))).await, 401);
        let token = idp.token(json!({"sub": "jane"}));
        loop {
            let error = review(&person, &token).await["error"].clone();
            match error.as_str().unwrap().contains("not initialized") {
                true => assert!(idp.asked.lock().is_empty()),
                false => break,
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(idp.asked.lock()[0].0, "/keys");
        idp.answers.lock().clear();
        assert_eq!(who(&server, &token).await["username"], "idp:jane");
        let url = idp.url();
        let all = std::mem::take(&mut *told.0.lock());
        assert!(all.contains(&format!("{url} keys false")), "{all:?}");
        assert!(all.contains(&format!("{url} checked false")), "{all:?}");
        assert!(
            all.ends_with(&[format!("{url} keys true"), format!("{url} checked true")]),
            "{all:?}"
        );
        // What is remembered is not checked again.
        assert_eq!(who(&server, &token).await["username"], "idp:jane");
        assert!(told.0.lock().is_empty());

        // A configuration is in use before anybody asks for keys.
        let new = dir.path().join("new");
        std::fs::write(&new, config(json!([next.entry()]))).unwrap();
        std::fs::rename(new, &path).unwrap();
        while *reports.lock() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(*told.0.lock(), [format!("{url} left")]);
        assert_eq!(who(&server, &next.token(json!({"sub": "a"}))).await["username"], "idp:a");
    })
    .await;
}

#[tokio::test]
async fn a_changed_file_replaces_the_issuers_if_it_can_be_used() {
    let (first, second) = (Idp::start().await, Idp::start().await);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let write = |text: &str| {
        let new = dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &path).unwrap();
    };
    write(&config(json!([first.entry()])));
    let reports = Arc::new(Mutex::new(Vec::new()));
    let kept = reports.clone();
    let options = OidcOptions::new(Clock::wall())
        .reload(&path)
        .reload_period(Duration::from_millis(20))
        .report(move |report| kept.lock().push(report.result.clone()));
    let (loaded, _) = AuthenticationConfig::load(&path, &[]).unwrap();
    let plane = ControlPlane::builder().issuers(Oidc::new(&loaded, options).unwrap()).build();
    let server = plane.server().clone();
    let reported = async |n: usize| loop {
        if let Some(result) = reports.lock().get(n) {
            break result.clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    with_person_of(plane, async |_| {
        let of_first = first.token(json!({"sub": "a"}));
        assert_eq!(accepted(&server, &of_first).await["username"], "idp:a");
        assert_eq!(who(&server, &second.token(json!({"sub": "b"}))).await, 401);

        // A file that cannot be used changes nothing, and is reported once.
        write(&config(json!([{}])));
        let error = reported(0).await.unwrap_err();
        assert!(error.contains("jwt[0].issuer.url: Required value"), "{error}");
        write(&config(json!([])).replace("\"jwt\"", "\"anonymous\":{\"enabled\":true},\"jwt\""));
        let error = reported(1).await.unwrap_err();
        assert_eq!(error, "anonymous: Forbidden: changed from initial configuration file");
        assert_eq!(who(&server, &first.token(json!({"sub": "c"}))).await["username"], "idp:c");

        write(&config(json!([second.entry()])));
        let (_, hash) = AuthenticationConfig::load(&path, &[]).unwrap();
        assert_eq!(reported(2).await, Ok(hash));
        assert_eq!(who(&server, &second.token(json!({"sub": "d"}))).await["username"], "idp:d");
        // Also one that was accepted a moment ago.
        assert_eq!(who(&server, &of_first).await, 401);
        assert_eq!(reports.lock().len(), 3);
    })
    .await;
}
