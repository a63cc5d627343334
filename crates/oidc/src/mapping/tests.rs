use super::*;
use crate::config::AuthenticationConfig;

/// The user that an issuer's entry makes of claims, or the error.
fn mapped(entry: Value, claims: Value, place: Place) -> Result<User, Refusal> {
    let mut jwt = json!({"issuer": {"url": "https://a", "audiences": ["x"]}});
    for (member, value) in entry.as_object().unwrap() {
        jwt[member] = value.clone();
    }
    let tree = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [jwt],
    });
    let config = AuthenticationConfig::parse(tree.to_string().as_bytes()).unwrap();
    let mapping = config.compile(&[]).unwrap().remove(0);
    mapping.user(&config.jwt[0], claims.as_object().unwrap(), place)
}

fn shown(entry: Value, claims: Value) -> String {
    match mapped(entry, claims, Place::Serving) {
        Ok(user) => {
            let User { username, uid, groups, extra } = user;
            format!("{username}|{uid}|{}|{extra:?}", groups.join(","))
        }
        Err(Refusal::Invalid(why)) => why,
        Err(Refusal::Costly) => "costly".to_owned(),
    }
}

fn sub() -> Value {
    json!({"username": {"claim": "sub", "prefix": "p:"}})
}

#[test]
fn claims_become_users() {
    let entry = json!({"claimMappings": {
        "username": {"claim": "sub", "prefix": "p:"},
        "groups": {"claim": "roles", "prefix": "g:"},
        "uid": {"claim": "id"},
    }});
    let check = |claims: Value| shown(entry.clone(), claims);
    assert_eq!(
        check(json!({"sub": "a", "roles": ["b", "c"], "id": "7", "jti": "j"})),
        r#"p:a|7|g:b,g:c|{"authentication.kubernetes.io/credential-id": ["JTI=j"]}"#
    );
    assert_eq!(check(json!({"sub": "a", "roles": "b", "id": "7"})), "p:a|7|g:b|{}");
    assert_eq!(check(json!({"sub": "a", "id": "7"})), "p:a|7||{}");
    for (claims, error) in [
        (json!({}), r#"oidc: parse username claims "sub": claim not present"#),
        (json!({"sub": ""}), r#"oidc: parse username claims "sub": empty"#),
        (
            json!({"sub": 7}),
            r#"oidc: parse username claims "sub": json: cannot unmarshal number into Go value of type string"#,
        ),
        (json!({"sub": "a"}), r#"oidc: parse uid claim "id": claim not present"#),
        (
            json!({"sub": "a", "roles": {}}),
            r#"oidc: parse groups claim "roles": json: cannot unmarshal object into Go value of type string"#,
        ),
    ] {
        assert_eq!(check(claims), error);
    }
}

#[test]
fn email_must_be_verified_if_the_token_says_anything() {
    let entry = json!({"claimMappings": {"username": {"claim": "email", "prefix": ""}}});
    let check = |claims: Value| shown(entry.clone(), claims);
    assert_eq!(check(json!({"email": "a@b"})), "a@b|||{}");
    assert_eq!(check(json!({"email": "a@b", "email_verified": true})), "a@b|||{}");
    assert_eq!(check(json!({"email": "a@b", "email_verified": false})), "oidc: email not verified");
    assert!(check(json!({"email": "a@b", "email_verified": "true"})).contains("email_verified"));
}

#[test]
fn expressions_become_users() {
    let entry = json!({"claimMappings": {
        "username": {"expression": "claims.sub + ':external'"},
        "groups": {"expression": "claims.roles.split(',')"},
        "uid": {"expression": "string(claims.id)"},
        "extra": [
            {"key": "a.b/c", "valueExpression": "claims.?tenant.orValue('')"},
            {"key": "a.b/d", "valueExpression": "[claims.sub, dyn('')]"},
            {"key": "a.b/e", "valueExpression": "claims.nothing"},
        ],
    }});
    let check = |claims: Value| shown(entry.clone(), claims);
    assert_eq!(
        check(json!({"sub": "a", "roles": "b,c", "id": 7.5, "nothing": null})),
        r#"a:external|7.5|b,c|{"a.b/d": ["a"]}"#
    );
    assert_eq!(
        check(json!({"sub": "a", "id": "x"})),
        "oidc: error evaluating group claim expression: expression 'claims.roles.split(',')' resulted in error: no such key: roles"
    );
    let number = json!({"claimMappings": {"username": {"expression": "claims.sub"}}});
    assert_eq!(
        shown(number.clone(), json!({"sub": 7})),
        "oidc: error evaluating username claim expression: username claim expression must return a string"
    );
    assert_eq!(
        shown(number, json!({"sub": ""})),
        "oidc: empty username via CEL expression is not allowed"
    );
    let extra = json!({"claimMappings": {
        "username": {"claim": "sub", "prefix": ""},
        "extra": [{"key": "a.b/c", "valueExpression": "claims.n"}],
    }});
    assert_eq!(
        shown(extra, json!({"sub": "a", "n": 1})),
        "oidc: error evaluating extra claim expression: claims.n: expression must return a string or a list of strings"
    );
}

#[test]
fn rules_refuse_tokens() {
    let entry = json!({
        "claimMappings": sub(),
        "claimValidationRules": [
            {"claim": "hd", "requiredValue": "b"},
            {"expression": "claims.exp - claims.nbf <= 60.0", "message": "too long"},
        ],
        "userValidationRules": [
            {"expression": "!user.username.startsWith('p:system:')", "message": "reserved"},
            {"expression": "user.groups.size() == 0 && !has(user.extra.a)"},
        ],
    });
    let check = |claims: Value| shown(entry.clone(), claims);
    assert_eq!(check(json!({"sub": "a", "hd": "b", "exp": 60, "nbf": 0})), "p:a|||{}");
    for (claims, error) in [
        (json!({"sub": "a"}), "oidc: required claim hd not present in ID token"),
        (
            json!({"sub": "a", "hd": "c"}),
            "oidc: required claim hd value does not match. Got = c, want = b",
        ),
        (
            json!({"sub": "a", "hd": "b", "exp": 61, "nbf": 0}),
            "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.nbf <= 60.0' failed: too long",
        ),
        (
            json!({"sub": "system:x", "hd": "b", "exp": 0, "nbf": 0}),
            "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('p:system:')' failed: reserved",
        ),
    ] {
        assert_eq!(check(claims), error);
    }
}

#[test]
fn costly_expressions_run_elsewhere_and_end() {
    let rule = |times: &str| {
        json!({
            "claimMappings": sub(),
            "claimValidationRules": [{"expression": format!("claims.l.all(a, {times})")}],
        })
    };
    let claims = || json!({"sub": "a", "l": vec!["x"; 400]});
    let once = rule("claims.l.all(b, a == b)");
    assert!(matches!(mapped(once.clone(), claims(), Place::Serving), Err(Refusal::Costly)));
    assert!(mapped(once, claims(), Place::Elsewhere).is_ok());
    let more = rule("claims.l.all(b, claims.l.all(c, a == c))");
    match mapped(more, claims(), Place::Elsewhere) {
        Err(Refusal::Invalid(why)) => {
            assert!(why.ends_with("operation cancelled: actual cost limit exceeded"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}
