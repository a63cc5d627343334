//! Server-side apply through the write path (spec: patch §5).
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{PatchType, WriteOptions};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

#[tokio::test(start_paused = true)]
async fn an_apply_creates_then_does_nothing_then_removes_what_it_drops() {
    let server = Server::start().await;
    let created = server.apply(MAP, "m", config(json!({"k": "v", "l": "w"}))).await.unwrap();
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("m"), &json!("Apply")));
    assert_eq!(entry["fieldsV1"], json!({"f:data": {"f:k": {}, "f:l": {}}}));
    assert!(created["metadata"]["uid"].is_string());
    tokio::time::advance(Duration::from_secs(5)).await;
    let again = server.apply(MAP, "m", config(json!({"k": "v", "l": "w"}))).await.unwrap();
    assert_eq!(again, created, "nothing changes, the times neither");
    let less = server.apply(MAP, "m", config(json!({"k": "v"}))).await.unwrap();
    assert_eq!(less["data"], json!({"k": "v"}));
    assert_eq!(less["metadata"]["managedFields"][0]["time"], "2026-11-20T07:00:05Z");
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_reported_and_can_be_forced() {
    let server = Server::start().await;
    server.create(MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.unwrap();
    let error = server.apply(MAP, "m", config(json!({"k": "w"}))).await.unwrap_err();
    assert_eq!(
        error.0.message,
        r#"Apply failed with 1 conflict: conflict with "test" using v1: .data.k"#
    );
    assert_eq!(error.0.details.unwrap().causes[0].field, ".data.k");
    let options = WriteOptions {
        field_manager: "m".to_owned(),
        force: Some(true),
        ..WriteOptions::default()
    };
    let forced = server
        .patch_with(MAP, PatchType::Apply, config(json!({"k": "w"})), &options)
        .await
        .unwrap();
    assert_eq!(forced["data"], json!({"k": "w"}));
    let entries = forced["metadata"]["managedFields"].as_array().unwrap();
    let loser = entries.iter().find(|e| e["manager"] == "test").unwrap();
    assert_eq!(loser["fieldsV1"], json!({"f:data": {}}), "only the map it made is left");
}

#[tokio::test(start_paused = true)]
async fn refusals_of_an_apply() {
    let server = Server::start().await;
    let with = |meta: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta});
    for (sent, expected) in [
        (
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}),
            "400 invalid object type: /v1, Kind=Pod",
        ),
        (json!({}), "400 invalid object type: /, Kind="),
        (with(json!({"name": "a", "managedFields": []})), "400 metadata.managedFields must be nil"),
        (
            with(json!({"name": "b"})),
            "400 the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            with(json!({"name": "a", "uid": "u"})),
            r#"409 Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object specified uid u, and no existing object was found"#,
        ),
        (
            json!([]),
            "400 error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ] {
        assert_eq!(refused(server.apply(MAP, "m", sent.clone()).await), expected, "{sent}");
    }
    assert_eq!(
        refused(server.apply(MAP, "", config(json!({}))).await),
        r#"422 PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#
    );
    let mut unknown = config(json!({}));
    unknown["foo"] = 1.into();
    let unknown = refused(server.apply(MAP, "m", unknown).await);
    assert_eq!(
        unknown,
        "500 failed to create typed patch object (/a; /v1, Kind=ConfigMap): .foo: field not declared in schema"
    );
}

/// What the Go type of a built-in kind cannot hold is an error of the server there.
#[tokio::test(start_paused = true)]
async fn an_applied_text_that_is_no_time_is_an_error_of_conversion() {
    let server = Server::start().await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "a"}, "spec": {"renewTime": "2020"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    assert_eq!(
        refused(server.apply(path, "m", lease).await),
        r#"500 failed to convert new object (/a; coordination.k8s.io/v1, Kind=Lease) to proper version: unable to convert unstructured object to coordination.k8s.io/v1, Kind=Lease: parsing time "2020" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "" as "-""#
    );
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "!!"}});
    assert_eq!(
        refused(server.apply("/api/v1/namespaces/default/secrets/a", "m", secret).await),
        "500 failed to convert new object (/a; /v1, Kind=Secret) to proper version: unable to convert unstructured object to /v1, Kind=Secret: error decoding from json: illegal base64 data at input byte 0"
    );
}

