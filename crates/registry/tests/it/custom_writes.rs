//! Writes of custom resources (spec: crd §4, §5, §7, §11).
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{FieldValidation, PatchType, WriteOptions};

const ALL: &str = "/apis/ex.io/v1/namespaces/default/foos";
const FOO: &str = "/apis/ex.io/v1/namespaces/default/foos/f";

fn definition() -> Value {
    json!({"metadata": {"name": "foos.ex.io"}, "spec": {
        "group": "ex.io",
        "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{
            "name": "v1", "served": true, "storage": true,
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            }},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "required": ["size"], "properties": {
                    "size": {"type": "integer", "minimum": 1},
                    "replicas": {"type": "integer"},
                    "color": {"type": "string", "default": "red"},
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                }},
                "status": {"type": "object", "properties": {
                    "replicas": {"type": "integer"},
                    "selector": {"type": "string"},
                }},
            }}},
        }],
    }})
}
fn foo(spec: Value) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": spec})
}
async fn server() -> Server {
    let server = Server::start().await;
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let created = server.create(all, definition()).await.unwrap();
    assert_eq!(
        created["status"],
        json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": ["v1"]})
    );
    let mut catalog = server.registry.catalog_changes();
    catalog.wait_for(|c| c.get("ex.io", "v1", "foos").is_some()).await.unwrap();
    server
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_custom_resource() {
    let server = server().await;
    let strict =
        WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
    assert_eq!(
        refused(server.create_with(ALL, foo(json!({"size": 1, "junk": 2})), &strict).await),
        r#"400 Foo in version "v1" cannot be handled as a Foo: strict decoding error: unknown field "spec.junk""#
    );
    let mut other = foo(json!({"size": 1}));
    other["kind"] = "Bar".into();
    assert_eq!(
        refused(server.create(ALL, other).await),
        r#"422 Bar.ex.io "f" is invalid: kind: Invalid value: "Bar": must be Foo"#
    );
    let bare = refused(server.create(ALL, json!({"metadata": {"name": "f"}})).await);
    assert!(bare.starts_with("400 ") && bare.contains("Object 'Kind' is missing in '"), "{bare}");
    for (version, shown) in [("", ""), ("/", ""), ("/v1", "v1"), ("ex.io/v9", "ex.io/v9")] {
        let mut other = foo(json!({"size": 1}));
        other["apiVersion"] = version.into();
        assert_eq!(
            refused(server.create(ALL, other).await),
            format!(
                "400 the API version in the data ({shown}) does not match the expected API version (ex.io/v1)"
            )
        );
    }
    for (spec, expected) in [
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": 1, "replicas": -1}),
            ".spec.replicas: Invalid value: -1: should be a non-negative integer",
        ),
    ] {
        assert_eq!(
            refused(server.create(ALL, foo(spec)).await),
            format!(r#"422 Foo.ex.io "f" is invalid: {expected}"#)
        );
    }
    let created = server.create(ALL, foo(json!({"size": 1}))).await.unwrap();
    for path in [FOO, &format!("{FOO}/status")] {
        assert_eq!(
            refused(server.update(path, foo(json!({"size": 2}))).await),
            r#"422 foos.ex.io "f" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#
        );
    }
    assert_eq!(
        refused(
            server
                .patch_with(FOO, PatchType::StrategicMerge, json!({}), &WriteOptions::default())
                .await
        ),
        "415 the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
    let mut updated = created;
    updated["spec"]["size"] = 2.into();
    assert_eq!(server.update(FOO, updated).await.unwrap()["spec"]["size"], 2);
}

#[tokio::test(start_paused = true)]
async fn applied_fields_are_removed_when_the_applier_drops_them() {
    let server = server().await;
    let full = foo(json!({"size": 1, "color": "blue"}));
    server.apply(FOO, "m", full).await.unwrap();
    let less = server.apply(FOO, "m", foo(json!({"size": 1}))).await.unwrap();
    assert_eq!(less["spec"], json!({"size": 1, "color": "red"}), "the default comes back");
    let again = server.apply(FOO, "m", foo(json!({"size": 1}))).await.unwrap();
    assert_eq!(again, less);
}

/// As a create does. A null that its type refuses is an error.
#[tokio::test(start_paused = true)]
async fn an_applied_null_of_any_type_is_none() {
    let server = server().await;
    let applied = server.apply(FOO, "m", foo(json!({"size": 1, "any": null}))).await.unwrap();
    assert_eq!(applied["spec"], json!({"size": 1, "color": "red"}));
    let owned = &applied["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert_eq!(*owned, json!({"f:any": {}, "f:size": {}}));
    let error = refused(server.apply(FOO, "m", foo(json!({"size": null}))).await);
    assert!(error.starts_with("422"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn unqualified_finalizers_are_warned_of_once() {
    let server = server().await;
    let mut sent = foo(json!({"size": 1}));
    sent["metadata"]["finalizers"] = json!(["x", "ex.io/f", "f.ex.io"]);
    server.create(ALL, sent).await.unwrap();
    assert_eq!(
        server.warnings(),
        [
            r#"metadata.finalizers: "f.ex.io": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"#,
            r#"metadata.finalizers: "x": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"#
        ]
    );
    server.patch(FOO, json!({"spec": {"size": 2}})).await.unwrap();
    assert_eq!(server.warnings(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_terminating_definition_accepts_no_new_objects() {
    let server = server().await;
    let mut held = foo(json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["ex.io/f"]);
    server.create(ALL, held).await.unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.ex.io";
    let marked = server.delete(path).await.unwrap().unwrap();
    assert_eq!(
        marked["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert!(
        marked["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["type"] == "Terminating" && c["reason"] == "InstanceDeletionPending")
    );
    let mut catalog = server.registry.catalog_changes();
    catalog
        .wait_for(|c| c.get("ex.io", "v1", "foos").is_some_and(|r| r.terminating))
        .await
        .unwrap();
    let mut new = foo(json!({"size": 1}));
    new["metadata"]["name"] = "new".into();
    assert_eq!(
        refused(server.create(ALL, new).await),
        r#"403 foos.ex.io "new" is forbidden: create not allowed while custom resource definition is terminating"#
    );
    server.patch(FOO, json!({"metadata": {"finalizers": null}})).await.unwrap();
    let gone = catalog.wait_for(|c| c.get("ex.io", "v1", "foos").is_none());
    let gone = tokio::time::timeout(std::time::Duration::from_secs(60), gone).await;
    assert!(gone.is_ok(), "still there: {:?}", server.get(path).await);
}

#[tokio::test(start_paused = true)]
async fn one_object_in_two_versions_of_its_definition() {
    let server = Server::start().await;
    let mut definition = definition();
    let mut v2 = definition["spec"]["versions"][0].clone();
    v2["name"] = "v2".into();
    v2["storage"] = false.into();
    v2["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] =
        json!({"type": "string"});
    definition["spec"]["versions"].as_array_mut().unwrap().push(v2);
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    server.create(all, definition).await.unwrap();
    let mut catalog = server.registry.catalog_changes();
    catalog.wait_for(|c| c.get("ex.io", "v2", "foos").is_some()).await.unwrap();
    let newer = FOO.replace("v1", "v2");
    let mut sent = foo(json!({"size": 1, "shape": "round"}));
    sent["apiVersion"] = "ex.io/v2".into();
    let created = server.create(&ALL.replace("v1", "v2"), sent.clone()).await.unwrap();
    assert_eq!(created["apiVersion"], "ex.io/v2");
    assert!(created["spec"].get("shape").is_none(), "what is stored is of v1, which lacks it");
    let older = server.get(FOO).await.unwrap();
    assert_eq!(older["apiVersion"], "ex.io/v1");
    assert_eq!(older["metadata"]["uid"], created["metadata"]["uid"]);
    let revision = server.revision().await;
    assert_eq!(server.update(&newer, created.clone()).await.unwrap(), created);
    assert_eq!(server.patch(&newer, json!({})).await.unwrap(), created);
    assert_eq!(server.revision().await, revision, "nothing is written");
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!(entry["apiVersion"], "ex.io/v2", "entries remember their version");
    assert_eq!(
        refused(server.create(ALL, sent).await),
        "400 the API version in the data (ex.io/v2) does not match the expected API version (ex.io/v1)"
    );
    let applied = json!({"apiVersion": "ex.io/v2", "kind": "Foo", "metadata": {"name": "f"}, "spec": {"size": 1}});
    let shared = server.apply(&newer, "m", applied).await.unwrap();
    assert_eq!(shared["spec"], created["spec"]);
}

#[tokio::test(start_paused = true)]
async fn faults_of_replicas_come_between_those_of_values_and_of_lists_and_rules() {
    let server = Server::start().await;
    let mut definition = definition();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["set"] = json!({
        "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"},
    });
    schema["x-kubernetes-validations"] = json!([{"rule": "false", "message": "never"}]);
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    server.create(all, definition).await.unwrap();
    let mut catalog = server.registry.catalog_changes();
    catalog.wait_for(|c| c.get("ex.io", "v1", "foos").is_some()).await.unwrap();
    let wrong = foo(json!({"size": 0, "replicas": -1, "set": ["a", "a"]}));
    assert_eq!(
        refused(server.create(ALL, wrong).await),
        concat!(
            r#"422 Foo.ex.io "f" is invalid: [spec.size: Invalid value: 0: "#,
            "spec.size in body should be greater than or equal to 1, ",
            ".spec.replicas: Invalid value: -1: should be a non-negative integer, ",
            r#"spec.set[1]: Duplicate value: "a", <nil>: Invalid value: never]"#,
        )
    );
}
