use super::*;
use crate::authorization_config::AuthorizationConfig;
use serde_json::Value;

fn load(authorizers: Value) -> String {
    let tree = json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthorizationConfiguration",
        "authorizers": authorizers,
    });
    let config = AuthorizationConfig::parse(tree.to_string().as_bytes());
    match config.and_then(|config| config.validate()) {
        Ok(()) => "ok".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn webhook(file: &str) -> Value {
    json!({"type": "Webhook", "name": "a", "webhook": {
        "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": file},
    }})
}

#[test]
fn chains_are_checked_in_the_words_of_the_reference() {
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    assert_eq!(load(json!([rbac])), "ok");
    for (authorizers, error) in [
        (json!([]), "authorizers: Required value: at least one authorization mode must be defined"),
        (json!([{}]), "authorizers[0].type: Required value"),
        (
            json!([{"type": "Rbac", "name": "x"}]),
            r#"authorizers[0].type: Unsupported value: "Rbac": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook""#,
        ),
        (json!([rbac, rbac]), r#"authorizers[1].type: Duplicate value: "RBAC""#),
        (json!([{"type": "RBAC"}]), "authorizers[0].name: Required value"),
        (
            json!([{"type": "RBAC", "name": "x"}]),
            "expected name rbac for authorizer RBAC instead of x",
        ),
        (
            json!([{"type": "RBAC", "name": "rbac", "webhook": {}}]),
            r#"authorizers[0].webhook: Invalid value: "non-null": may only be specified when type=Webhook"#,
        ),
        (
            json!([{"type": "Webhook", "name": "a"}]),
            "authorizers[0].webhook: Required value: required when type=Webhook",
        ),
        (
            json!([{"type": "RBAC", "name": "rbac", "nme": 1}]),
            r#"failed to load AuthorizationConfiguration from file: strict decoding error: unknown field "authorizers[0].nme""#,
        ),
    ] {
        assert_eq!(load(authorizers), error);
    }
    let error = load(json!([{"type": "AlwaysAllow", "name": "A_"}]));
    assert!(
        error.contains("authorizers[0].name: Invalid value: \"A_\": authorizer name is invalid: ")
    );
    let config = AuthorizationConfig::default();
    assert_eq!(
        names(&config, &["RBAC", "AlwaysDeny"]),
        Err("missing required types: [AlwaysDeny RBAC]".to_owned())
    );
}

#[test]
fn webhooks_are_checked_in_the_words_of_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    std::fs::write(&file, "").unwrap();
    let file = file.display().to_string();
    let with = |pointer: &str, value: Value| {
        let mut one = webhook(&file);
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        one["webhook"].pointer_mut(parent).unwrap()[member] = value;
        load(json!([one]))
    };
    assert_eq!(with("/authorizedTTL", json!("1m")), "ok");
    let missing = format!("{file}-missing");
    for (pointer, value, error) in [
        ("/timeout", json!("0s"), "authorizers[0].timeout: Required value".to_owned()),
        (
            "/timeout",
            json!("1m"),
            r#"authorizers[0].timeout: Invalid value: "1m0s": must be > 0s and <= 30s"#.to_owned(),
        ),
        (
            "/timeout",
            json!("soon"),
            r#"failed to load AuthorizationConfiguration from file: time: invalid duration "soon""#
                .to_owned(),
        ),
        (
            "/unauthorizedTTL",
            json!("-1.5s"),
            r#"authorizers[0].unauthorizedTTL: Invalid value: "-1.5s": must be > 0s"#.to_owned(),
        ),
        (
            "/subjectAccessReviewVersion",
            json!("v2"),
            r#"authorizers[0].subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1""#.to_owned(),
        ),
        (
            "/failurePolicy",
            json!("Fail"),
            r#"authorizers[0].failurePolicy: Unsupported value: "Fail": supported values: "NoOpinion", "Deny""#.to_owned(),
        ),
        (
            "/connectionInfo/type",
            json!(""),
            "authorizers[0].connectionInfo.type: Required value".to_owned(),
        ),
        (
            "/connectionInfo/type",
            json!("InClusterConfig"),
            format!(r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "{file}": can only be set when type=KubeConfigFile"#),
        ),
        (
            "/connectionInfo/kubeConfigFile",
            json!("a"),
            r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "a": must be an absolute path"#.to_owned(),
        ),
        (
            "/connectionInfo/kubeConfigFile",
            json!(missing),
            format!(r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "{missing}": error loading file: stat {missing}: no such file or directory"#),
        ),
        (
            "/matchConditions",
            json!([{"expression": " "}]),
            "authorizers[0].matchConditions[0].expression: Required value".to_owned(),
        ),
        (
            "/matchConditions",
            json!([{"expression": "request.user"}]),
            r#"authorizers[0].matchConditions[0].expression: Invalid value: "request.user": must evaluate to bool but got string"#.to_owned(),
        ),
        (
            "/matchConditions",
            json!(vec![json!({"expression": "true"}); 65]),
            "authorizers[0].matchConditions: Too many: 65: must have at most 64 items".to_owned(),
        ),
    ] {
        assert_eq!(with(pointer, value), error);
    }
    let mut one = webhook(&file);
    one["webhook"]["matchConditionSubjectAccessReviewVersion"] = json!("");
    one["webhook"]["matchConditions"] = json!([{"expression": "true"}]);
    assert_eq!(
        load(json!([one])),
        "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"
    );
}

#[test]
fn documents_of_all_versions_of_the_reference_are_read() {
    let parse = |version: &str, timeout: &str| {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/{version}\nkind: AuthorizationConfiguration\nauthorizers:\n- {{type: Webhook, name: a, webhook: {{timeout: {timeout}}}}}\n"
        );
        AuthorizationConfig::parse(text.as_bytes()).map(drop).map_err(|error| error.to_string())
    };
    for version in ["v1", "v1beta1", "v1alpha1"] {
        assert_eq!(parse(version, "3s"), Ok(()));
    }
    let error = parse("v2", "3s").unwrap_err();
    assert!(error.contains(r#"is registered for version "apiserver.config.k8s.io/v2""#), "{error}");
    assert_eq!(
        parse("v1", "'5'").unwrap_err(),
        r#"failed to load AuthorizationConfiguration from file: time: missing unit in duration "5""#
    );
}
