//! Malformed and unusual request bodies, and which fault the server reports first (spec:
//! api-server §5.2).
use crate::server::{Server, refused};
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_registry::{FieldValidation, PatchType, WriteOptions};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/m";
const FOOS: &str = "/apis/ex.io/v1/namespaces/default/foos";
const FOO: &str = "/apis/ex.io/v1/namespaces/default/foos/f";

async fn server() -> Server {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }});
    let definition = json!({"metadata": {"name": "foos.ex.io"}, "spec": {
        "group": "ex.io",
        "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{
            "name": "v1", "served": true, "storage": true,
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            }},
            "schema": {"openAPIV3Schema": schema},
        }],
    }});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    server.create(definitions, definition).await.unwrap();
    let mut catalog = server.registry.catalog_changes();
    catalog.wait_for(|c| c.get("ex.io", "v1", "foos").is_some()).await.unwrap();
    server.create_text(MAPS, r#"{"metadata":{"name":"m"},"data":{"a":"b"}}"#).await.unwrap();
    server
        .create_text(FOOS, r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"f"}}"#)
        .await
        .unwrap();
    server
}

fn strict() -> WriteOptions {
    WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() }
}

/// The second one is decoded into what the first one has left.
#[tokio::test(start_paused = true)]
async fn members_that_are_there_twice_are_merged() {
    let server = server().await;
    let text = r#"{"metadata":{"name":"n","labels":{"a":"b"}},"metadata":{"labels":{"c":"d"}},
        "data":{"x":"1"},"data":{"y":"2"},"data":{"z":null},"immutable":true,"immutable":null}"#;
    let made = server.create_text(MAPS, text).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"a": "b", "c": "d"}));
    assert_eq!(made["data"], json!({"x": "1", "y": "2", "z": ""}));
    assert_eq!(made.get("immutable"), None);
    assert_eq!(
        refused(server.create_text(MAPS, r#"{"metadata":{"name":1,"name":"n"}}"#).await),
        "400 ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal \
         number into Go struct field ObjectMeta.metadata.name of type string"
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_type_is_named_in_any_case() {
    let server = server().await;
    assert_eq!(
        refused(server.create_text(MAPS, r#"{"Kind":"Pod","metadata":{"name":"n"}}"#).await),
        "400 Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to \
         (core.ConfigMap): unknown conversion"
    );
    assert_eq!(
        refused(server.create_text(MAPS, r#"{"ApiVersion":1,"metadata":{"name":"n"}}"#).await),
        "400 the object provided is unrecognized (must be of type ConfigMap): couldn't get \
         version/kind; json parse error: json: cannot unmarshal number into Go struct field \
         .apiVersion of type string ({\"ApiVersion\":1,\"metadata\":{\"n ...)"
    );
    assert_eq!(
        refused(server.create_text(MAPS, r#"{"apiVersion":"apps/__internal"}"#).await),
        "400 ConfigMap in version \"__internal\" cannot be handled as a ConfigMap: no kind \
         \"ConfigMap\" is registered for the internal version of group \"apps\" in scheme \
         \"pkg/api/legacyscheme/scheme.go:30\""
    );
    server.stop().await;
}

/// Go reads numbers where it has a place for them.
#[tokio::test(start_paused = true)]
async fn a_number_beyond_float_in_an_unknown_field_is_ignored() {
    let server = server().await;
    let text = r#"{"metadata":{"name":"n"},"x":1e400}"#;
    server.create_text(MAPS, text).await.unwrap();
    assert_eq!(server.warnings(), [r#"unknown field "x""#]);
    let custom = r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"g"},"x":1e400}"#;
    let error = refused(server.create_text(FOOS, custom).await);
    assert!(error.contains("cannot unmarshal number 1e400 into Go value of type float64"));
    server.stop().await;
}

/// The version of a custom resource is compared once it is decoded.
#[tokio::test(start_paused = true)]
async fn a_custom_resource_of_another_version_is_decoded_first() {
    let server = server().await;
    let other = json!({"apiVersion": "ex.io/v2", "kind": "Foo", "metadata": {"name": "g", "x": 1}});
    let mismatch = "400 the API version in the data (ex.io/v2) does not match the expected API \
                    version (ex.io/v1)";
    assert_eq!(refused(server.create(FOOS, other.clone()).await), mismatch);
    assert_eq!(server.warnings(), [r#"unknown field "metadata.x""#]);
    assert_eq!(
        refused(server.create_with(FOOS, other, &strict()).await),
        "400 Foo in version \"v2\" cannot be handled as a Foo: strict decoding error: unknown \
         field \"metadata.x\""
    );
    let null = r#"{"apiVersion":null,"kind":"Foo","metadata":{"name":"g"}}"#;
    assert_eq!(
        refused(server.create_text(FOOS, null).await),
        "400 Foo in version \"\" cannot be handled as a Foo: .apiVersion accessor error: <nil> is \
         of the type <nil>, expected string"
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_without_a_kind_is_named_by_how_strictly_it_is_read() {
    let server = server().await;
    let body = json!({"apiVersion": "ex.io/v1", "metadata": {"name": "g"}});
    let text = body.to_string();
    assert_eq!(
        refused(server.create(FOOS, body.clone()).await),
        format!(
            "400 the object provided is unrecognized (must be of type Foo): Object 'Kind' is \
             missing in '{text}' ({{\"apiVersion\":\"ex.io/v1\",\"meta ...)"
        )
    );
    let ignore =
        WriteOptions { field_validation: FieldValidation::Ignore, ..WriteOptions::default() };
    assert_eq!(
        refused(server.create_with(FOOS, body, &ignore).await),
        format!(
            "400 Foo in version \"v1\" cannot be handled as a Foo: Object 'Kind' is missing in \
             '{text}'"
        )
    );
    server.stop().await;
}

/// Validation looks at the kind of the object itself only.
#[tokio::test(start_paused = true)]
async fn a_status_may_name_another_kind() {
    let server = server().await;
    let stored = server.get(FOO).await.unwrap();
    let mut sent = stored.clone();
    sent["kind"] = "Bar".into();
    sent["status"] = json!({"replicas": 1});
    let written = server.update(&format!("{FOO}/status"), sent).await.unwrap();
    assert_eq!([&written["kind"], &written["status"]["replicas"]], [&json!("Foo"), &json!(1)]);
    let patch = json!({"apiVersion": "v1", "kind": "Bar", "status": {"replicas": 2}});
    let written = server.patch(&format!("{FOO}/status"), patch).await.unwrap();
    assert_eq!(
        [&written["apiVersion"], &written["status"]["replicas"]],
        [&json!("ex.io/v1"), &json!(2)]
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_scale_of_a_custom_resource_that_cannot_be_decoded_has_one_refusal() {
    let server = server().await;
    let scale = format!("{FOO}/scale");
    let refusal = "400 no kind is registered for the type v1.Scale in scheme \
                   \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"";
    for body in ["{", r#"{"kind":"Pod"}"#, r#"{"spec":[]}"#, r#"{"apiVersion":"apps/v1"}"#] {
        let sent = Bytes::copy_from_slice(body.as_bytes());
        assert_eq!(refused(server.update_bytes(&scale, sent).await), refusal, "{body}");
    }
    server.stop().await;
}

fn applied(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// They are looked for once the configuration is merged.
#[tokio::test(start_paused = true)]
async fn members_that_a_configuration_has_twice_are_told_last() {
    let server = server().await;
    let options = WriteOptions { field_manager: "m".to_owned(), ..strict() };
    let apply =
        async |text: &str| server.patch_bytes(MAP, PatchType::Apply, applied(text), &options).await;
    assert_eq!(
        refused(apply("apiVersion: v1\nkind: Pod\nkind: Other\n").await),
        "400 invalid object type: /v1, Kind=Other"
    );
    assert_eq!(
        refused(apply("apiVersion: a/b/c\nkind: ConfigMap\n").await),
        "400 invalid object type: /, Kind="
    );
    assert_eq!(
        refused(apply("apiVersion: apps/\nkind: ConfigMap\n").await),
        "400 invalid object type: apps/, Kind=ConfigMap"
    );
    assert_eq!(
        refused(apply("apiVersion: v1\nkind: ConfigMap\ndata: {x: y}\ndata: {x: z}\n").await),
        "400 error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
         line 4: key \"data\" already set in map"
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_subresource_of_what_is_not_there_is_not_found_before_the_body_is_read() {
    let server = server().await;
    let options = WriteOptions { field_manager: "m".to_owned(), ..WriteOptions::default() };
    for path in ["/api/v1/namespaces/default/pods/p/status", &format!("{FOOS}/g/scale")] {
        let error =
            refused(server.patch_bytes(path, PatchType::Apply, applied("{"), &options).await);
        assert!(error.starts_with("404 "), "{error}");
    }
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_never_has_no_stored_version() {
    let server = server().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.ex.io";
    let mut definition = server.get(path).await.unwrap();
    definition.as_object_mut().unwrap().remove("status");
    let written = server.update(&format!("{path}/status"), definition).await.unwrap();
    assert_eq!(written["status"]["storedVersions"], json!(["v1"]));
    let owners = written["metadata"]["managedFields"].as_array().unwrap();
    let owns = |owner: &&Value| owner["fieldsV1"].pointer("/f:status/f:storedVersions").is_some();
    assert!(owners.iter().find(owns).is_none(), "it is a default");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_scope_of_an_ingress_class_is_none_of_those_there_are() {
    let server = server().await;
    let class = json!({"metadata": {"name": "c"}, "spec": {
        "controller": "ex.io/c", "parameters": {"kind": "P", "name": "p", "scope": ""},
    }});
    let error = refused(server.create("/apis/networking.k8s.io/v1/ingressclasses", class).await);
    assert!(error.contains("spec.parameters.scope: Unsupported value: \"\""), "{error}");
    server.stop().await;
}