#[tokio::test(start_paused = true)]
async fn status_is_applied_through_its_endpoint() {
    let server = Server::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let path = &format!("{deployments}/d");
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    }});
    let created = server.apply(path, "m", config.clone()).await.unwrap();
    assert_eq!(created["spec"]["replicas"], 1, "defaults come as on create");
    assert_eq!(server.apply(path, "m", config).await.unwrap(), created);
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {"replicas": 1}});
    let missing = server
        .apply(
            &format!("{deployments}/e/status"),
            "c",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "e"}}),
        )
        .await;
    assert_eq!(refused(missing), r#"404 deployments.apps "e" not found"#);
    let applied = server.apply(&format!("{path}/status"), "c", status).await.unwrap();
    assert_eq!(applied["status"]["replicas"], 1);
    assert_eq!(applied["spec"], created["spec"]);
    let entry = applied["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["manager"] == "c")
        .unwrap();
    assert_eq!(entry["subresource"], "status");
    assert_eq!(applied["metadata"]["generation"], 1);
}

/// The answers are those of kube-apiserver 1.36.2. Controllers of controller-runtime apply a Scale
/// without metadata.
#[tokio::test(start_paused = true)]
async fn scale_is_applied_without_names_and_its_metadata_is_checked() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    }});
    let created = server.create(path, deployment).await.unwrap();
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let scale = format!("{path}/d/scale");
    let config = |metadata: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 3}});
    let unnamed = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}});
    let force =
        WriteOptions { field_manager: "m".into(), force: Some(true), ..WriteOptions::default() };
    let apply = async |config| server.patch_with(&scale, PatchType::Apply, config, &force).await;
    let applied = apply(unnamed).await.unwrap();
    assert_eq!(
        (&applied["metadata"]["name"], &applied["spec"]["replicas"]),
        (&"d".into(), &2.into())
    );
    apply(config(json!({"labels": {"q": "r"}}))).await.unwrap();
    assert_eq!(server.get(&format!("{path}/d")).await.unwrap()["spec"]["replicas"], 3);
    for (config, expected) in [
        (config(json!({"name": "x"})), "400 the name of the object (x) does not match the name on the URL (d)".to_owned()),
        (config(json!({"namespace": "other"})), "400 the namespace of the provided object does not match the namespace sent on the request".to_owned()),
        (config(json!({"uid": "u"})), format!(r#"409 Operation cannot be fulfilled on deployments/scale.apps "d": Precondition failed: UID in precondition: u, UID in object meta: {uid}"#)),
        (config(json!({"resourceVersion": "1"})), r#"409 Operation cannot be fulfilled on deployments.apps "d": the object has been modified; please apply your changes to the latest version and try again"#.to_owned()),
        (config(json!({"managedFields": []})), "400 metadata.managedFields must be nil".to_owned()),
        (json!({"kind": "Scale", "spec": {"replicas": 4}}), "400 invalid object type: /, Kind=Scale".to_owned()),
        (json!({"apiVersion": "apps/v1", "kind": "Deployment"}), "400 invalid object type: apps/v1, Kind=Deployment".to_owned()),
    ] {
        assert_eq!(refused(apply(config.clone()).await), expected, "{config}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_warns_of_the_template_as_its_parent_does() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let ports = json!([{"containerPort": 53, "hostIP": "127.0.0.1"}]);
    let set = json!({"metadata": {"name": "s"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x", "ports": ports}]}},
    }});
    server.create(path, set).await.unwrap();
    let warning = "spec.template.spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:53 Protocol:TCP HostIP:127.0.0.1}";
    assert_eq!(server.warnings(), [warning]);
    let scale = format!("{path}/s/scale");
    server.patch(&scale, json!({"spec": {"replicas": 2}})).await.unwrap();
    assert_eq!(server.warnings(), [warning]);
    server.patch(&scale, json!({"spec": {"replicas": 2}})).await.unwrap();
    assert_eq!(server.warnings(), [""; 0], "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn only_an_apply_that_creates_needs_the_name_in_its_body() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    assert_eq!(
        refused(server.apply(path, "m", config(json!({"k": "1"}))).await),
        "400 the name of the object (a based on URL) was undeterminable: name must be provided"
    );
    let mut named = config(json!({"k": "1"}));
    named["metadata"] = json!({"name": "a"});
    server.apply(path, "m", named).await.unwrap();
    let applied = server.apply(path, "m", config(json!({"k": "2"}))).await.unwrap();
    assert_eq!((&applied["metadata"]["name"], &applied["data"]["k"]), (&"a".into(), &"2".into()));
    let mut other = config(json!({}));
    other["metadata"] = json!({"name": "b"});
    assert_eq!(
        refused(server.apply(path, "m", other).await),
        "400 the name of the object (b) does not match the name on the URL (a)"
    );
}

#[tokio::test(start_paused = true)]
async fn create_ignores_a_resource_version_that_is_not_a_number() {
    let server = Server::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let object = |name: &str, version: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "resourceVersion": version}})
    };
    server.create(maps, object("a", "abc")).await.unwrap();
    server.create(maps, object("b", "0")).await.unwrap();
    assert_eq!(
        refused(server.create(maps, object("c", "7")).await),
        "500 resourceVersion should not be set on objects to be created"
    );
}

/// The namespace of a configuration is compared with the URL after the merge, as there.
#[tokio::test(start_paused = true)]
async fn a_conflict_is_reported_before_a_wrong_namespace() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let config = |namespace: &str, value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": namespace}, "data": {"k": value},
        })
    };
    server.apply(path, "one", config("default", "1")).await.unwrap();
    assert_eq!(
        refused(server.apply(path, "two", config("other", "2")).await),
        r#"409 Apply failed with 1 conflict: conflict with "one": .data.k"#
    );
    assert_eq!(
        refused(server.apply(path, "two", config("other", "1")).await),
        "400 the namespace of the provided object does not match the namespace sent on the request"
    );
}
