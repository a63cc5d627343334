//! Rules in CEL of a custom resource, from its definition to its objects.

use crate::plane::{Person, with_person};
use http_body_util::BodyExt;
use kube_client::client::Body;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JOBS: &str = "/apis/ex.io/v1/namespaces/default/jobs";

/// What a request is answered with: the status code and either the body or the causes, then the
/// warnings.
async fn ask(person: &Person, method: &str, path: &str, body: &Value) -> (u16, Vec<String>) {
    let kind = match method {
        "PATCH" if path.contains("fieldManager=") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let answer = person.client.send(request).await.unwrap();
    let (code, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut messages: Vec<String> = causes
        .iter()
        .map(|cause| {
            let reason = text(&cause["reason"]);
            format!("{} {}: {}", reason, text(&cause["field"]), text(&cause["message"]))
        })
        .collect();
    for warning in headers.get_all("warning") {
        messages.push(format!("warning {}", warning.to_str().unwrap()));
    }
    (code, messages)
}

fn definition(spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "jobs.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "jobs", "singular": "job", "kind": "Job", "listKind": "JobList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec,
                    "status": {"type": "object", "properties": {"done": {"type": "integer", "x-kubernetes-validations": [
                        {"rule": "self >= oldSelf", "message": "what is done is done"}]}}},
                }}},
            }],
        },
    })
}

fn spec() -> Value {
    json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"}, "note": {"type": "string"},
            "queue": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "queue is immutable"}]},
        },
        "x-kubernetes-validations": [{
            "rule": "self.min <= self.max", "messageExpression": "'min %d is above max'.format([self.min])",
            "fieldPath": ".min",
        }],
    })
}

fn job(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
}

async fn define(person: &Person, spec: Value) {
    person.create(DEFINITIONS, &definition(spec)).await;
    let path = format!("{DEFINITIONS}/jobs.ex.io");
    person
        .until(&path, "it is established", |definition| {
            let definition = definition.as_ref().unwrap();
            let conditions = definition["status"]["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|c| c["type"] == "Established" && c["status"] == "True")
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn objects_are_held_to_rules_however_they_are_written() {
    with_person(async |person| {
        define(&person, spec()).await;
        let above = ["FieldValueInvalid spec.min: Invalid value: min 3 is above max"];
        let wrong = job("a", json!({"min": 3, "max": 2}));
        assert_eq!(
            ask(&person, "POST", JOBS, &wrong).await,
            (422, above.map(str::to_owned).to_vec())
        );
        let right = job("a", json!({"min": 1, "max": 2, "queue": "q"}));
        assert_eq!(ask(&person, "POST", JOBS, &right).await, (201, vec![]));

        let a = format!("{JOBS}/a");
        let (code, messages) = ask(&person, "PATCH", &a, &json!({"spec": {"min": 3}})).await;
        assert_eq!((code, messages), (422, above.map(str::to_owned).to_vec()));
        let (code, messages) =
            ask(&person, "PATCH", &a, &json!({"spec": {"queue": "other"}})).await;
        let immutable =
            r#"FieldValueInvalid spec.queue: Invalid value: "other": queue is immutable"#;
        assert_eq!((code, messages), (422, vec![immutable.to_owned()]));
        let applied = format!("{a}?fieldManager=m&force=true");
        let (code, messages) = ask(&person, "PATCH", &applied, &job("a", json!({"max": 0}))).await;
        let above = "FieldValueInvalid spec.min: Invalid value: min 1 is above max";
        assert_eq!((code, messages), (422, vec![above.to_owned()]));

        let status = format!("{a}/status");
        let done = |n: i64| json!({"status": {"done": n}});
        assert_eq!(ask(&person, "PATCH", &status, &done(2)).await, (200, vec![]));
        let (code, messages) = ask(&person, "PATCH", &status, &done(1)).await;
        let undone = "FieldValueInvalid status.done: Invalid value: 1: what is done is done";
        assert_eq!((code, messages), (422, vec![undone.to_owned()]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rule_that_an_unchanged_object_breaks_is_a_warning() {
    with_person(async |person| {
        let mut lax = spec();
        lax["x-kubernetes-validations"] = json!([]);
        define(&person, lax).await;
        let broken = job("old", json!({"min": 3, "max": 2, "note": "a"}));
        assert_eq!(ask(&person, "POST", JOBS, &broken).await, (201, vec![]));
        let changed = json!({"spec": definition(spec())["spec"]});
        let (code, _) = ask(&person, "PATCH", &format!("{DEFINITIONS}/jobs.ex.io"), &changed).await;
        assert_eq!(code, 200);

        let old = format!("{JOBS}/old");
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        let warning = r#"warning 299 - "spec.min: Invalid value: min 3 is above max""#;
        assert_eq!(ask(&person, "PATCH", &old, &labelled).await, (200, vec![warning.to_owned()]));
        let (code, messages) = ask(&person, "PATCH", &old, &json!({"spec": {"note": "b"}})).await;
        let above = "FieldValueInvalid spec.min: Invalid value: min 3 is above max";
        assert_eq!((code, messages), (422, vec![above.to_owned()]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn definition_whose_rule_does_not_compile_or_costs_too_much_is_refused() {
    with_person(async |person| {
        let rule = |rule: &str| {
            let mut spec = spec();
            spec["x-kubernetes-validations"] = json!([{"rule": rule}]);
            definition(spec)
        };
        let (code, messages) = ask(&person, "POST", DEFINITIONS, &rule("self.zz == 1")).await;
        let place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
        let unknown = format!(
            r#"FieldValueInvalid {place}: Invalid value: {{"Rule":"self.zz == 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}}: compilation failed: ERROR: <input>:1:5: undefined field 'zz'
 | self.zz == 1
 | ....^"#
        );
        assert_eq!((code, messages), (422, vec![unknown]));
        let (code, messages) = ask(&person, "POST", DEFINITIONS, &rule("self.note.contains(self.queue)")).await;
        assert_eq!(code, 422);
        let costly = format!("FieldValueForbidden {place}: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)");
        assert_eq!(messages[0], costly);
    })
    .await;
}
