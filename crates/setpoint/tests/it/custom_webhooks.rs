//! What mutating webhooks and policies do to custom objects.

use crate::admission_policies::on;
use crate::admission_webhooks::{MUTATING, configure, hook, patched, plane, review};
use crate::https::{Ca, with_user};
use crate::mutating_policies::{enforce, patch};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/ex.io/v1/namespaces/default/widgets";

fn definition() -> Value {
    let list = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "list": list,
                        "size": {"type": "integer", "default": 3},
                        "note": {"type": "string", "nullable": true},
                        "any": {"x-kubernetes-preserve-unknown-fields": true},
                    }}}}}}],
        },
    })
}
fn widget(mode: &str, spec: Value) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Widget",
        "metadata": {"generateName": "w-", "labels": {"mode": mode}}, "spec": spec})
}
/// What kube-apiserver says of a widget whose list admission has set to null.
fn is_refused(shown: &str) {
    let why =
        "spec.list: Invalid value: \"null\": spec.list in body must be of type array: \"null\"";
    assert!(shown.starts_with("422 Widget.ex.io \"w-") && shown.ends_with(why), "{shown}");
}

#[tokio::test]
async fn nulls_of_a_request_are_dropped_and_those_of_admission_are_refused() {
    let ca = Ca::new();
    let answer = |path: &str, request: Value| {
        let operations = match path {
            // What a Go struct whose fields lack `omitempty` leads to.
            "/nulls" => json!([{"op": "add", "path": "/spec/list", "value": null}]),
            "/allowed" => json!([
                {"op": "add", "path": "/spec/size", "value": null},
                {"op": "add", "path": "/spec/note", "value": null},
                {"op": "add", "path": "/spec/any", "value": null},
            ]),
            _ => return review(&request, json!({"allowed": false})),
        };
        patched(&request, operations)
    };
    let hooks = ca.serve_raw(answer).await;
    with_user(plane(), async |user, _| {
        user.create(DEFINITIONS, &definition()).await;
        user.until("GET", WIDGETS, &Value::Null, |answer| answer.code == 200).await;
        let hook_for = |mode: &str| {
            let mut hook = hook(mode, hooks.config(&format!("/{mode}")), &["widgets"]);
            hook["objectSelector"] = json!({"matchLabels": {"mode": mode}});
            hook
        };
        configure(&user, &hooks, MUTATING, "nulls", &[hook_for("nulls"), hook_for("allowed")])
            .await;
        let nulls = json!({"list": null, "size": null, "note": null, "any": null});
        let made = user.create(WIDGETS, &widget("none", nulls.clone())).await;
        assert_eq!(made["spec"], json!({"note": null, "size": 3}));
        // A patch may not bring back what was dropped.
        let answer = user.send("POST", WIDGETS, &widget("nulls", nulls)).await;
        is_refused(&answer.shown());
        // Unless the schema has a default, or takes it.
        let made = user.create(WIDGETS, &widget("allowed", json!({}))).await;
        assert_eq!(made["spec"], json!({"note": null, "size": 3}));
        let constraints = on(&["widgets"], &["CREATE"]);
        let mutation = patch(
            r#"object.metadata.labels.mode == "policy" ? [JSONPatch{op: "add", path: "/spec/list", value: null}] : []"#,
        );
        let spec = json!({"matchConstraints": constraints, "mutations": [mutation]});
        enforce(&user, "nulls", spec).await;
        let answer = user.send("POST", WIDGETS, &widget("policy", json!({}))).await;
        is_refused(&answer.shown());
    })
    .await;
}
