//! One object in several versions: reads and watches convert; writes keep the fields that the
//! stored version declares.
use crate::server::Server;
use futures::StreamExt as _;
use serde_json::{Value, json};
use setpoint_registry::{EventKind, ListOptions, Verb, WatchStream};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// `foos.ex.io`, stored in v1; v2 has `two` instead of `one`.
fn definition(v2_extra: &str) -> Value {
    let version = |name: &str, own: &str, extra: &str, is_storage: bool| {
        let text = json!({"type": "string"});
        let mut fields = json!({"both": text, own: text});
        if !extra.is_empty() {
            fields[extra] = text.clone();
        }
        json!({
            "name": name, "served": true, "storage": is_storage,
            // Equal lists would belong to all versions, which then must have the same schema.
            "selectableFields": [{"jsonPath": ".spec.both"}, {"jsonPath": format!(".spec.{own}")}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties":
                {"spec": {"type": "object", "properties": fields}}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [version("v1", "one", "", true), version("v2", "two", v2_extra, false)],
        },
    })
}
/// Waits until the catalog serves `foos` in both versions, with `field` in the schema of v2.
async fn served(server: &Server, field: &str) {
    let mut catalogs = server.registry.catalog_changes();
    let is_served = |catalog: &std::sync::Arc<setpoint_registry::Catalog>| {
        let row = catalog.get("ex.io", "v2", "foos");
        let has_field = |row: &&std::sync::Arc<setpoint_registry::Resource>| {
            let spec = row.schema.view().property("spec");
            spec.is_some_and(|spec| spec.property(field).is_some())
        };
        catalog.get("ex.io", "v1", "foos").is_some() && row.filter(has_field).is_some()
    };
    catalogs.wait_for(is_served).await.unwrap();
}
async fn watch(server: &Server, path: &str, options: ListOptions) -> WatchStream {
    server.registry.watch(&server.request(Verb::Watch, path), &options).await.unwrap()
}
async fn next(stream: &mut WatchStream) -> (EventKind, Value) {
    let event = stream.next().await.unwrap().unwrap();
    let mut object: Value = serde_json::from_slice(&event.object()).unwrap();
    assert_eq!(object["metadata"]["resourceVersion"], event.revision.to_string());
    (event.kind, json!([object["apiVersion"].take(), object["spec"].take()]))
}

#[tokio::test(start_paused = true)]
async fn every_version_reads_and_watches_one_object() {
    let server = Server::start().await;
    server.create(DEFINITIONS, definition("")).await.unwrap();
    served(&server, "two").await;
    let mut v1 = watch(&server, "/apis/ex.io/v1/foos", ListOptions::default()).await;
    let mut v2 = watch(&server, "/apis/ex.io/v2/foos", ListOptions::default()).await;
    let foo = json!({"apiVersion": "ex.io/v2", "kind": "Foo", "metadata": {"name": "a"},
        "spec": {"both": "b", "two": "t"}});
    let path = "/apis/ex.io/v2/namespaces/default/foos";
    server.create(path, foo).await.unwrap();
    // v1 is stored and has no field `two`: the write drops it.
    assert_eq!(next(&mut v1).await, (EventKind::Added, json!(["ex.io/v1", {"both": "b"}])));
    assert_eq!(next(&mut v2).await, (EventKind::Added, json!(["ex.io/v2", {"both": "b"}])));

    let object = "/apis/ex.io/v1/namespaces/default/foos/a";
    server.patch(object, json!({"spec": {"one": "1"}})).await.unwrap();
    let one = json!(["ex.io/v1", {"both": "b", "one": "1"}]);
    assert_eq!(next(&mut v1).await, (EventKind::Modified, one));
    assert_eq!(next(&mut v2).await, (EventKind::Modified, json!(["ex.io/v2", {"both": "b"}])));
    let found = server.get("/apis/ex.io/v2/namespaces/default/foos/a").await.unwrap();
    assert_eq!((&found["apiVersion"], &found["spec"]), (&json!("ex.io/v2"), &json!({"both": "b"})));

    let fields = setpoint_object::field_selector::FieldSelector::parse("spec.both=c").unwrap();
    let options = ListOptions { fields, ..ListOptions::default() };
    let mut selected = watch(&server, "/apis/ex.io/v2/foos", options).await;
    server.patch(object, json!({"spec": {"both": "c"}})).await.unwrap();
    server.delete(object).await.unwrap();
    assert_eq!(next(&mut selected).await, (EventKind::Added, json!(["ex.io/v2", {"both": "c"}])));
    assert_eq!(next(&mut selected).await, (EventKind::Deleted, json!(["ex.io/v2", {"both": "c"}])));
    server.stop().await;
}

/// As a read from etcd fills them in, whichever version has written the object.
#[tokio::test(start_paused = true)]
async fn defaults_of_the_storage_version_are_stored() {
    let server = Server::start().await;
    let mut definition = definition("");
    let spec = "/schema/openAPIV3Schema/properties/spec/properties";
    for (version, own, default) in [(0, "one", "1"), (1, "two", "2")] {
        let fields = definition["spec"]["versions"][version].pointer_mut(spec).unwrap();
        fields[own]["default"] = default.into();
    }
    server.create(DEFINITIONS, definition).await.unwrap();
    served(&server, "two").await;
    let foo =
        json!({"apiVersion": "ex.io/v2", "kind": "Foo", "metadata": {"name": "a"}, "spec": {}});
    let created = server.create("/apis/ex.io/v2/namespaces/default/foos", foo).await.unwrap();
    assert_eq!(created["spec"], json!({}));
    let stored = server.get("/apis/ex.io/v1/namespaces/default/foos/a").await.unwrap();
    assert_eq!(stored["spec"], json!({"one": "1"}));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_schema_ends_watches_and_lists_follow_the_new_one() {
    let server = Server::start().await;
    server.create(DEFINITIONS, definition("")).await.unwrap();
    served(&server, "two").await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"},
        "spec": {"both": "b", "one": "1"}});
    server.create("/apis/ex.io/v1/namespaces/default/foos", foo).await.unwrap();
    let mut before = watch(&server, "/apis/ex.io/v2/foos", ListOptions::default()).await;
    assert_eq!(next(&mut before).await.1, json!(["ex.io/v2", {"both": "b"}]));
    let spec = definition("one")["spec"].take();
    server.patch(&format!("{DEFINITIONS}/foos.ex.io"), json!({"spec": spec})).await.unwrap();
    served(&server, "one").await;
    assert!(before.next().await.is_none());
    let mut after = watch(&server, "/apis/ex.io/v2/foos", ListOptions::default()).await;
    assert_eq!(next(&mut after).await.1, json!(["ex.io/v2", {"both": "b", "one": "1"}]));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn watchers_of_a_removed_kind_see_the_deletion_of_its_objects() {
    let server = Server::start().await;
    server.create(DEFINITIONS, definition("")).await.unwrap();
    served(&server, "two").await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}});
    server.create("/apis/ex.io/v1/namespaces/default/foos", foo).await.unwrap();
    let mut stream = watch(&server, "/apis/ex.io/v1/foos", ListOptions::default()).await;
    assert_eq!(next(&mut stream).await.0, EventKind::Added);
    server.delete(&format!("{DEFINITIONS}/foos.ex.io")).await.unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = stream.next().await {
        kinds.push(event.unwrap().kind);
    }
    assert_eq!(kinds.last(), Some(&EventKind::Deleted));
    server.stop().await;
}

