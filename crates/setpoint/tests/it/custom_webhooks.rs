//! What mutating webhooks and policies do to custom objects.

use crate::admission_policies::on;
use crate::admission_webhooks::{MUTATING, configure, hook, patched, plane, review};
use crate::https::{Ca, with_user};
use crate::mutating_policies::{enforce, patch};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

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

/// A hook for one version sees an object of another one with what only that declares, and a Scale
/// without the labels of its object.
#[tokio::test]
async fn hooks_see_all_of_another_version_and_a_scale_without_labels() {
    let ca = Ca::new();
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let reviews = seen.clone();
    let answer = move |path: &str, request: Value| {
        if path == "/probe" {
            return review(&request, json!({"allowed": false}));
        }
        reviews.lock().unwrap().push(json!([path, request["request"]["object"]]));
        review(&request, json!({"allowed": true}))
    };
    let hooks = ca.serve_raw(answer).await;
    with_user(plane(), async |user, _| {
        let version = |name: &str, own: &str, storage: bool| {
            json!({"name": name, "served": true, "storage": storage,
                "subresources": {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "n": {"type": "integer"}, own: {"type": "string"},
                    }},
                    "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
                }}}})
        };
        let mut gadgets = definition();
        gadgets["metadata"]["name"] = "gadgets.ex.io".into();
        gadgets["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
        gadgets["spec"]["versions"] = json!([version("v1", "one", false), version("v2", "two", true)]);
        user.create(DEFINITIONS, &gadgets).await;
        let path = "/apis/ex.io/v2/namespaces/default/gadgets";
        user.until("GET", path, &Value::Null, |answer| answer.code == 200).await;
        let mut of_v1 = hook("of-v1", hooks.config("/v1"), &["gadgets"]);
        of_v1["rules"][0]["apiVersions"] = json!(["v1"]);
        let scales = |name: &str, expression: Value| {
            let mut hook = hook(name, hooks.config(&format!("/{name}")), &["gadgets/scale"]);
            hook["objectSelector"] = json!({"matchExpressions": [expression]});
            hook
        };
        let labelled = scales("labelled", json!({"key": "l", "operator": "Exists"}));
        let plain = scales("plain", json!({"key": "l", "operator": "DoesNotExist"}));
        configure(&user, &hooks, MUTATING, "gadgets", &[of_v1, labelled, plain]).await;
        let gadget = json!({"apiVersion": "ex.io/v2", "kind": "Gadget",
            "metadata": {"name": "g", "labels": {"l": "1"}}, "spec": {"n": 1, "two": "x"}});
        let made = user.create(path, &gadget).await;
        assert_eq!(made["spec"], json!({"n": 1, "two": "x"}));
        let scale = format!("{path}/g/scale");
        let three = json!({"spec": {"replicas": 3}});
        assert_eq!(user.send("PATCH", &scale, &three).await.code, 200);
    })
    .await;
    let seen = seen.lock().unwrap();
    let paths: Vec<&Value> = seen.iter().map(|review| &review[0]).collect();
    assert_eq!(paths, ["/v1", "/plain"], "{seen:#?}");
    assert_eq!(seen[0][1]["apiVersion"], "ex.io/v1");
    assert_eq!(seen[0][1]["spec"], json!({"n": 1, "two": "x"}));
}
