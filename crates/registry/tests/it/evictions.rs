//! Bindings and evictions of pods (spec: api-server §5.6).
use crate::server::{Server, refused};
use crate::subresources::{POD, with_pod};
use serde_json::{Value, json};
use setpoint_registry::WriteOptions;

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

#[tokio::test(start_paused = true)]
async fn a_binding_assigns_a_pod_once() {
    let server = with_pod().await;
    let binding = |name: &str, node: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
    let path = &format!("{POD}/binding");
    for (sent, expected) in [
        (binding("q", "n"), "400 name in URL does not match name in Binding object"),
        (binding("p", ""), "500 target.name: Required value"),
    ] {
        assert_eq!(refused(server.create(path, sent).await), expected);
    }
    let status = server.create(path, binding("p", "n")).await.unwrap();
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
    );
    let pod = server.get(POD).await.unwrap();
    assert_eq!(pod["spec"]["nodeName"], "n");
    assert_eq!(pod["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(pod["status"]["conditions"][0].get("lastProbeTime"), Some(&Value::Null));
    assert_eq!(pod["status"]["conditions"][0]["lastTransitionTime"], "2026-11-20T07:00:00Z");
    assert_eq!(pod["metadata"]["generation"], 1);
    let again = server.create("/api/v1/namespaces/default/bindings", binding("p", "m")).await;
    assert_eq!(
        refused(again),
        r#"409 Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n""#
    );
    let gated = json!({"metadata": {"name": "g"}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "ex.io/wait"}],
    }});
    server.create("/api/v1/namespaces/default/pods", gated).await.unwrap();
    let early = server.create("/api/v1/namespaces/default/bindings", binding("g", "n")).await;
    assert_eq!(
        refused(early),
        r#"409 Operation cannot be fulfilled on pods/binding "g": pod g has non-empty .spec.schedulingGates"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_binding_is_for_the_pod_that_it_names() {
    let server = with_pod().await;
    let path = &format!("{POD}/binding");
    let pod = server.get(POD).await.unwrap();
    let (uid, version) = (&pod["metadata"]["uid"], pod["metadata"]["resourceVersion"].clone());
    let version = version.as_str().unwrap();
    let with = |metadata: Value| json!({"metadata": metadata, "target": {"name": "n"}});
    let failed = |root: &str, what: &str, wanted: &str, is: &str| {
        format!(
            r#"409 Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, Key: {root}/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}"#
        )
    };
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    for (metadata, what, wanted, is) in [
        (json!({"name": "p", "uid": "u"}), "UID", "u", uid.as_str().unwrap()),
        (json!({"name": "p", "resourceVersion": "1"}), "ResourceVersion", "1", version),
        (json!({"name": "p", "resourceVersion": "x"}), "ResourceVersion", "x", version),
    ] {
        let refusal = refused(server.create(path, with(metadata.clone())).await);
        assert_eq!(refusal, failed("/registry", what, wanted, is));
        // The keys of dry runs have no root there.
        let refusal = refused(server.create_with(path, with(metadata), &dry).await);
        assert_eq!(refusal, failed("", what, wanted, is));
    }
    let collection = "/api/v1/namespaces/default/bindings";
    for (metadata, expected) in [
        (json!({}), "400 Name parameter required."),
        (json!({"name": "a/b"}), r#"400 Name parameter invalid: "a/b": may not contain '/'"#),
        (json!({"name": "q"}), r#"404 pods "q" not found"#),
    ] {
        assert_eq!(refused(server.create(collection, with(metadata)).await), expected);
    }
    // A collection takes no uid, and nobody looks at what a binding adds.
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"});
    let odd = json!({
        "name": "p", "uid": "u", "resourceVersion": version, "annotations": {"a/b/c": "d"},
        "ownerReferences": [owner, owner],
    });
    server.create(collection, with(odd)).await.unwrap();
    assert_eq!(
        server.warnings(),
        [
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: n"
        ]
    );
    let bound = server.get(POD).await.unwrap();
    assert_eq!(bound["metadata"]["annotations"], json!({"a/b/c": "d"}));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_uses_the_budget() {
    let server = with_pod().await;
    server
        .create(
            &format!("{POD}/binding"),
            json!({"metadata": {"name": "p"}, "target": {"name": "n"}}),
        )
        .await
        .unwrap();
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    server.patch(&format!("{POD}/status"), running).await.unwrap();
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    server.create(BUDGETS, budget).await.unwrap();
    let path = &format!("{POD}/eviction");
    let eviction = || json!({"metadata": {"name": "p"}});
    let early = server.create(path, eviction()).await.unwrap_err();
    assert_eq!(early.code(), 429);
    let details = early.0.details.unwrap();
    assert_eq!(details.retry_after_seconds, 10);
    assert_eq!(
        details.causes[0].message,
        "The disruption budget b is still being processed by the server."
    );
    let set = |allowed: i64| json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1, "expectedPods": 1}});
    let status = &format!("{BUDGETS}/b/status");
    server.patch(status, set(0)).await.unwrap();
    let refusal = server.create(path, eviction()).await.unwrap_err();
    assert_eq!(
        refusal.0.message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    let details = refusal.0.details.unwrap();
    assert_eq!(
        details.causes[0].message,
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    );
    assert_eq!(details.retry_after_seconds, 0);
    // Why more pods than are needed may not be evicted, is in the condition.
    for (condition, more) in [
        (json!([]), ""),
        (json!(["InsufficientPods", "few"]), " (InsufficientPods): few"),
        (json!(["SyncFailed", "no"]), " because it failed sync: no"),
    ] {
        let mut body = set(0);
        body["status"]["currentHealthy"] = 2.into();
        body["status"]["conditions"] = match condition[0].is_null() {
            true => json!([]),
            false => json!([{"type": "DisruptionAllowed", "status": "False",
                "reason": condition[0], "message": condition[1],
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
        };
        server.patch(status, body).await.unwrap();
        let refusal = server.create(path, eviction()).await.unwrap_err();
        assert_eq!(
            refusal.0.details.unwrap().causes[0].message,
            format!("The disruption budget b does not allow evicting pods currently{more}")
        );
    }
    server.patch(status, set(1)).await.unwrap();
    let done = server.create(path, eviction()).await.unwrap();
    assert_eq!(done["code"], 201);
    let pod = server.get(POD).await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let noted = conditions.iter().find(|noted| noted["type"] == "DisruptionTarget").unwrap();
    assert_eq!(noted.get("lastProbeTime"), Some(&Value::Null));
    assert!(
        pod["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["reason"] == "EvictionByEvictionAPI")
    );
    let budget = server.get(&format!("{BUDGETS}/b")).await.unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["p"].is_string());
}

/// A running pod with a budget that allows one disruption.
async fn with_guarded_pod() -> Server {
    let server = with_pod().await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    server.create(&format!("{POD}/binding"), binding).await.unwrap();
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    server.patch(&format!("{POD}/status"), running).await.unwrap();
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    server.create(BUDGETS, budget).await.unwrap();
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2, "expectedPods": 2}});
    server.patch(&format!("{BUDGETS}/b/status"), status).await.unwrap();
    server
}

/// Once, the budget was charged and the pod marked before the preconditions were checked, and
/// whatever the body's own `dryRun` was.
#[tokio::test(start_paused = true)]
async fn an_eviction_that_must_not_happen_changes_nothing() {
    let server = with_guarded_pod().await;
    let path = &format!("{POD}/eviction");
    let before = server.revision().await;
    let with = |options: Value| json!({"metadata": {"name": "p"}, "deleteOptions": options});
    let foreign = server.create(path, with(json!({"preconditions": {"uid": "x"}}))).await;
    let refusal = refused(foreign);
    assert!(
        refusal.starts_with(
            "409 Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (x)"
        ),
        "{refusal}"
    );
    let stale = server.create(path, with(json!({"preconditions": {"resourceVersion": "1"}}))).await;
    let refusal = refused(stale);
    assert!(refusal.starts_with("409 Operation cannot be fulfilled on Pod \"p\": the ResourceVersion in the precondition (1)"), "{refusal}");
    let dry = server.create(path, with(json!({"dryRun": ["All"]}))).await.unwrap();
    assert_eq!(dry["code"], 201);
    assert_eq!(server.revision().await, before, "nothing was written");
}

/// The reference charges the budget and marks the pod before it refuses the options.
#[tokio::test(start_paused = true)]
async fn eviction_options_are_validated_like_those_of_a_delete() {
    let server = with_guarded_pod().await;
    let path = &format!("{POD}/eviction");
    let before = server.revision().await;
    let with = |options: Value| json!({"metadata": {"name": "p"}, "deleteOptions": options});
    for (options, expected) in [
        (
            json!({"propagationPolicy": "zz", "dryRun": ["foo"]}),
            r#"422 DeleteOptions.meta.k8s.io "" is invalid: [propagationPolicy: Unsupported value: "zz": supported values: "Foreground", "Background", "Orphan", "nil", dryRun: Unsupported value: ["foo"]: supported values: "All"]"#,
        ),
        (
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
            r#"422 DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set"#,
        ),
        (
            json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true}),
            r#"422 Eviction.policy "p" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: can not be set for pod eviction, try after removing the option"#,
        ),
    ] {
        assert_eq!(refused(server.create(path, with(options)).await), expected);
    }
    assert_eq!(server.revision().await, before, "nothing was written");
    // A dry run is only the delete, which looks at its options before the pod.
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let wrong = json!({"propagationPolicy": "zz", "preconditions": {"uid": "u"}});
    for (options, code) in [(&dry, "422"), (&WriteOptions::default(), "409")] {
        let refusal = refused(server.create_with(path, with(wrong.clone()), options).await);
        assert!(refusal.starts_with(code), "{refusal}");
    }
    let exhausted = json!({"status": {"disruptionsAllowed": 0}});
    server.patch(&format!("{BUDGETS}/b/status"), exhausted).await.unwrap();
    let refusal = refused(server.create(path, with(json!({"propagationPolicy": "zz"}))).await);
    assert!(refusal.starts_with("429 Cannot evict pod"), "the budget is asked first: {refusal}");
}

