//! Tokens of OpenID Connect issuers that are processes of their own.

use super::issuer::Issuer;
use super::process::{Certificate, Place, send};
use crate::raw;
use crate::server::{PATIENCE, Server};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use kube_client::config::Kubeconfig;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const UNVERIFIED: &str =
    "oidc: verify token: failed to verify signature: failed to verify id token signature";

/// The server, as somebody with a token sees it.
struct Door {
    server: Server,
    address: SocketAddr,
    authority: String,
}

impl Door {
    fn open(options: &[&OsStr]) -> Self {
        let mut all = vec![OsStr::new("--authorization-mode=RBAC")];
        all.extend_from_slice(options);
        let server = Server::start_with(&all);
        let address = server.url.trim_start_matches("https://").parse().unwrap();
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
        let authority = cluster.certificate_authority_data.unwrap();
        let authority = base64::engine::general_purpose::STANDARD.decode(authority).unwrap();
        Self { server, address, authority: String::from_utf8(authority).unwrap() }
    }

    async fn request(&self, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let (code, body) = send(self.address, &self.authority, request).await;
        (code, serde_json::from_str(&body).unwrap())
    }

    /// Who the user of a token is, or 401.
    async fn who(&self, token: &str) -> Value {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        match self.request("POST", path, token, &review).await {
            (401, _) => json!(401),
            (201, answer) => answer["status"]["userInfo"].clone(),
            other => panic!("{other:?}"),
        }
    }

    async fn name(&self, token: &str) -> Value {
        match self.who(token).await {
            Value::Object(user) => user["username"].clone(),
            refused => refused,
        }
    }

