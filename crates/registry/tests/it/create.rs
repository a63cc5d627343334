//! POST (spec: api-server §5.2, §5.3, §11, §12).
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{FieldValidation, PatchType, WriteOptions};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn an_object_gets_its_system_metadata() {
    let server = Server::start().await;
    let sent = json!({"metadata": {
        "name": "a", "uid": "u", "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x", "generation": 5,
    }, "data": {"k": "v"}});
    let stored = server.create(CONFIG_MAPS, sent).await.unwrap();
    let meta = &stored["metadata"];
    assert_eq!(stored["kind"], "ConfigMap");
    assert_eq!(stored["apiVersion"], "v1");
    assert_eq!(meta["namespace"], "default");
    assert_eq!(meta["creationTimestamp"], "2026-11-20T07:00:00Z");
    assert_eq!(meta["generation"], 5, "kinds that do not track it keep what was sent");
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert_eq!(meta["resourceVersion"], server.revision().await.to_string());
    assert!(meta.get("deletionTimestamp").is_none() && meta.get("selfLink").is_none());
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/a")).await.unwrap(), stored);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn generated_names_are_unique() {
    let server = Server::start().await;
    let base = "x".repeat(60);
    let sent = json!({"metadata": {"generateName": base}});
    let first = server.create(CONFIG_MAPS, sent.clone()).await.unwrap();
    let second = server.create(CONFIG_MAPS, sent).await.unwrap();
    let name = first["metadata"]["name"].as_str().unwrap();
    assert_eq!(name.len(), 63);
    assert!(name[58..].bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)), "{name}");
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
    assert_eq!(first["metadata"]["generateName"], base);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_create() {
    let server = Server::start().await;
    server.create(CONFIG_MAPS, json!({"metadata": {"name": "a"}})).await.unwrap();
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    for (path, sent, expected) in [
        (CONFIG_MAPS, json!({"metadata": {"name": "a"}}), r#"409 configmaps "a" already exists"#.to_owned()),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "a", "generateName": "b-"}}),
            r#"409 configmaps "a" already exists, the server was not able to generate a unique name for the object"#.to_owned(),
        ),
        (CONFIG_MAPS, json!({}), r#"422 ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required"#.to_owned()),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "A"}}),
            format!(r#"422 ConfigMap "A" is invalid: metadata.name: Invalid value: "A": {subdomain}"#),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b", "namespace": "other"}}),
            "400 the namespace of the provided object does not match the namespace sent on the request".to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b", "resourceVersion": "5"}}),
            "500 resourceVersion should not be set on objects to be created".to_owned(),
        ),
        (
            "/api/v1/namespaces/nowhere/configmaps",
            json!({"metadata": {"name": "b"}}),
            r#"404 namespaces "nowhere" not found"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b"}, "data": {"k": 1}}),
            r#"400 ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "b"}}),
            r#"400 Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "b"}}),
            r#"400 Deployment in version "v1" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"kind": "ConfigMapList", "apiVersion": "v1"}),
            r#"400 ConfigMapList in version "v1" cannot be handled as a ConfigMap: converting (v1.ConfigMapList) to (core.ConfigMap): unknown conversion"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"kind": "Foo", "apiVersion": "ex.io/v1"}),
            r#"400 Foo in version "v1" cannot be handled as a ConfigMap: no kind "Foo" is registered for version "ex.io/v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#.to_owned(),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"apiVersion": "apps/v1beta1", "metadata": {"name": "d"}}),
            "400 the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)".to_owned(),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({"kind": "ConfigMap", "apiVersion": "v1"}),
            r#"400 ConfigMap in version "v1" cannot be handled as a CustomResourceDefinition: no kind "ConfigMap" is registered for version "v1" in scheme "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55""#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"apiVersion": "a/b/c", "kind": "ConfigMap"}),
            r#"400 the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c ({"apiVersion":"a/b/c","kind":" ...)"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "b"}}),
            r#"400 ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2" in scheme "pkg/api/legacyscheme/scheme.go:30""#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}}),
            r#"422 ConfigMap "b" is invalid: metadata.ownerReferences.uid: Invalid value: "": must not be empty"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b", "ownerReferences": [{"apiVersion": "a.io/v1/v2", "kind": "A", "name": "p", "uid": "u"}]}}),
            r#"422 ConfigMap "b" is invalid: metadata.ownerReferences.apiVersion: Invalid value: "a.io/v1/v2": version must not be empty"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b", "finalizers": ["x"]}}),
            r#"422 ConfigMap "b" is invalid: metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified"#.to_owned(),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b", "annotations": {"a": "x".repeat(262_144)}}}),
            r#"422 ConfigMap "b" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes"#.to_owned(),
        ),
    ] {
        assert_eq!(refused(server.create(path, sent.clone()).await), expected, "{sent}");
    }
    let long = server.create(CONFIG_MAPS, json!({"metadata": {"name": "a".repeat(254)}})).await;
    assert!(refused(long).ends_with(": must be no more than 253 characters"));
    let base = server.create(CONFIG_MAPS, json!({"metadata": {"generateName": "Ab-"}})).await;
    let fields: Vec<String> =
        base.unwrap_err().0.details.unwrap().causes.into_iter().map(|c| c.field).collect();
    assert_eq!(fields, ["metadata.generateName", "metadata.name"]);
    // The name of an API is no prefix, also where it is to be one.
    let sent = json!({"metadata": {"generateName": "."}, "spec": {"group": "a.b", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}});
    let api = server.create("/apis/apiregistration.k8s.io/v1/apiservices", sent).await;
    let causes = api.unwrap_err().0.details.unwrap().causes;
    let fields: Vec<&str> = causes.iter().map(|cause| &*cause.field).collect();
    assert_eq!(fields, ["metadata.generateName", "metadata.name"]);
    assert_eq!(causes[0].message, "Invalid value: \".\": may not be '.'");
    let broken = server.create_text(CONFIG_MAPS, "{").await;
    assert_eq!(
        refused(broken),
        "400 the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({)"
    );
    for nothing in ["null", " null "] {
        assert_eq!(
            refused(server.create_text(CONFIG_MAPS, nothing).await),
            r#"422 ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required"#
        );
    }
    let empty = server.create_text(CONFIG_MAPS, "").await;
    assert!(refused(empty).ends_with("unexpected end of JSON input (<empty>)"));
}

#[tokio::test(start_paused = true)]
async fn repeated_owners_are_removed_and_only_one_may_be_the_controller() {
    let server = Server::start().await;
    let owner = |kind: &str, controller: bool| json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": controller});
    let sent = json!({"metadata": {"name": "a", "ownerReferences": [owner("A", false), owner("A", false), owner("A", false)]}});
    let stored = server.create(CONFIG_MAPS, sent).await.unwrap();
    assert_eq!(stored["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert_eq!(
        server.warnings(),
        [
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u, u"
        ]
    );
    let sent =
        json!({"metadata": {"name": "b", "ownerReferences": [owner("A", true), owner("B", true)]}});
    let error = refused(server.create(CONFIG_MAPS, sent).await);
    assert!(error.ends_with(r#"Only one reference can have Controller set to true. Found "true" in references for A/o and B/o"#), "{error}");
}

/// As in the reference, which removes what a patch repeats after it has noted who owns it.
#[tokio::test(start_paused = true)]
async fn a_patch_that_repeats_an_owner_takes_it_over() {
    let server = Server::start().await;
    let owner = json!({"apiVersion": "v1", "kind": "A", "name": "o", "uid": "u"});
    let by = |name: &str| WriteOptions { field_manager: name.into(), ..WriteOptions::default() };
    let sent = json!({"metadata": {"name": "a", "ownerReferences": [owner]}});
    server.create_with(CONFIG_MAPS, sent, &by("ann")).await.unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    let patch = json!({"metadata": {"ownerReferences": [owner, owner]}});
    let patched = server.patch_with(&path, PatchType::Merge, patch, &by("bob")).await.unwrap();
    let metadata = &patched["metadata"];
    assert_eq!(metadata["ownerReferences"], json!([owner]));
    let managers = metadata["managedFields"].as_array().unwrap();
    let owned: Vec<_> =
        managers.iter().map(|entry| (&entry["manager"], &entry["fieldsV1"])).collect();
    let of = |fields: Value| json!({"f:metadata": {"f:ownerReferences": fields}});
    assert_eq!(
        owned,
        [(&json!("ann"), &of(json!({}))), (&json!("bob"), &of(json!({r#"k:{"uid":"u"}"#: {}}))),]
    );
    let warnings = server.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("after mutating admission"),
        "{warnings:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_dropped_warned_of_or_refused() {
    let server = Server::start().await;
    let sent = |name: &str| json!({"metadata": {"name": name}, "foo": 1});
    let stored = server.create(CONFIG_MAPS, sent("warn")).await.unwrap();
    assert!(stored.get("foo").is_none());
    assert_eq!(server.warnings(), [r#"unknown field "foo""#]);
    let with = |field_validation| WriteOptions { field_validation, ..WriteOptions::default() };
    let ignore = with(FieldValidation::Ignore);
    server.create_with(CONFIG_MAPS, sent("ignore"), &ignore).await.unwrap();
    assert_eq!(server.warnings(), [""; 0]);
    let strict = with(FieldValidation::Strict);
    assert_eq!(
        refused(server.create_with(CONFIG_MAPS, sent("strict"), &strict).await),
        r#"400 ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo""#
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_like_a_create_and_stores_nothing() {
    let server = Server::start().await;
    let before = server.revision().await;
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let sent = json!({"metadata": {"name": "a"}});
    let answer = server.create_with(CONFIG_MAPS, sent.clone(), &dry).await.unwrap();
    assert!(answer["metadata"]["uid"].is_string());
    assert!(answer["metadata"].get("resourceVersion").is_none());
    // Only what writes refuses a resourceVersion (controller-runtime's dry-run client sends one).
    let versioned = json!({"metadata": {"name": "b", "resourceVersion": "5"}});
    let answer = server.create_with(CONFIG_MAPS, versioned, &dry).await.unwrap();
    assert_eq!(answer["metadata"]["resourceVersion"], "5");
    assert_eq!(server.revision().await, before);
    server.create(CONFIG_MAPS, sent.clone()).await.unwrap();
    assert_eq!(
        refused(server.create_with(CONFIG_MAPS, sent, &dry).await),
        r#"409 configmaps "a" already exists"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_keeps_the_status_that_its_kubelet_registers_with() {
    let server = Server::start().await;
    let status = json!({"capacity": {"cpu": "4"}, "nodeInfo": {"osImage": "linux"}});
    let sent = json!({"metadata": {"name": "n"}, "status": status});
    let node = server.create("/api/v1/nodes", sent).await.unwrap();
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
    assert_eq!(node["status"]["nodeInfo"]["osImage"], "linux");
    assert_eq!(node["status"]["nodeInfo"]["architecture"], "");
    assert_eq!(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_gates_says_that_they_keep_it_from_being_scheduled() {
    let server = Server::start().await;
    let spec = json!({
        "containers": [{"name": "c", "image": "nginx"}],
        "schedulingGates": [{"name": "example.com/wait"}],
    });
    let sent = json!({"metadata": {"name": "p"}, "spec": spec});
    let pod = server.create("/api/v1/namespaces/default/pods", sent).await.unwrap();
    let condition = &pod["status"]["conditions"][0];
    assert_eq!(condition["type"], "PodScheduled");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("SchedulingGated"))
    );
    assert_eq!(condition["lastTransitionTime"], "2026-11-20T07:00:00Z");
}
