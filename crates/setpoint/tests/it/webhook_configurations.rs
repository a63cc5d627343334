//! What webhook configurations may say.

use crate::admission_webhooks::{MUTATING, VALIDATING, configuration, hook, plane};
use crate::https::with_user;
use serde_json::{Value, json};

#[tokio::test]
async fn configurations_are_validated() {
    with_user(plane(), async |user, _| {
        let url = |url: &str| json!({"url": url});
        let refused = async |change: &dyn Fn(&mut Value)| {
            let mut webhook = hook("a", url("https://a.b/c"), &["pods"]);
            change(&mut webhook);
            let path = format!("{MUTATING}?dryRun=All");
            user.send("POST", &path, &configuration(MUTATING, "c", &[webhook])).await.shown()
        };
        assert_eq!(refused(&|_| {}).await, "201 ok");
        let invalid = "422 MutatingWebhookConfiguration.admissionregistration.k8s.io \"c\" is invalid: webhooks[0].";
        type Edit = fn(&mut Value);
        let cases: [(Edit, &str); 12] = [
            (|w| w["name"] = "a.b".into(), "name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots"),
            (|w| w["clientConfig"] = json!({}), "clientConfig: Required value: exactly one of url or service is required"),
            (|w| w["sideEffects"] = Value::Null, "sideEffects: Required value: must specify one of None, NoneOnDryRun"),
            (|w| w["timeoutSeconds"] = 31.into(), "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"),
            (|w| w["reinvocationPolicy"] = "x".into(), "reinvocationPolicy: Unsupported value: \"x\": supported values: \"IfNeeded\", \"Never\""),
            (|w| w["rules"][0]["operations"] = json!(["*", "CREATE"]), "rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations"),
            (|w| w["rules"][0]["scope"] = "x".into(), "rules[0].scope: Unsupported value: \"x\": supported values: \"*\", \"Cluster\", \"Namespaced\""),
            (|w| w["admissionReviewVersions"] = json!(["v9"]), "admissionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1"),
            (|w| w["objectSelector"] = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}), "objectSelector.matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator"),
            (|w| w["matchConditions"] = json!([{"name": "a", "expression": "1"}]), "matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool"),
            (|w| w["matchConditions"] = json!([{"name": "a", "expression": "object.a == "}]), "matchConditions[0].expression: Invalid value: \"object.a ==\": compilation failed: ERROR: <input>:1:12: Syntax error"),
            (|w| w["clientConfig"]["url"] = "https://a.b/c?d".into(), "clientConfig.url: Invalid value: \"d\": query parameters are not permitted in the URL"),
        ];
        for (change, text) in cases {
            let shown = refused(&change).await;
            assert!(shown.starts_with(&format!("{invalid}{text}")), "{shown}\n{text}");
        }
        let many: Vec<Value> = (0..65)
            .map(|n| json!({"name": format!("c{n}"), "expression": "true"}))
            .collect();
        let shown = refused(&|w| w["matchConditions"] = many.clone().into()).await;
        assert!(shown.ends_with("webhooks[0].matchConditions: Too many: 65: must have at most 64 items"), "{shown}");
        let twice = hook("a", url("https://a.b"), &["pods"]);
        let twice = configuration(VALIDATING, "d", &[twice.clone(), twice]);
        let shown = user.send("POST", VALIDATING, &twice).await.shown();
        assert!(shown.ends_with("webhooks[1].name: Duplicate value: \"a.example.com\""), "{shown}");
    })
    .await;
}