    /// Why a token is not accepted: as the administrator, by its review.
    fn why_not(&self, token: &str) -> String {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let body = review.to_string();
        let answer = raw::send(&self.server, "POST", path, "application/json", body.as_bytes());
        assert_eq!(answer.code, 201, "{answer:?}");
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(answer["status"]["authenticated"], Value::Null, "{answer}");
        answer["status"]["error"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a token's user has this name; `401`: it is refused.
    async fn until(&self, token: &str, name: Value) {
        let started = Instant::now();
        loop {
            let found = self.name(token).await;
            if found == name {
                return;
            }
            let log = self.server.log();
            assert!(started.elapsed() < PATIENCE, "{found} is not {name}:\n{log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn configuration(entries: &[Value]) -> String {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": entries,
    })
    .to_string()
}

/// An issuer with claims as they are.
fn plain(issuer: &Issuer) -> Value {
    json!({
        "issuer": {"url": issuer.0.url(), "audiences": ["setpoint"],
            "certificateAuthority": issuer.0.pem()},
        "claimMappings": {
            "username": {"claim": "sub", "prefix": "one:"},
            "groups": {"claim": "roles", "prefix": "one:"},
        },
    })
}

/// An issuer with claims by expressions.
fn mapped(issuer: &Issuer) -> Value {
    json!({
        "issuer": {"url": issuer.0.url(), "audiences": ["setpoint", "kubectl"],
            "audienceMatchPolicy": "MatchAny", "certificateAuthority": issuer.0.pem()},
        "claimValidationRules": [
            {"expression": "claims.verified == true", "message": "nobody has verified this address"},
        ],
        "claimMappings": {
            "username": {"expression": "'two:' + claims.mail.lowerAscii()"},
            "groups": {"expression": "claims.teams.split(',').map(team, 'two:' + team)"},
            "uid": {"expression": "claims.id"},
            "extra": [{"key": "acme.com/tenant", "valueExpression": "claims.tenant"}],
        },
        "userValidationRules": [
            {"expression": "!user.groups.exists(group, group == 'two:gone')", "message": "has left"},
        ],
    })
}

#[tokio::test]
async fn issuers_in_other_processes_have_users_by_their_mappings() {
    let (one, two, other) = (Issuer::start(), Issuer::start(), Issuer::start());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authentication");
    std::fs::write(&path, configuration(&[plain(&one), mapped(&two)])).unwrap();
    let door = Door::open(&["--authentication-config".as_ref(), path.as_os_str()]);

    let jane = one.token(json!({"sub": "jane", "roles": ["ops"]})).await;
    door.until(&jane, "one:jane".into()).await;
    let user = door.who(&jane).await;
    assert_eq!(user["groups"], json!(["one:ops", "system:authenticated"]));
    let claims = json!({
        "aud": ["x", "kubectl"], "mail": "Joe@Acme.com", "verified": true, "teams": "a,b",
        "id": "7", "tenant": "acme", "jti": "j",
    });
    let joe = two.token(claims.clone()).await;
    door.until(&joe, "two:joe@acme.com".into()).await;
    let expected = json!({
        "username": "two:joe@acme.com", "uid": "7",
        "groups": ["two:a", "two:b", "system:authenticated"],
        "extra": {
            "acme.com/tenant": ["acme"],
            "authentication.kubernetes.io/credential-id": ["JTI=j"],
        },
    });
    assert_eq!(door.who(&joe).await, expected);

    let changed = |more: Value| {
        let mut claims = claims.clone();
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claims
    };
    let url = one.0.url();
    let header = |algorithm: &str| URL_SAFE_NO_PAD.encode(json!({"alg": algorithm}).to_string());
    let parts: Vec<&str> = jane.split('.').collect();
    let of_joe: Vec<&str> = joe.split('.').collect();
    let algorithm = "oidc: verify token: oidc: id token signed with unsupported algorithm";
    for (token, why) in [
        (
            one.token(json!({"sub": "x", "aud": "other"})).await,
            r#"oidc: expected audience "setpoint" got ["other"]"#,
        ),
        (
            one.token(json!({"sub": "x", "aud": null})).await,
            r#"oidc: expected audience "setpoint" got []"#,
        ),
        (one.token(json!({"sub": "x", "exp": 1_000_000_000})).await, "oidc: token is expired"),
        (one.token(json!({"sub": "x", "exp": null})).await, "oidc: token is expired"),
        (
            one.token(json!({"sub": "x", "nbf": 4_000_000_000_u64})).await,
            "before the nbf (not before) time",
        ),
        (
            one.token(json!({"roles": ["ops"]})).await,
            r#"oidc: parse username claims "sub": claim not present"#,
        ),
        // The key of one issuer, and the name of another: known, and unknown.
        (one.token(changed(json!({"iss": two.0.url()}))).await, UNVERIFIED),
        (other.token(json!({"sub": "jane", "iss": url})).await, UNVERIFIED),
        (other.token(json!({"sub": "jane"})).await, "invalid bearer token"),
        // The parts of two good tokens; no signature; another algorithm.
        (format!("{}.{}.{}", parts[0], of_joe[1], parts[2]), UNVERIFIED),
        (format!("{}.{}.{}", parts[0], parts[1], of_joe[2]), UNVERIFIED),
        (format!("{}.{}.", parts[0], parts[1]), UNVERIFIED),
        (format!("{}.{}.", header("none"), parts[1]), algorithm),
        (format!("{}.{}.{}", header("HS256"), parts[1], parts[2]), algorithm),
        (two.token(changed(json!({"verified": false}))).await, "nobody has verified this address"),
        (two.token(changed(json!({"verified": null}))).await, "no such key: verified"),
        (two.token(changed(json!({"teams": "a,gone"}))).await, "has left"),
        (two.token(changed(json!({"id": 7}))).await, "uid claim expression must return a string"),
    ] {
        assert_eq!(door.name(&token).await, 401, "{why}");
        let error = door.why_not(&token);
        assert!(error.contains(why), "{error}\n{why}");
    }

    // Rights follow the groups that an issuer says.
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(door.request("GET", maps, &jane, &Value::Null).await.0, 403);
    let kubectl = door.server.kubectl();
    kubectl.ok("create clusterrolebinding ops --clusterrole=view --group=one:ops");
    let started = Instant::now();
    while door.request("GET", maps, &jane, &Value::Null).await.0 != 200 {
        assert!(started.elapsed() < PATIENCE, "the binding has no effect");
    }
    assert_eq!(door.request("GET", maps, &joe, &Value::Null).await.0, 403);
    kubectl.ok("config set-credentials nobody");
    kubectl.ok("config set-context nobody --cluster=setpoint --user=nobody");
    let shown = kubectl.ok(&format!("--context=nobody --token={joe} auth whoami"));
    assert!(shown.contains("two:joe@acme.com") && shown.contains("two:b"), "{shown}");

    // A changed file has other issuers; the former one's tokens end, also remembered ones.
    let new = folder.path().join("new");
    std::fs::write(&new, configuration(&[mapped(&two), plain(&other)])).unwrap();
    std::fs::rename(&new, &path).unwrap();
    let jack = other.token(json!({"sub": "jack"})).await;
    door.until(&jack, "one:jack".into()).await;
    door.until(&jane, 401.into()).await;
    assert_eq!(door.name(&joe).await, "two:joe@acme.com");
}

#[tokio::test]
async fn keys_rotate_and_an_absent_issuer_stops_only_tokens_of_unknown_keys() {
    let (mut issuer, other) = (Issuer::start(), Issuer::start());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authentication");
    std::fs::write(&path, configuration(&[plain(&issuer)])).unwrap();
    let door = Door::open(&["--authentication-config".as_ref(), path.as_os_str()]);
    let of = async |issuer: &Issuer, name: &str| issuer.token(json!({"sub": name})).await;
    door.until(&of(&issuer, "first").await, "one:first".into()).await;

    // A new key is seen when the first token comes that it has signed; the former one counts while
    // it is published.
    let former = [of(&issuer, "former").await, of(&issuer, "withdrawn").await];
    issuer.rotate().await;
    assert_eq!(door.name(&of(&issuer, "second").await).await, "one:second");
    assert_eq!(door.name(&former[0]).await, "one:former");
    issuer.withdraw().await;
    let forged = other.token(json!({"sub": "x", "iss": issuer.0.url()})).await;
    assert_eq!(door.name(&forged).await, 401);
    assert_eq!(door.name(&former[1]).await, 401);
    assert!(door.why_not(&former[1]).contains(UNVERIFIED));

    // Killed: the keys that are known go on.
    let known = [of(&issuer, "known").await, of(&issuer, "still").await];
    issuer.rotate().await;
    let unknown = of(&issuer, "unknown").await;
    issuer.0.kill();
    assert_eq!(door.name(&known[0]).await, "one:known");
    assert_eq!(door.name(&unknown).await, 401);
    assert_eq!(door.name(&known[1]).await, "one:still");
    assert_eq!(door.name(&forged).await, 401);
    issuer.0.start(Certificate::Good);
    door.until(&unknown, "one:unknown".into()).await;

    // Frozen: a token of an unknown key is refused within ten seconds, and holds up nobody else.
    let known = of(&issuer, "again").await;
    issuer.rotate().await;
    let unknown = of(&issuer, "late").await;
    issuer.0.freeze();
    let started = Instant::now();
    let (refused, accepted) =
        tokio::join!(door.name(&unknown), async { (door.name(&known).await, started.elapsed()) });
    assert_eq!(refused, 401);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(accepted.0, "one:again");
    assert!(accepted.1 < Duration::from_secs(5), "{:?}", accepted.1);
    issuer.0.thaw();
    door.until(&unknown, "one:late".into()).await;
}

#[tokio::test]
async fn an_issuer_of_options_is_trusted_once_its_certificate_is_right() {
    let mut issuer = Issuer(Place::new("issuer"));
    issuer.0.start(Certificate::Good);
    let jane = issuer.token(json!({"mail": "jane", "tenant": "acme", "roles": ["ops"]})).await;
    let joe = issuer.token(json!({"mail": "joe", "tenant": "other", "roles": ["ops"]})).await;
    issuer.0.start(Certificate::OtherAuthority);
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, issuer.0.pem()).unwrap();
    let url = issuer.0.url();
    let door = Door::open(&[
        "--oidc-issuer-url".as_ref(),
        url.as_ref(),
        "--oidc-client-id=setpoint".as_ref(),
        "--oidc-ca-file".as_ref(),
        authority.as_os_str(),
        "--oidc-username-claim=mail".as_ref(),
        "--oidc-groups-claim=roles".as_ref(),
        "--oidc-groups-prefix=idp:".as_ref(),
        "--oidc-required-claim=tenant=acme".as_ref(),
        "--oidc-signing-algs=RS256,ES256".as_ref(),
    ]);
    // The server works without its issuer.
    assert_eq!(raw::send(&door.server, "GET", "/readyz", "", b"").code, 200);
    assert_eq!(door.name(&jane).await, 401);
    assert!(door.why_not(&jane).contains("oidc: authenticator not initialized"));
    for wrong in [Certificate::OtherName, Certificate::Expired] {
        issuer.0.start(wrong);
        assert_eq!(door.name(&jane).await, 401);
    }
    issuer.0.start(Certificate::Good);
    door.until(&jane, format!("{url}#jane").into()).await;
    assert_eq!(door.who(&jane).await["groups"], json!(["idp:ops", "system:authenticated"]));
    assert_eq!(door.name(&joe).await, 401);
    let error = door.why_not(&joe);
    assert!(error.contains("tenant"), "{error}");
}
