//! Scale and the other subresources (spec: api-server §5.6).
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{FieldValidation, PatchType, WriteOptions};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const POD: &str = "/api/v1/namespaces/default/pods/p";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn with_deployment() -> Server {
    let server = Server::start().await;
    let sent = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
        "template": {"metadata": {"labels": {"a": "b", "c": "d"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    }});
    server.create(DEPLOYMENTS, sent).await.unwrap();
    server
}
pub(crate) async fn with_pod() -> Server {
    let server = Server::start().await;
    let sent = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    server.create(PODS, sent).await.unwrap();
    server
}

#[tokio::test(start_paused = true)]
async fn a_scale_changes_replicas_only() {
    let server = with_deployment().await;
    let path = &format!("{DEPLOYMENTS}/d/scale");
    let sent = json!({"metadata": {"name": "d"}, "spec": {"replicas": 5}});
    let scale = server.update(path, sent).await.unwrap();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["apiVersion"], "autoscaling/v1");
    assert_eq!(scale["spec"], json!({"replicas": 5}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "a=b,c"}));
    let parent = server.get(&format!("{DEPLOYMENTS}/d")).await.unwrap();
    assert_eq!(parent["spec"]["replicas"], 5);
    assert_eq!(parent["metadata"]["generation"], 2);
    assert_eq!(parent["metadata"]["resourceVersion"], scale["metadata"]["resourceVersion"]);
    let scaler = parent["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["subresource"] == "scale")
        .expect("whoever scales owns the replicas");
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    for (sent, expected) in [
        (
            json!({"metadata": {"name": "d"}, "spec": {"replicas": -1}}),
            r#"422 Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"#,
        ),
        (
            json!({"metadata": {"name": "d", "resourceVersion": "1"}, "spec": {"replicas": 1}}),
            r#"409 Operation cannot be fulfilled on deployments.apps "d": the object has been modified; please apply your changes to the latest version and try again"#,
        ),
        (
            json!({"metadata": {"name": "e"}}),
            "400 the name of the object (e) does not match the name on the URL (d)",
        ),
    ] {
        assert_eq!(refused(server.update(path, sent).await), expected);
    }
    let strict =
        WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
    let unknown = json!({"spec": {"y": 1}});
    let merged = server.patch_with(path, PatchType::Merge, unknown.clone(), &strict).await;
    let merged = refused(merged);
    assert!(merged.starts_with(r#"422  "" is invalid: patch: Invalid value: "{"#), "{merged}");
    let told = refused(server.patch_with(path, PatchType::StrategicMerge, unknown, &strict).await);
    assert_eq!(
        told,
        r#"422  "" is invalid: patch: Invalid value: "map[spec:map[y:1]]": strict decoding error: unknown field "spec.y""#
    );
    let config = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 4}});
    assert_eq!(
        refused(server.apply(path, "hpa", config.clone()).await),
        r#"409 Apply failed with 1 conflict: conflict with "test" with subresource "scale" using autoscaling/v1: .spec.replicas"#
    );
    let force = WriteOptions {
        field_manager: "hpa".to_owned(),
        force: Some(true),
        ..WriteOptions::default()
    };
    let forced = server.patch_with(path, PatchType::Apply, config, &force).await.unwrap();
    assert_eq!(forced["spec"], json!({"replicas": 4}));
    let parent = server.get(&format!("{DEPLOYMENTS}/d")).await.unwrap();
    let owners: Vec<_> = parent["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|m| m["fieldsV1"]["f:spec"].get("f:replicas").is_some())
        .map(|m| {
            (
                m["manager"].as_str().unwrap(),
                m["apiVersion"].as_str().unwrap(),
                m["subresource"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(owners, [("hpa", "apps/v1", "scale")]);
    let zero = server.patch(path, json!({"spec": {"replicas": 0}})).await.unwrap();
    assert_eq!(zero["spec"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn bodies_of_subresources_name_their_object() {
    let server = with_pod().await;
    let evict = &format!("{POD}/eviction");
    let bind = &format!("{POD}/binding");
    let namespace =
        "400 the namespace of the provided object does not match the namespace sent on the request";
    let eviction = "400 name in URL does not match name in Eviction object";
    for (path, metadata, expected) in [
        (evict, json!({}), eviction),
        (evict, json!({"name": "q"}), eviction),
        (evict, json!({"name": "p", "namespace": "other"}), namespace),
        (evict, json!({"name": "q", "namespace": "other"}), namespace),
        (bind, json!({"name": "q", "namespace": "other"}), namespace),
        (bind, json!({}), "400 name in URL does not match name in Binding object"),
    ] {
        let body = json!({"metadata": metadata});
        assert_eq!(refused(server.create(path, body.clone()).await), expected, "{path} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_of_subresources_have_a_registered_version() {
    let server = with_pod().await;
    let unknown = |kind: &str, version: &str, as_a: &str| {
        let last = version.rsplit('/').next().unwrap();
        format!(
            r#"400 {kind} in version "{last}" cannot be handled as a {as_a}: no kind "{kind}" is registered for version "{version}" in scheme "pkg/api/legacyscheme/scheme.go:30""#
        )
    };
    let evict = &format!("{POD}/eviction");
    let bind = &format!("{POD}/binding");
    let body = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "p"}, "target": {"name": "n"}});
    for (path, version, kind, expected) in [
        (evict, "policy/v7", "Eviction", unknown("Eviction", "policy/v7", "Eviction")),
        (evict, "policy/v7", "", unknown("Eviction", "policy/v7", "Eviction")),
        (evict, "apps/v1", "Eviction", unknown("Eviction", "apps/v1", "Eviction")),
        (evict, "policy/v1", "Binding", unknown("Binding", "policy/v1", "Eviction")),
        (bind, "v9", "Binding", unknown("Binding", "v9", "Binding")),
        (
            evict,
            "v1",
            "Pod",
            "400 Pod in version \"v1\" cannot be handled as a Eviction: converting (v1.Pod) to (policy.Eviction): unknown conversion".to_owned(),
        ),
    ] {
        let refusal = refused(server.create(path, body(version, kind)).await);
        assert_eq!(refusal, expected, "{path} {version} {kind}");
    }
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    for version in ["policy/v1", "policy/v1beta1", ""] {
        let eviction = json!({"apiVersion": version, "metadata": {"name": "p"}});
        assert_eq!(server.create_with(evict, eviction, &dry).await.unwrap()["code"], 201);
    }
    let server = with_deployment().await;
    let scale = &format!("{DEPLOYMENTS}/d/scale");
    let scaled = |version: &str| json!({"apiVersion": version, "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 1}});
    assert_eq!(
        refused(server.update(scale, scaled("autoscaling/v9")).await),
        unknown("Scale", "autoscaling/v9", "Scale")
    );
    assert_eq!(
        refused(server.update(scale, scaled("apps/v1beta1")).await),
        "400 the API version in the data (apps/v1beta1) does not match the expected API version (autoscaling/v1)"
    );
    assert_eq!(
        server.update(scale, scaled("autoscaling/v1")).await.unwrap()["spec"]["replicas"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn ephemeral_containers_are_only_added() {
    let server = with_pod().await;
    let path = &format!("{POD}/ephemeralcontainers");
    let with = |containers: Value| json!({"spec": {"hostNetwork": true, "ephemeralContainers": containers}});
    let debug = || json!({"name": "dbg", "image": "busybox"});
    let pod = server.patch(path, with(json!([debug()]))).await.unwrap();
    assert_eq!(pod["spec"]["ephemeralContainers"][0]["name"], "dbg");
    assert!(pod["spec"].get("hostNetwork").is_none(), "only its own part is taken");
    let removed = refused(server.patch(path, with(json!([]))).await);
    assert!(removed.starts_with(r#"422 Pod "p" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers "dbg" may not be removed"#), "{removed}");
    let changed =
        refused(server.patch(path, with(json!([{"name": "dbg", "image": "other"}]))).await);
    assert!(
        changed.contains(r#"existing ephemeral containers "dbg" may not be changed"#),
        "{changed}"
    );
}

/// As in the reference, which looks at the object before only a part of it is taken.
#[tokio::test(start_paused = true)]
async fn what_is_sent_for_a_part_is_owned_even_if_it_is_dropped() {
    let server = with_pod().await;
    let owned = |pod: &Value, subresource: &str| {
        let entries = pod["metadata"]["managedFields"].as_array().unwrap().clone();
        let entry = entries.into_iter().find(|entry| entry["subresource"] == subresource);
        entry.map(|entry| entry["fieldsV1"].clone()).unwrap_or_default()
    };
    let notes = json!({"f:annotations": {".": {}, "f:n": {}}});
    for subresource in ["ephemeralcontainers", "resize"] {
        let path = format!("{POD}/{subresource}");
        let patch = json!({"metadata": {"annotations": {"n": "b"}}});
        let pod = server.patch(&path, patch).await.unwrap();
        assert!(pod["metadata"].get("annotations").is_none(), "{pod}");
        assert_eq!(owned(&pod, subresource)["f:metadata"], notes);
    }
    let config = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"c": "d"}},
        "spec": {"ephemeralContainers": [{"name": "dbg", "image": "busybox"}]},
    });
    let pod = server.apply(&format!("{POD}/ephemeralcontainers"), "m", config).await.unwrap();
    let entry = &pod["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("m"), &json!("Apply")));
    assert_eq!(entry["fieldsV1"]["f:metadata"], json!({"f:labels": {"f:c": {}}}));
}

#[tokio::test(start_paused = true)]
async fn answers_to_reviews_name_the_managers_of_their_fields() {
    let server = Server::start().await;
    let managers = |review: &Value| {
        let entries = review["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["fieldsV1"].clone()).collect::<Vec<_>>()
    };
    let attributes = json!({"verb": "get", "resource": "pods"});
    let owned = json!({".": {}, "f:resource": {}, "f:verb": {}});
    let reviews = "/apis/authorization.k8s.io/v1";
    let review = json!({"spec": {"resourceAttributes": attributes}});
    let review = server.create(&format!("{reviews}/selfsubjectaccessreviews"), review).await;
    let expected = json!({"f:spec": {"f:resourceAttributes": owned}});
    assert_eq!(managers(&review.unwrap()), [expected]);
    let review = json!({"spec": {"user": "jane", "resourceAttributes": attributes}});
    let review = server.create(&format!("{reviews}/subjectaccessreviews"), review).await;
    let expected = json!({"f:spec": {"f:resourceAttributes": owned, "f:user": {}}});
    assert_eq!(managers(&review.unwrap()), [expected]);
    let review = json!({"spec": {"namespace": "default"}});
    let review = server.create(&format!("{reviews}/selfsubjectrulesreviews"), review).await;
    assert!(managers(&review.unwrap()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_resize_keeps_the_qos_class() {
    let server = with_pod().await;
    let path = &format!("{POD}/resize");
    let grow =
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let grown =
        server.patch_with(path, PatchType::StrategicMerge, grow, &WriteOptions::default()).await;
    assert_eq!(
        refused(grown),
        r#"422 Pod "p" is invalid: spec: Invalid value: "BestEffort": Pod QOS Class may not change as a result of resizing"#
    );
}

#[tokio::test(start_paused = true)]
async fn streams_need_a_node_agent() {
    let server = with_pod().await;
    let exec = server.create(&format!("{POD}/exec"), json!({})).await;
    assert_eq!(refused(exec), "400 pod p does not have a host assigned");
    let missing = server.create(&format!("{PODS}/q/exec"), json!({})).await;
    assert_eq!(refused(missing), r#"404 pods "q" not found"#);
    // The name of a proxied object may be between a scheme and a port.
    for name in ["p", "p:80", "http:p:web", ":p:80"] {
        let proxied = server.create(&format!("{PODS}/{name}/proxy"), json!({})).await;
        assert_eq!(refused(proxied), "400 address not allowed", "{name}");
    }
    let missing = server.create(&format!("{PODS}/https:q:80/proxy"), json!({})).await;
    assert_eq!(refused(missing), r#"404 pods "q" not found"#);
    for name in ["ftp:p:80", "http:p:80:x", ":80"] {
        let wrong = server.create(&format!("{PODS}/{name}/proxy"), json!({})).await;
        assert_eq!(refused(wrong), format!("400 invalid pod request {name:?}"));
    }
    let token = "/api/v1/namespaces/default/serviceaccounts/x/token";
    let token = server.create(token, json!({})).await;
    assert_eq!(refused(token), r#"404 serviceaccounts "x" not found"#);
}

/// The fields of the causes of a refusal, with how often each one stands there.
fn causes(result: Result<Value, setpoint_object::ApiError>) -> Vec<(String, usize)> {
    let details = result.expect_err("a refusal").0.details.expect("details");
    let mut all: Vec<(String, usize)> = Vec::new();
    for cause in details.causes {
        match all.iter_mut().find(|(field, _)| *field == cause.field) {
            Some((_, n)) => *n += 1,
            None => all.push((cause.field, 1)),
        }
    }
    all
}

/// A status has its metadata checked by any object's rules, and by those of the kind as the
/// reference does: never, once, or twice and then on both sides of what is wrong with the status.
#[tokio::test(start_paused = true)]
async fn metadata_is_checked_as_often_as_the_kind_does() {
    let server = with_pod().await;
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}});
    server.create(BUDGETS, budget).await.unwrap();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let set = json!({"metadata": {"name": "s"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "serviceName": "s", "template": template,
    }});
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    server.create(sets, set).await.unwrap();
    let job = json!({"spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}],
    }}}});
    let crons = "/apis/batch/v1/namespaces/default/cronjobs";
    let cron =
        json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": job}});
    server.create(crons, cron).await.unwrap();
    // Labels are checked by each of the two checks of any object's metadata.
    let label = ("metadata.labels".to_owned(), 2);
    let one_more = ("metadata.labels".to_owned(), 3);
    for (path, status, expected) in [
        (
            format!("{BUDGETS}/b"),
            json!({"expectedPods": -1}),
            vec![label.clone(), ("status.expectedPods".to_owned(), 1)],
        ),
        (format!("{crons}/c"), json!({}), vec![label]),
        (
            format!("{sets}/s"),
            json!({"observedGeneration": -1}),
            vec![one_more.clone(), ("status.observedGeneration".to_owned(), 1)],
        ),
        (
            POD.to_owned(),
            json!({"observedGeneration": -1}),
            vec![one_more, ("status.observedGeneration".to_owned(), 1)],
        ),
    ] {
        let sent = json!({"metadata": {"labels": {"a": "-"}}, "status": status});
        let found = causes(server.patch(&format!("{path}/status"), sent).await);
        assert_eq!(found, expected, "{path}");
    }
}

/// The reference takes the metadata that is sent to the status of a definition, although its
/// comment says otherwise (kubernetes/kubernetes#137681).
#[tokio::test(start_paused = true)]
async fn the_status_of_a_definition_takes_metadata() {
    let server = Server::start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({"metadata": {"name": "foos.ex.io"}, "spec": {
        "group": "ex.io", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    server.create(definitions, definition).await.unwrap();
    let path = format!("{definitions}/foos.ex.io/status");
    let sent = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"scope": "Namespaced"}});
    let changed = server.patch(&path, sent).await.unwrap();
    assert_eq!(changed["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(changed["spec"]["scope"], "Cluster");
}
