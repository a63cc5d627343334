use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The error for a configuration with this issuer entry.
fn wrong(jwt: Value) -> String {
    let tree = json!({"apiVersion": KIND.versions[0], "kind": KIND.name, "jwt": [jwt]});
    let config = match AuthenticationConfig::parse(tree.to_string().as_bytes()) {
        Ok(config) => config,
        Err(error) => return error.to_string(),
    };
    match config.validate(&["https://own".to_owned()]) {
        Ok(()) => "ok".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn valid() -> Value {
    json!({
        "issuer": {"url": "https://a.b/c", "audiences": ["x"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    })
}

/// The error after one member is set.
fn with(pointer: &str, value: Value) -> String {
    let mut jwt = valid();
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    if jwt.pointer(parent).is_none() {
        let (before, last) = parent.rsplit_once('/').unwrap();
        jwt.pointer_mut(before).unwrap()[last] = json!({});
    }
    jwt.pointer_mut(parent).unwrap()[member] = value;
    wrong(jwt)
}

#[test]
fn documents_are_read_strictly() {
    let parse = |text: &str| match AuthenticationConfig::parse(text.as_bytes()) {
        Ok(config) => format!("{} issuers", config.jwt.len()),
        Err(error) => error.to_string(),
    };
    let yaml = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n";
    assert_eq!(parse(yaml), "0 issuers");
    assert_eq!(parse(&yaml.replace("beta", "alpha")), "0 issuers");
    assert_eq!(parse(&format!("{yaml}jwt: [{{}}]\nanonymous: {{enabled: true}}")), "1 issuers");
    assert_eq!(parse(""), "empty config data");
    assert_eq!(
        parse("apiVersion: v1\nkind: Pod"),
        r#"no kind "Pod" is registered for version "v1": expected AuthenticationConfiguration in apiserver.config.k8s.io/v1 or apiserver.config.k8s.io/v1beta1 or apiserver.config.k8s.io/v1alpha1"#
    );
    let unknown = parse(&format!("{yaml}jwt: [{{issuer: {{urll: a}}, b: 1}}]\nc: 2"));
    assert!(unknown.starts_with("strict decoding error: "), "{unknown}");
    for path in ["jwt[0].b", "jwt[0].issuer.urll", "c"] {
        assert!(unknown.contains(&format!("unknown field {path:?}")), "{unknown}");
    }
    assert!(parse(&format!("{yaml}jwt: 7")).contains("invalid type"));
    assert!(parse(&format!("{yaml}jwt: []\njwt: []")).contains("duplicate"));
}

#[test]
fn issuers_are_checked_in_the_words_of_the_reference() {
    assert_eq!(wrong(valid()), "ok");
    for (pointer, value, error) in [
        ("/issuer/url", json!(""), "jwt[0].issuer.url: Required value"),
        (
            "/issuer/url",
            json!("http://a"),
            r#"jwt[0].issuer.url: Invalid value: "http://a": URL scheme must be https"#,
        ),
        (
            "/issuer/url",
            json!("https://u@a"),
            r#"jwt[0].issuer.url: Invalid value: "https://u@a": URL must not contain a username or password"#,
        ),
        (
            "/issuer/url",
            json!("https://a?b"),
            r#"jwt[0].issuer.url: Invalid value: "https://a?b": URL must not contain a query"#,
        ),
        (
            "/issuer/url",
            json!("https://a#b"),
            r#"jwt[0].issuer.url: Invalid value: "https://a#b": URL must not contain a fragment"#,
        ),
        (
            "/issuer/url",
            json!("https://own"),
            r#"jwt[0].issuer.url: Invalid value: "https://own": URL must not overlap with disallowed issuers: [https://own]"#,
        ),
        (
            "/issuer/discoveryURL",
            json!("https://a.b/c/"),
            r#"jwt[0].issuer.discoveryURL: Invalid value: "https://a.b/c/": discoveryURL must be different from URL"#,
        ),
        (
            "/issuer/audiences",
            json!([]),
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        ),
        ("/issuer/audiences", json!([""]), "jwt[0].issuer.audiences[0]: Required value"),
        (
            "/issuer/audiences",
            json!(["a", "b"]),
            r#"jwt[0].issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple audiences"#,
        ),
        (
            "/issuer/audienceMatchPolicy",
            json!("MatchAll"),
            r#"jwt[0].issuer.audienceMatchPolicy: Invalid value: "MatchAll": audienceMatchPolicy must be empty or MatchAny for single audience"#,
        ),
        (
            "/issuer/certificateAuthority",
            json!("x"),
            r#"jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>": data does not contain any valid RSA or ECDSA certificates"#,
        ),
        (
            "/issuer/egressSelectorType",
            json!("etcd"),
            r#"jwt[0].issuer.egressSelectorType: Invalid value: "etcd": egress selector must be either controlplane or cluster"#,
        ),
    ] {
        assert_eq!(with(pointer, value), error);
    }
}

#[test]
fn mappings_are_checked_in_the_words_of_the_reference() {
    for (pointer, value, error) in [
        (
            "/claimMappings/username",
            json!({}),
            "jwt[0].claimMappings.username: Required value: claim or expression is required",
        ),
        (
            "/claimMappings/username",
            json!({"claim": "sub"}),
            "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing",
        ),
        (
            "/claimMappings/username",
            json!({"claim": "sub", "expression": "claims.sub"}),
            r#"jwt[0].claimMappings.username: Invalid value: "": claim and expression can't both be set"#,
        ),
        (
            "/claimMappings/username",
            json!({"expression": "claims.sub", "prefix": "p"}),
            r#"jwt[0].claimMappings.username.prefix: Invalid value: "p": may not be specified when expression is set"#,
        ),
        (
            "/claimMappings/groups",
            json!({"expression": "user.name"}),
            "jwt[0].claimMappings.groups.expression: Invalid value: \"user.name\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'user' (in container '')\n | user.name\n | ^",
        ),
        (
            "/claimMappings/uid",
            json!({"claim": "a", "expression": "claims.a"}),
            r#"jwt[0].claimMappings.uid: Invalid value: "": claim and expression can't both be set"#,
        ),
        (
            "/claimMappings/extra",
            json!([{"key": "a", "valueExpression": "claims.a"}]),
            r#"jwt[0].claimMappings.extra[0].key: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")"#,
        ),
        (
            "/claimMappings/extra",
            json!([{"key": "a.b/C", "valueExpression": "claims.a"}]),
            r#"jwt[0].claimMappings.extra[0].key: Invalid value: "a.b/C": must be lowercase"#,
        ),
        (
            "/claimMappings/extra",
            json!([{"key": "x.k8s.io/c", "valueExpression": "claims.a"}]),
            r#"jwt[0].claimMappings.extra[0].key: Invalid value: "x.k8s.io/c": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"#,
        ),
        (
            "/claimMappings/extra",
            json!([{"key": "a.b/c", "valueExpression": "claims.a"}, {"key": "a.b/c", "valueExpression": "claims.a"}]),
            r#"jwt[0].claimMappings.extra[1].key: Duplicate value: "a.b/c""#,
        ),
        (
            "/claimMappings/extra",
            json!([{"key": "a.b/c"}]),
            "jwt[0].claimMappings.extra[0].valueExpression: Required value",
        ),
        (
            "/claimMappings/username",
            json!({"expression": "claims.email"}),
            r#"jwt[0].claimMappings.username.expression: Invalid value: "claims.email": claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"#,
        ),
        (
            "/claimMappings/username",
            json!({"expression": "claims.?email_verified.orValue(true) ? claims.email : claims.sub"}),
            "ok",
        ),
        (
            "/claimValidationRules",
            json!([{}]),
            "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
        ),
        (
            "/claimValidationRules",
            json!([{"claim": "a", "message": "m"}]),
            r#"jwt[0].claimValidationRules[0].message: Invalid value: "m": may not be specified when claim is set"#,
        ),
        (
            "/claimValidationRules",
            json!([{"expression": "claims.a == 'b'", "requiredValue": "m"}]),
            r#"jwt[0].claimValidationRules[0].requiredValue: Invalid value: "m": may not be specified when expression is set"#,
        ),
        (
            "/claimValidationRules",
            json!([{"expression": "claims.a"}]),
            r#"jwt[0].claimValidationRules[0].expression: Invalid value: "claims.a": must evaluate to bool"#,
        ),
        (
            "/userValidationRules",
            json!([{"expression": ""}]),
            "jwt[0].userValidationRules[0].expression: Required value",
        ),
        (
            "/userValidationRules",
            json!([{"expression": "user.username == ''"}, {"expression": "user.username == ''"}]),
            r#"jwt[0].userValidationRules[1].expression: Duplicate value: "user.username == ''""#,
        ),
        (
            "/userValidationRules",
            json!([{"expression": "user.name == ''"}]),
            "jwt[0].userValidationRules[0].expression: Invalid value: \"user.name == ''\": compilation failed: ERROR: <input>:1:5: undefined field 'name'\n | user.name == ''\n | ....^",
        ),
    ] {
        assert_eq!(with(pointer, value), error);
    }
}

#[test]
fn issuers_are_distinct_and_few() {
    let config = |n: usize, same: bool| {
        let jwt = (0..n).map(|i| {
            let mut jwt = valid();
            let i = if same { 0 } else { i };
            jwt["issuer"]["url"] = format!("https://a{i}").into();
            jwt
        });
        let jwt: Vec<_> = jwt.collect();
        let tree =
            json!({"apiVersion": KIND.versions[0], "kind": KIND.name, "jwt": jwt}).to_string();
        let config = AuthenticationConfig::parse(tree.as_bytes()).unwrap();
        config.validate(&[]).map_err(|error| error.to_string())
    };
    assert_eq!(config(JWT_MAX, false), Ok(()));
    let error = config(JWT_MAX + 1, false).unwrap_err();
    assert_eq!(error, "jwt: Too many: 65: must have at most 64 items");
    let error = config(2, true).unwrap_err();
    assert_eq!(error, r#"jwt[1].issuer.url: Duplicate value: "https://a0""#);
}

proptest! {
    #[test]
    fn no_document_is_a_panic(text in ".{0,200}") {
        let yaml = format!("apiVersion: {}\nkind: {}\n{text}", KIND.versions[0], KIND.name);
        for text in [text.as_bytes(), yaml.as_bytes()] {
            if let Ok(config) = AuthenticationConfig::parse(text) {
                drop(config.validate(&[]));
            }
        }
    }
}
