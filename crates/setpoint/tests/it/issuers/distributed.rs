//! Groups that are not in a token, but at an endpoint that it names.

use super::{Idp, accepted, config, review, who};
use crate::plane::{Person, with_person_of};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::ApiServer;
use setpoint::object::time::Clock;
use setpoint::oidc::{AuthenticationConfig, CLAIM_VALUES_MAX, CLAIMS_BYTES_MAX, Oidc, OidcOptions};

impl Idp {
    fn answer(&self, path: &str, code: u16, body: impl Into<String>) {
        self.answers.lock().insert(path.to_owned(), (code, body.into()));
    }

    fn asked(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// The token of somebody whose roles are at a path of this issuer.
    fn elsewhere(&self, name: &str, path: &str) -> String {
        self.token(json!({
            "sub": name, "_claim_names": {"roles": "src"},
            "_claim_sources": {"src": {
                "endpoint": self.served.url(path), "access_token": "secret",
            }},
        }))
    }
}

/// A control plane that trusts an issuer, while its keys are known.
async fn with_issuer(idp: &Idp, act: impl AsyncFnOnce(ApiServer, Person)) {
    let config = AuthenticationConfig::parse(config(json!([idp.entry()])).as_bytes()).unwrap();
    let issuers = Oidc::new(&config, OidcOptions::new(Clock::wall())).unwrap();
    let plane = ControlPlane::builder().issuers(issuers).build();
    let server = plane.server().clone();
    with_person_of(plane, async |person| {
        accepted(&server, &idp.token(json!({"sub": "known"}))).await;
        act(server, person).await;
    })
    .await;
}

fn roles(names: &[&str]) -> Value {
    json!({"roles": names})
}

#[tokio::test]
async fn groups_are_read_at_the_endpoint_that_a_token_names() {
    let idp = Idp::start().await;
    let other = Idp::start_of(idp.ca.clone()).await;
    with_issuer(&idp, async |server, _| {
        let groups = async |token: &str| who(&server, token).await["groups"].clone();
        let of = |names: &[&str]| {
            let mut groups: Vec<String> = names.iter().map(|name| format!("idp:{name}")).collect();
            groups.push("system:authenticated".to_owned());
            json!(groups)
        };

        // Requests with the same new token read its groups once.
        idp.answer("/groups", 200, idp.token(roles(&["a", "b"])));
        let token = idp.elsewhere("jane", "/groups");
        let (one, two, three) = tokio::join!(groups(&token), groups(&token), groups(&token));
        assert_eq!([one, two, three], [(); 3].map(|()| of(&["a", "b"])));
        assert_eq!(groups(&token).await, of(&["a", "b"]));
        assert_eq!(idp.asked(), [("/groups".to_owned(), "Bearer secret".to_owned())]);

        // Another issuer may have signed them, also with a key that it has not published before.
        for name in ["joe", "jim"] {
            idp.answer("/groups", 200, other.token(json!({"roles": "c"})) + "\n");
            assert_eq!(groups(&idp.elsewhere(name, "/groups")).await, of(&["c"]));
            *other.keys.lock() = super::new_keys();
        }
        idp.asked();

        // A redirect is followed, with the token at the same host. Without one none is shown.
        idp.answer("/moved", 302, "");
        idp.answer("/allow", 203, idp.token(roles(&["moved"])));
        assert_eq!(groups(&idp.elsewhere("ann", "/moved")).await, of(&["moved"]));
        let shown = |path: &str, token: &str| (path.to_owned(), token.to_owned());
        assert_eq!(
            idp.asked(),
            [shown("/moved", "Bearer secret"), shown("/allow", "Bearer secret")]
        );
        let open = idp.token(json!({
            "sub": "open", "_claim_names": {"roles": "src"},
            "_claim_sources": {"src": {"endpoint": idp.served.url("/allow")}},
        }));
        assert_eq!(groups(&open).await, of(&["moved"]));
        assert_eq!(idp.asked(), [shown("/allow", "")]);

        // More than a token in a header can have.
        let many: Vec<String> = (0..CLAIM_VALUES_MAX).map(|n| format!("group-{n}")).collect();
        idp.answer("/groups", 200, idp.token(json!({"roles": many})));
        let found = groups(&idp.elsewhere("many", "/groups")).await;
        assert_eq!(found.as_array().unwrap().len(), CLAIM_VALUES_MAX + 1);
        idp.asked();

        // What the token has itself counts; what it does not ask for is not read; aggregated claims
        // are not there.
        let source = json!({"src": {"endpoint": idp.served.url("/groups")}});
        for (names, sources, own, expected) in [
            ("roles", source.clone(), json!({"roles": ["own"]}), &["own"][..]),
            ("teams", source, json!({}), &[]),
            ("roles", json!({"src": {"JWT": idp.token(roles(&["a"]))}}), json!({}), &[]),
        ] {
            let mut claims = json!({
                "sub": "x", "_claim_names": {names: "src"}, "_claim_sources": sources,
            });
            claims.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            assert_eq!(groups(&idp.token(claims)).await, of(expected), "{names}");
        }
        assert_eq!(idp.asked(), []);
    })
    .await;
}

#[tokio::test]
async fn groups_elsewhere_must_be_signed_for_this_server() {
    let idp = Idp::start().await;
    let other = Idp::start_of(idp.ca.clone()).await;
    let stranger = Idp::start().await;
    let url = idp.served.url("/groups");
    with_issuer(&idp, async |server, person| {
        let getting = r#"while getting distributed claim "roles": "#;
        let verify = "verify distributed claim token: ";
        let gone = "https://127.0.0.1:1";
        for (code, answer, why) in [
            (
                503,
                idp.token(roles(&["a"])),
                format!("{getting}error while getting distributed claim JWT: 503 Service Unavailable"),
            ),
            (
                200,
                "x".repeat(CLAIMS_BYTES_MAX + 1),
                format!("{getting}Get {url:?}: the document is larger than {CLAIMS_BYTES_MAX} bytes"),
            ),
            (
                200,
                json!({"roles": ["a"]}).to_string(),
                format!(
                    "getting untrusted issuer from endpoint {url} failed for claim \"roles\": token is not compact JWT"
                ),
            ),
            (
                200,
                idp.token(json!({"roles": ["a"], "aud": "x"})),
                format!(r#"{verify}oidc: expected audience "setpoint" got ["x"]"#),
            ),
            (
                200,
                idp.token(json!({"roles": ["a"], "exp": 1_000_000_000})),
                format!(
                    "{verify}oidc: token is expired (Token Expiry: 2001-09-09 01:46:40 +0000 UTC)"
                ),
            ),
            (
                200,
                idp.token(json!({"teams": ["a"]})),
                format!(
                    "jwt returned by distributed claim endpoint {url:?} did not contain claim: roles"
                ),
            ),
            (
                200,
                // The name of one issuer, and the key of another.
                other.token(json!({"roles": ["a"], "iss": idp.url()})),
                format!(
                    "{verify}failed to verify signature: failed to verify id token signature"
                ),
            ),
            (
                200,
                other.token(json!({"roles": ["a"], "iss": gone})),
                format!(
                    "verifying untrusted issuer {gone} failed: verifier not initialized for issuer: {gone:?}: "
                ),
            ),
            (
                200,
                // Its server has a certificate of somebody else.
                stranger.token(roles(&["a"])),
                format!("verifying untrusted issuer {} failed: ", stranger.url()),
            ),
            (
                200,
                other.token(json!({"roles": ["a"], "iss": "ftp://x"})),
                "verifying untrusted issuer ftp://x failed: verifier not initialized for issuer: \"ftp://x\": unsupported URL".to_owned(),
            ),
            (
                200,
                idp.token(json!({"roles": vec!["a"; CLAIM_VALUES_MAX + 1]})),
                r#"distributed claim "roles" has 10001 values, more than 10000"#.to_owned(),
            ),
        ] {
            idp.answer("/groups", code, answer);
            let token = idp.elsewhere("jane", "/groups");
            assert_eq!(who(&server, &token).await, 401, "{why}");
            let error = review(&person, &token).await["error"].clone();
            let why = format!("[invalid bearer token, oidc: could not expand distributed claims: {why}");
            assert!(error.as_str().unwrap().starts_with(&why), "{error}\n{why}");
        }
        let plain = idp.token(json!({
            "sub": "x", "_claim_names": {"roles": "src"},
            "_claim_sources": {"src": {"endpoint": "http://127.0.0.1:1/groups"}},
        }));
        let error = review(&person, &plain).await["error"].clone();
        assert!(error.as_str().unwrap().contains("unsupported URL"), "{error}");
        // A name without a source is refused, whatever it is for.
        let nowhere = idp.token(json!({"sub": "x", "_claim_names": {"teams": "src"}}));
        let error = review(&person, &nowhere).await["error"].clone();
        assert_eq!(error, "[invalid bearer token, oidc: verify token: oidc: source does not exist]");
    })
    .await;
}