/// The owners of an object: manager, version and fields.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let text = |entry: &Value| {
        let [manager, version] =
            ["manager", "apiVersion"].map(|name| entry[name].as_str().unwrap());
        format!("{manager} {version} {}", entry["fieldsV1"]["f:spec"])
    };
    entries.iter().map(text).collect()
}

/// As on kube-apiserver. It was compared in the version of the request, where the fields of another
/// version did not conflict, and were mistaken for atomic ones.
#[tokio::test(start_paused = true)]
async fn owners_of_another_version_keep_their_fields_and_conflict_about_them() {
    let server = Server::start().await;
    let path = |version: &str| {
        format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/a")
    };
    let (v1, v2) = (path("v1"), path("v2"));
    let config = |version: &str, member: &str, value: Value| {
        json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, member: value,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
        })
    };
    server
        .apply(&v1, "a", config("v1", "targetCPUUtilizationPercentage", json!(50)))
        .await
        .unwrap();
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 60}}}]);
    let conflict = server.apply(&v2, "b", config("v2", "metrics", metrics)).await.unwrap_err();
    assert_eq!(
        conflict.0.message,
        r#"Apply failed with 1 conflict: conflict with "a": .spec.targetCPUUtilizationPercentage"#
    );
    // The target of a scale is atomic in v1.
    let reference = r#""f:scaleTargetRef":{"f:apiVersion":{},"f:kind":{},"f:name":{}}"#;
    server.apply(&v2, "b", config("v2", "minReplicas", json!(1))).await.unwrap();
    let patched = server.patch(&v1, json!({"spec": {"minReplicas": 2}})).await.unwrap();
    assert_eq!(
        owners(&patched),
        [
            &format!(r#"b autoscaling/v2 {{"f:maxReplicas":{{}},{reference}}}"#),
            r#"a autoscaling/v1 {"f:maxReplicas":{},"f:scaleTargetRef":{},"f:targetCPUUtilizationPercentage":{}}"#,
            r#"test autoscaling/v1 {"f:minReplicas":{}}"#,
        ]
    );
    server.stop().await;
}

