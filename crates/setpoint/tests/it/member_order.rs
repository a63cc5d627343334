//! The order of an object's members in answers (spec: api-server §5): that of the Go struct for
//! built-in types, by name for custom resources.

use crate::admission::{Asker, with_admission};
use serde_json::json;
use setpoint::registry::AdmissionOptions;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Asserts that the names, with their quotes, follow each other in a text.
fn assert_order(text: &str, names: &[&str]) {
    let mut rest = text;
    for name in names {
        let quoted = format!("\"{name}\":");
        let at = rest.find(&quoted).unwrap_or_else(|| panic!("{name} is missing or early: {text}"));
        rest = &rest[at + quoted.len()..];
    }
}

async fn with_objects(test: impl AsyncFnOnce(Asker)) {
    with_admission(AdmissionOptions::default(), async |admin| {
        let map = json!({"data": {"b": "1", "a": "2"}, "metadata": {"labels": {"z": "1", "a": "2"}, "name": "m"},
            "apiVersion": "v1", "kind": "ConfigMap"});
        admin.create(&format!("{MAPS}?fieldManager=f"), &map).await;
        test(admin).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn built_in_objects_have_the_order_of_their_structs() {
    with_objects(async |admin| {
        let members = [
            "kind", "apiVersion", "metadata", "name", "namespace", "uid", "resourceVersion",
            "creationTimestamp", "labels", "a", "z", "managedFields", "manager", "operation",
            "apiVersion", "time", "fieldsType", "fieldsV1", "f:data", "f:metadata", "data", "a", "b",
        ];
        assert_order(&admin.text(&format!("{MAPS}/m")).await, &members);
        // Items of a list have no type.
        let list = admin.text(MAPS).await;
        assert_order(&list, &[&["kind", "apiVersion", "metadata", "items"], &members[2..]].concat());
        let watch = format!("{MAPS}?watch=true&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dm");
        assert_order(&admin.text(&watch).await, &[&["type", "object"], &members[..]].concat());
        // What the server itself creates at its start, too.
        let schema = admin.text("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt").await;
        assert_order(&schema, &["kind", "apiVersion", "metadata", "name", "resourceVersion", "spec", "priorityLevelConfiguration", "matchingPrecedence", "rules"]);
        // And another version than the stored one.
        let scaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "minReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}});
        admin.create("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", &scaler).await;
        for version in ["v1", "v2"] {
            let path = format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/h");
            let text = admin.text(&path).await;
            let spec = text.rsplit_once("\"spec\":").unwrap().1;
            assert_order(spec, &["scaleTargetRef", "kind", "name", "apiVersion", "minReplicas", "maxReplicas", "status"]);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn custom_objects_are_sorted() {
    with_admission(AdmissionOptions::default(), async |admin| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "nets.ex.io"},
            "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"kind": "Net", "plural": "nets"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        admin.create(definitions, &definition).await;
        let nets = "/apis/ex.io/v1/namespaces/default/nets";
        let net = json!({"kind": "Net", "apiVersion": "ex.io/v1", "spec": {"b": 1, "a": 2}, "metadata": {"name": "n"}});
        let mut created = admin.post(nets, &net).await;
        while created.code == 404 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            created = admin.post(nets, &net).await;
        }
        let text = admin.text(&format!("{nets}/n")).await;
        assert_order(&text, &["apiVersion", "kind", "metadata", "creationTimestamp", "name", "namespace", "resourceVersion", "uid", "spec", "a", "b"]);
        let definition = admin.text(&format!("{definitions}/nets.ex.io")).await;
        let spec = definition.rsplit_once("\"spec\":").unwrap().1;
        assert_order(spec, &["group", "names", "plural", "singular", "kind", "listKind", "scope", "versions", "name", "served", "storage", "schema"]);
    })
    .await;
}
