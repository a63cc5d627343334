//! Drawn webhooks, and what they answer.

use super::super::random::Random;
use super::SetUp;
use super::expression::{self, Scope};
use super::hooks::Reply;
use super::policy::{GROUP, constraints};
use serde_json::{Value, json};

/// Stands for the URL of the server in what is drawn.
pub(super) const URL: &str = "HOOKS-URL";
/// Stands for its certificate.
pub(super) const BUNDLE: &str = "HOOKS-BUNDLE";

/// Patches of objects that are there or not.
const PATCHES: &[&str] = &[
    r#"[{"op":"add","path":"/metadata/labels","value":{"app":"changed"}}]"#,
    r#"[{"op":"add","path":"/metadata/labels/added","value":"yes"}]"#,
    r#"[{"op":"replace","path":"/metadata/labels/app","value":"b"}]"#,
    r#"[{"op":"remove","path":"/metadata/labels/app"}]"#,
    r#"[{"op":"add","path":"/metadata/annotations","value":{"example.com/note":"y"}}]"#,
    r#"[{"op":"add","path":"/metadata/finalizers","value":["example.com/hold"]}]"#,
    r#"[{"op":"add","path":"/data/added","value":"1"}]"#,
    r#"[{"op":"add","path":"/data","value":{"n":"9"}}]"#,
    r#"[{"op":"replace","path":"/spec/replicas","value":2}]"#,
    r#"[{"op":"replace","path":"/spec/replicas","value":"2"}]"#,
    r#"[{"op":"add","path":"/spec/color","value":"blue"}]"#,
    r#"[{"op":"add","path":"/spec/unknown","value":"blue"}]"#,
    r#"[{"op":"add","path":"/spec/containers/-","value":{"name":"side","image":"example.com/side:1"}}]"#,
    r#"[{"op":"add","path":"/spec/tolerations","value":[{"key":"a","operator":"Exists"}]}]"#,
    r#"[{"op":"test","path":"/metadata/name","value":"zzz"},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]"#,
    r#"[{"op":"test","path":"/metadata/name","value":"a"},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]"#,
    r#"[{"op":"replace","path":"/metadata/name","value":"other"}]"#,
    r#"[{"op":"replace","path":"/kind","value":"Other"}]"#,
    r#"[{"op":"replace","path":"/apiVersion","value":"other/v1"}]"#,
    r#"[{"op":"add","path":"/metadata/labels","value":{"bad key!":""}}]"#,
    r#"[{"op":"add","path":"/metadata/labels","value":["a"]}]"#,
    r#"[{"op":"add","path":"/status","value":{"phase":"Running"}}]"#,
    r#"[{"op":"replace","path":"","value":{}}]"#,
    r#"[{"op":"remove","path":"/spec"}]"#,
    r#"[{"op":"invalid","path":"/spec"}]"#,
    "[]",
    "{}",
    "null",
    "x",
    "",
];

/// Some mutating webhooks and at most one validating one, as these are called at the same time.
pub(super) fn draw(random: &mut Random, namespace: &str) -> (Vec<SetUp>, Vec<Reply>) {
    let (mut all, mut replies) = (Vec::new(), Vec::new());
    let (mutating, validating) = match random.below(4) {
        0 => (0, 1),
        1 => (1, 0),
        2 => (1 + random.below(3), 0),
        _ => (1 + random.below(2), 1),
    };
    for (count, kind, plural) in [
        (mutating, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        (validating, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ] {
        let mutates = kind.starts_with('M');
        let webhooks: Vec<Value> = (0..count)
            .map(|_| {
                let number = replies.len();
                replies.push(reply(random, mutates));
                webhook(random, namespace, number, mutates)
            })
            .collect();
        if !webhooks.is_empty() {
            let object = json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": kind,
                "metadata": {"name": namespace}, "webhooks": webhooks,
            });
            all.push(SetUp::new(format!("/apis/{GROUP}/v1/{plural}"), object));
        }
    }
    (all, replies)
}

fn webhook(random: &mut Random, namespace: &str, number: usize, mutates: bool) -> Value {
    let matches = constraints(random, Some(namespace), true);
    let mut rules = matches["resourceRules"].clone();
    for rule in rules.as_array_mut().into_iter().flatten() {
        // They would judge what other cases are made of.
        if rule["apiGroups"][0] == "*" {
            rule["scope"] = "Namespaced".into();
        }
        // Of policies only.
        if let Some(members) = rule.as_object_mut() {
            members.remove("resourceNames");
        }
    }
    let mut hook = json!({
        "name": format!("h{number}.example.com"),
        "admissionReviewVersions": ([json!(["v1"]), json!(["v1"]), json!(["v1beta1", "v1"])][random.below(3)]),
        "sideEffects": (["None", "NoneOnDryRun"][random.below(2)]),
        "clientConfig": {"url": format!("{URL}/{namespace}/{number}"), "caBundle": BUNDLE},
        "rules": rules,
        "timeoutSeconds": 10,
    });
    for name in ["namespaceSelector", "objectSelector", "matchPolicy"] {
        if !matches[name].is_null() {
            hook[name] = matches[name].clone();
        }
    }
    if random.percent(35) {
        hook["failurePolicy"] = "Ignore".into();
    }
    if mutates && random.percent(50) {
        hook["reinvocationPolicy"] = "IfNeeded".into();
    }
    if random.percent(30) {
        let expression = expression::condition(random, &Scope::default());
        hook["matchConditions"] = json!([{"name": "c0", "expression": expression}]);
    }
    hook
}

fn reply(random: &mut Random, mutates: bool) -> Reply {
    let mut response = json!({"allowed": true});
    match random.below(100) {
        0..60 if mutates => {
            let patch = random.pick(PATCHES).copied().unwrap_or_default();
            response["patchType"] = "JSONPatch".into();
            response["patch"] = super::hooks::encoded(patch).into();
        }
        0..30 | 60..75 => {}
        _ => {
            response["allowed"] = false.into();
            let status = [
                Value::Null,
                json!({}),
                json!({"message": "no"}),
                json!({"message": "no", "reason": "Forbidden"}),
                json!({"message": "no", "code": 418, "reason": "Teapot"}),
                json!({"code": 200, "message": "no"}),
                json!({"code": 422, "reason": "Invalid", "details": {"causes": [{"field": "a", "message": "b"}]}}),
                json!({"status": "Success", "message": "  "}),
            ];
            let status = random.pick(&status).cloned().unwrap_or_default();
            if !status.is_null() {
                response["status"] = status;
            }
        }
    }
    if random.percent(25) {
        response["warnings"] = json!(["first", "second\nline", "w".repeat(300)]);
    }
    if random.percent(15) {
        response["auditAnnotations"] = json!({"key": "value", "bad key": "x"});
    }
    let mut body = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    });
    match random.below(100) {
        1 => body["response"] = Value::Null,
        2 => body["kind"] = "Other".into(),
        3 => return Reply { code: 500, body: "it failed".into() },
        4 => return Reply { code: 200, body: "<html>".into() },
        5 => return Reply { code: 200, body: "".into() },
        6 => body["response"]["patchType"] = "Other".into(),
        _ => {}
    }
    Reply { code: 200, body }
}