/// What an applier owned in `autoscaling/v1` has other names in `autoscaling/v2`.
#[tokio::test(start_paused = true)]
async fn an_applier_that_moves_to_another_built_in_version_removes_what_it_drops() {
    let server = Server::start().await;
    let path = |version: &str| {
        format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/a")
    };
    let config = |version: &str, members: Value| {
        let mut config = json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"}, "spec": members,
        });
        config["spec"]["maxReplicas"] = 3.into();
        config["spec"]["scaleTargetRef"] =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        config
    };
    let old = config("v1", json!({"targetCPUUtilizationPercentage": 50, "minReplicas": 2}));
    server.apply(&path("v1"), "a", old).await.unwrap();
    let metrics = json!([{"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "Utilization", "averageUtilization": 60}}}]);
    let new = config("v2", json!({"metrics": metrics}));
    let moved = server.apply(&path("v2"), "a", new).await.unwrap();
    assert_eq!(moved["spec"]["metrics"], metrics, "without that of the processor time");
    assert_eq!(moved["spec"]["minReplicas"], 1, "the default");
    server.stop().await;
}

/// Waits until the catalog has these versions of `foos`.
async fn has_versions(server: &Server, served: &[&str], unserved: &[&str]) {
    let mut catalogs = server.registry.catalog_changes();
    let has = |catalog: &std::sync::Arc<setpoint_registry::Catalog>| {
        catalog
            .get("ex.io", "v2", "foos")
            .is_some_and(|row| *row.versions == *served && *row.unserved_versions == *unserved)
    };
    catalogs.wait_for(has).await.unwrap();
}

/// As on kube-apiserver. Entries of a version that is not served were dropped: its owners lost
/// their fields without a conflict, and its fields with the next apply of another.
#[tokio::test(start_paused = true)]
async fn owners_of_a_version_that_is_not_served_keep_their_fields_until_it_is_removed() {
    let server = Server::start().await;
    server.create(DEFINITIONS, definition("")).await.unwrap();
    served(&server, "two").await;
    let config = |version: &str, spec: Value| {
        json!({"apiVersion": format!("ex.io/{version}"), "kind": "Foo",
            "metadata": {"name": "a"}, "spec": spec})
    };
    let [v1, v2] = ["v1", "v2"].map(|v| format!("/apis/ex.io/{v}/namespaces/default/foos/a"));
    server.apply(&v1, "a", config("v1", json!({"both": "1"}))).await.unwrap();

    let path = format!("{DEFINITIONS}/foos.ex.io");
    let mut spec = definition("")["spec"].take();
    spec["versions"][0]["served"] = false.into();
    spec["versions"][0]["storage"] = false.into();
    spec["versions"][1]["storage"] = true.into();
    server.patch(&path, json!({"spec": spec})).await.unwrap();
    has_versions(&server, &["ex.io/v2"], &["ex.io/v1"]).await;
    let conflict = server.apply(&v2, "b", config("v2", json!({"both": "2"}))).await.unwrap_err();
    assert_eq!(
        conflict.0.message,
        r#"Apply failed with 1 conflict: conflict with "a": .spec.both"#
    );
    let applied = server.apply(&v2, "b", config("v2", json!({"two": "2"}))).await.unwrap();
    let both = [r#"a ex.io/v1 {"f:both":{}}"#, r#"b ex.io/v2 {"f:two":{}}"#];
    assert_eq!(owners(&applied), both);
    let patched = server.patch(&v2, json!({"metadata": {"labels": {"l": "1"}}})).await.unwrap();
    assert_eq!(owners(&patched)[..2], both);

    spec["versions"].as_array_mut().unwrap().remove(0);
    let status = json!({"status": {"storedVersions": ["v2"]}});
    server.patch(&format!("{path}/status"), status).await.unwrap();
    server.patch(&path, json!({"spec": spec})).await.unwrap();
    has_versions(&server, &["ex.io/v2"], &[]).await;
    let refused = server.apply(&v2, "b", config("v2", json!({"two": "3"}))).await.unwrap_err();
    assert_eq!(
        (refused.0.code, &*refused.0.message),
        (Some(500), "request to convert CR to an invalid group/version: ex.io/v1")
    );
    let patched = server.patch(&v2, json!({"metadata": {"labels": {"l": "2"}}})).await.unwrap();
    assert_eq!(patched["metadata"].get("managedFields"), None);
    server.stop().await;
}

/// As on kube-apiserver. The path of the request's version was used for all of them.
#[tokio::test(start_paused = true)]
async fn owners_lose_the_replicas_that_a_scale_has_in_their_version() {
    let server = Server::start().await;
    let mut definition = definition("");
    for (version, path) in [(0, ".spec.replicas"), (1, ".spec.count")] {
        let version = &mut definition["spec"]["versions"][version];
        let spec = "/schema/openAPIV3Schema/properties/spec/properties";
        let fields = version.pointer_mut(spec).unwrap();
        fields["replicas"] = json!({"type": "integer"});
        fields["count"] = json!({"type": "integer"});
        version["subresources"]["scale"] =
            json!({"specReplicasPath": path, "statusReplicasPath": ".status.replicas"});
    }
    let mut third = definition["spec"]["versions"][0].clone();
    third["name"] = "v3".into();
    third["storage"] = false.into();
    third.as_object_mut().unwrap().remove("subresources");
    definition["spec"]["versions"].as_array_mut().unwrap().push(third);
    server.create(DEFINITIONS, definition).await.unwrap();
    has_versions(&server, &["ex.io/v1", "ex.io/v2", "ex.io/v3"], &[]).await;
    let mut found = Vec::new();
    for version in ["v1", "v2", "v3"] {
        let path = |served: &str| format!("/apis/ex.io/{served}/namespaces/default/foos/{version}");
        let config = json!({"apiVersion": format!("ex.io/{version}"), "kind": "Foo",
            "metadata": {"name": version}, "spec": {"replicas": 1, "count": 1}});
        server.apply(&path(version), "a", config).await.unwrap();
        let object = path("v1");
        server.patch(&format!("{object}/scale"), json!({"spec": {"replicas": 3}})).await.unwrap();
        found.extend(owners(&server.get(&object).await.unwrap()));
    }
    assert_eq!(
        found,
        [
            r#"a ex.io/v1 {"f:count":{}}"#,
            r#"test ex.io/v1 {"f:replicas":{}}"#,
            r#"a ex.io/v2 {"f:replicas":{}}"#,
            r#"test ex.io/v1 {"f:replicas":{}}"#,
            // This version has no Scale, and so nobody who is tracked.
            r#"a ex.io/v3 {"f:count":{},"f:replicas":{}}"#,
        ]
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_null_is_not_shown_in_a_version_that_does_not_allow_it() {
    let server = Server::start().await;
    let mut definition = definition("");
    let spec = "/schema/openAPIV3Schema/properties/spec/properties";
    let fields = definition["spec"]["versions"][0].pointer_mut(spec).unwrap();
    fields["both"]["nullable"] = true.into();
    server.create(DEFINITIONS, definition).await.unwrap();
    served(&server, "two").await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"},
        "spec": {"both": null, "one": "1"}});
    let created = server.create("/apis/ex.io/v1/namespaces/default/foos", foo).await.unwrap();
    assert_eq!(created["spec"], json!({"both": null, "one": "1"}));
    let shown = server.get("/apis/ex.io/v2/namespaces/default/foos/a").await.unwrap();
    assert_eq!(shown["spec"], json!({}));
    server.stop().await;
}