#[tokio::test(start_paused = true)]
async fn request_and_body_of_an_eviction_ask_for_the_same_dry_run() {
    let server = with_pod().await;
    let path = &format!("{POD}/eviction");
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let with =
        |values: Value| json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": values}});
    for (values, expected) in [
        (json!(["All"]), None),
        (json!([]), None),
        (
            json!(["All", "All"]),
            Some("500 Non-matching dry-run options in request and content: [All] and [All All]"),
        ),
        (
            json!(["foo"]),
            Some("500 Non-matching dry-run options in request and content: [All] and [foo]"),
        ),
    ] {
        let evicted = server.create_with(path, with(values), &dry).await;
        match expected {
            None => assert_eq!(evicted.unwrap()["code"], 201),
            Some(expected) => assert_eq!(refused(evicted), expected),
        }
    }
    assert!(server.get(POD).await.is_ok(), "nothing was deleted");
}

/// Once, marking the pod changed its resourceVersion, so that no precondition could hold.
#[tokio::test(start_paused = true)]
async fn an_eviction_with_the_present_resource_version_succeeds() {
    let server = with_guarded_pod().await;
    let pod = server.get(POD).await.unwrap();
    let right = json!({"resourceVersion": pod["metadata"]["resourceVersion"], "uid": pod["metadata"]["uid"]});
    let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"preconditions": right}});
    server.create(&format!("{POD}/eviction"), eviction).await.unwrap();
    assert!(server.get(POD).await.unwrap()["metadata"]["deletionTimestamp"].is_string());
    let budget = server.get(&format!("{BUDGETS}/b")).await.unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_ready_is_evicted_without_using_the_budget_if_enough_others_are_healthy()
{
    let server = with_guarded_pod().await;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    server.patch(&format!("{POD}/status"), unready).await.unwrap();
    server.create(&format!("{POD}/eviction"), json!({"metadata": {"name": "p"}})).await.unwrap();
    assert!(server.get(POD).await.unwrap()["metadata"]["deletionTimestamp"].is_string());
    let budget = server.get(&format!("{BUDGETS}/b")).await.unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 1);
}
