//! Validation and immutability of single kinds (spec: api-server §5.4, §5.6, §12.1).
use crate::server::{Server, refused};
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// A request for the name `alice`, and a certificate for it.
pub(crate) const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIS01ISUNBUUF3RURFT01Bd0dBMVVFQXd3RllXeHBZMlV3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQgpCd05DQUFUbzJGOFVrWU1vVTlsejVRV1NDUkZPNTQ3NHluZGZNQllPMGttQzYrK3lhdmtiR1BRTWd4Qm5PTUN5CmNkSHRjWk53TzRxUkUwS01qV0NMakQ0c0Rja29vQUF3Q2dZSUtvWkl6ajBFQXdJRFNBQXdSUUlnS3FMOHhNOFgKcHhySms0Uzd5OWxGN2NJYVU0Q0lDaTY4UnBzcUF5UkFvTHNDSVFDaCtEbUg1dnpESzZCaUxGR09OZDJqOVpVYwpmaURndEJYR3NrNGxObHA5RWc9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
const CERTIFICATE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJHVENCd1FJVVBOUTlXTTZ4TjE4cWc0alF4L1VpUVpoUU9va3dDZ1lJS29aSXpqMEVBd0l3RURFT01Bd0cKQTFVRUF3d0ZZV3hwWTJVd0hoY05Nall4TVRJeE1qQXpOek0yV2hjTk16WXhNVEU0TWpBek56TTJXakFRTVE0dwpEQVlEVlFRRERBVmhiR2xqWlRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhBMElBQk9qWVh4U1JneWhUCjJYUGxCWklKRVU3bmp2aktkMTh3Rmc3U1NZTHI3N0pxK1JzWTlBeURFR2M0d0xKeDBlMXhrM0E3aXBFVFFveU4KWUl1TVBpd055U2d3Q2dZSUtvWkl6ajBFQXdJRFJ3QXdSQUlnYU02ZWhzdE9zblRzYkkrRUNSVmd3d3Y1Q09lSApGWm04NklqdlA3bUpJN2NDSUhtWVQ1RFNDUFdTckQ4c0N2Q0k1bVh3Y1FnNi82MFFQa2F6eTkrY296L2oKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

fn named(name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["metadata"]["name"] = name.into();
    object
}
fn template(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
}
fn deployment(selector: Value, labels: Value) -> Value {
    named(
        "d",
        json!({"spec": {"selector": {"matchLabels": selector}, "template": template(labels)}}),
    )
}

#[tokio::test(start_paused = true)]
async fn refusals_on_create() {
    let server = Server::start().await;
    for (path, object, expected) in [
        (
            DEPLOYMENTS,
            deployment(json!({"a": "c"}), json!({"a": "b"})),
            r#"422 Deployment.apps "d" is invalid: spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
        ),
        (
            DEPLOYMENTS,
            named(
                "d",
                json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}}),
            ),
            r#"422 Deployment.apps "d" is invalid: spec.template.spec.containers: Required value"#,
        ),
        (
            DEPLOYMENTS,
            named("d", json!({"spec": {"template": template(json!({"a": "b"}))}})),
            r#"422 Deployment.apps "d" is invalid: [spec.selector: Required value, spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`]"#,
        ),
        (
            DEPLOYMENTS,
            named(
                "d",
                json!({"spec": {"replicas": -1, "selector": {"matchLabels": {"a": "b"}}, "template": template(json!({"a": "b"}))}}),
            ),
            r#"422 Deployment.apps "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"#,
        ),
        (
            PODS,
            named("p", json!({"spec": {}})),
            r#"422 Pod "p" is invalid: spec.containers: Required value"#,
        ),
        (
            PODS,
            named(
                "p",
                json!({"spec": {"containers": [{"name": "c"}, {"name": "c", "image": "x"}]}}),
            ),
            r#"422 Pod "p" is invalid: [spec.containers[0].image: Required value, spec.containers[1].name: Duplicate value: "c"]"#,
        ),
        (
            PODS,
            named(
                "p",
                json!({"spec": {"containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}], "restartPolicy": "Foo"}}),
            ),
            r#"422 Pod "p" is invalid: [spec.containers[0].volumeMounts[0].name: Not found: "v", spec.restartPolicy: Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"]"#,
        ),
        (
            PODS,
            named(
                "p",
                json!({"spec": {"priorityClassName": "x", "containers": [{"name": "c", "image": "x"}]}}),
            ),
            r#"403 pods "p" is forbidden: no PriorityClass with name x was found"#,
        ),
        (
            JOBS,
            named(
                "j",
                json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}}),
            ),
            r#"422 Job.batch "j" is invalid: spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#,
        ),
        (
            SECRETS,
            named("s", json!({"type": "kubernetes.io/tls", "data": {"tls.key": "eA=="}})),
            r#"422 Secret "s" is invalid: data[tls.crt]: Required value"#,
        ),
        (
            SECRETS,
            named("s", json!({"data": {"a": "*"}})),
            r#"400 Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0"#,
        ),
        (
            MAPS,
            named("m", json!({"data": {"a": "b"}, "binaryData": {"a": "eA=="}})),
            r#"422 ConfigMap "m" is invalid: data[a]: Invalid value: "a": duplicate of key present in binaryData"#,
        ),
        (
            MAPS,
            named("m", json!({"data": {"a": "x".repeat(1_048_577)}})),
            r#"422 ConfigMap "m" is invalid: []: Too long: may not be more than 1048576 bytes"#,
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            named("System:X", json!({"rules": [{"apiGroups": [""], "resources": ["pods"]}]})),
            r#"422 ClusterRole.rbac.authorization.k8s.io "System:X" is invalid: rules[0].verbs: Required value: verbs must contain at least one value"#,
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            named("p", json!({"value": 1_000_000_001})),
            r#"422 PriorityClass.scheduling.k8s.io "p" is invalid: value: Forbidden: maximum allowed value of a user defined priority is 1000000000"#,
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            named("system-x", json!({"value": 1})),
            r#"422 PriorityClass.scheduling.k8s.io "system-x" is invalid: metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class"#,
        ),
        (
            "/api/v1/namespaces",
            named("a.b", json!({})),
            r#"422 Namespace "a.b" is invalid: metadata.name: Invalid value: "a.b": must not contain dots"#,
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            named("b", json!({"spec": {"minAvailable": 1, "maxUnavailable": 1}})),
            r#"422 PodDisruptionBudget.policy "b" is invalid: spec: Invalid value: {"maxUnavailable":1,"minAvailable":1}: minAvailable and maxUnavailable cannot be both set"#,
        ),
        (
            "/api/v1/namespaces/default/events",
            named("e", json!({"involvedObject": {"namespace": "other"}})),
            r#"422 Event "e" is invalid: involvedObject.namespace: Invalid value: "other": does not match event.namespace"#,
        ),
    ] {
        assert_eq!(refused(server.create(path, object.clone()).await), expected, "{object}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_increments_its_generation_and_its_selector_is_immutable() {
    let server = Server::start().await;
    let path = &format!("{DEPLOYMENTS}/d");
    let mut sent = deployment(json!({"a": "b"}), json!({"a": "b"}));
    sent["status"] = json!({"replicas": 9});
    let created = server.create(DEPLOYMENTS, sent).await.unwrap();
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["status"], json!({}));
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();
    let scaled = server
        .patch(path, json!({"spec": {"replicas": 3}, "status": {"replicas": 3}}))
        .await
        .unwrap();
    assert_eq!((generation(&scaled), &scaled["status"]), (2, &json!({})));
    let labelled = server.patch(path, json!({"metadata": {"labels": {"x": "y"}}})).await.unwrap();
    assert_eq!(generation(&labelled), 2, "labels are not spec");
    let annotated =
        server.patch(path, json!({"metadata": {"annotations": {"x": "y"}}})).await.unwrap();
    assert_eq!(generation(&annotated), 3, "annotations of a Deployment are its ReplicaSets' too");
    let status = json!({"status": {"observedGeneration": 3, "replicas": 3}, "spec": {"replicas": 7}, "metadata": {"labels": null, "annotations": {"z": "z"}}});
    let observed = server.patch(&format!("{path}/status"), status).await.unwrap();
    assert_eq!(generation(&observed), 3);
    assert_eq!(observed["status"]["replicas"], 3);
    assert_eq!(observed["spec"]["replicas"], 3);
    assert_eq!(observed["metadata"]["labels"], json!({"x": "y"}));
    assert_eq!(observed["metadata"]["annotations"]["z"], "z");
    assert_eq!(
        refused(server.patch(path, json!({"spec": {"selector": {"matchLabels": {"a": null, "c": "d"}}, "template": {"metadata": {"labels": {"c": "d"}}}}})).await),
        r#"422 Deployment.apps "d" is invalid: spec.selector: Invalid value: {"matchLabels":{"c":"d"}}: field is immutable"#
    );
}

#[tokio::test(start_paused = true)]
async fn only_images_and_a_few_other_fields_of_a_pod_are_mutable() {
    let server = Server::start().await;
    let path = &format!("{PODS}/p");
    let sent = named("p", json!({"spec": {"containers": [{"name": "c", "image": "nginx"}]}}));
    let created = server.create(PODS, sent).await.unwrap();
    assert_eq!(created["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(created["spec"]["priority"], 0);
    let owned = created["metadata"]["managedFields"].to_string();
    assert!(
        owned.contains("f:dnsPolicy")
            && !owned.contains("f:tolerations")
            && !owned.contains("f:priority"),
        "{owned}"
    );
    assert_eq!(server.warnings(), [""; 0]);
    let image = json!({"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}});
    let none = setpoint_registry::WriteOptions::default();
    let changed = server
        .patch_with(path, setpoint_registry::PatchType::StrategicMerge, image, &none)
        .await
        .unwrap();
    assert_eq!(changed["spec"]["containers"][0]["image"], "nginx:2");
    assert_eq!(changed["metadata"]["generation"], 2);
    let host = refused(server.patch(path, json!({"spec": {"hostNetwork": true}})).await);
    assert!(
        host.starts_with(r#"422 Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"#)
            && host.contains("\n+ hostNetwork: true"),
        "{host}"
    );
    let more =
        json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "d", "image": "x"}}]);
    let more = server.patch_with(path, setpoint_registry::PatchType::Json, more, &none).await;
    assert_eq!(
        refused(more),
        r#"422 Pod "p" is invalid: spec.containers: Forbidden: pod updates may not add or remove containers"#
    );
}

#[tokio::test(start_paused = true)]
async fn immutable_data_stays() {
    let server = Server::start().await;
    for (all, kind) in [(MAPS, "ConfigMap"), (SECRETS, "Secret")] {
        let path = &format!("{all}/a");
        let sent = named("a", json!({"data": {"k": "eA=="}, "immutable": true}));
        server.create(all, sent).await.unwrap();
        assert_eq!(
            refused(server.patch(path, json!({"data": {"k": "eQ=="}})).await),
            format!(
                r#"422 {kind} "a" is invalid: data: Forbidden: field is immutable when `immutable` is set"#
            )
        );
        assert_eq!(
            refused(server.patch(path, json!({"immutable": null})).await),
            format!(
                r#"422 {kind} "a" is invalid: immutable: Forbidden: field is immutable when `immutable` is set"#
            )
        );
        server.patch(path, json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_accepts_string_data_and_its_type_is_immutable() {
    let server = Server::start().await;
    let sent = named("s", json!({"stringData": {"a": "b"}, "data": {"a": "eA==", "c": "eA=="}}));
    let stored = server.create(SECRETS, sent).await.unwrap();
    assert_eq!(stored["data"], json!({"a": "Yg==", "c": "eA=="}));
    assert_eq!(stored["type"], "Opaque");
    assert!(stored.get("stringData").is_none());
    assert_eq!(
        refused(server.patch(&format!("{SECRETS}/s"), json!({"type": "foo/bar"})).await),
        r#"422 Secret "s" is invalid: type: Invalid value: "foo/bar": field is immutable"#
    );
}

#[tokio::test(start_paused = true)]
async fn one_object_in_two_versions() {
    let server = Server::start().await;
    let v2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let v1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let sent = named(
        "h",
        json!({"spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
    );
    let created = server.create(v1, sent).await.unwrap();
    assert_eq!(created["apiVersion"], "autoscaling/v1");
    assert_eq!(created["spec"]["targetCPUUtilizationPercentage"], 50);
    let other = server.get(&format!("{v2}/h")).await.unwrap();
    assert_eq!(other["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
    let patched =
        server.patch(&format!("{v1}/h"), json!({"spec": {"maxReplicas": 5}})).await.unwrap();
    assert_eq!(patched["apiVersion"], "autoscaling/v1");
    assert_eq!(server.get(&format!("{v2}/h")).await.unwrap()["spec"]["maxReplicas"], 5);
    let reserved = json!({"autoscaling.alpha.kubernetes.io/metrics": "[]", "a": "b"});
    let annotated = json!({"metadata": {"annotations": reserved}});
    let annotated = server.patch(&format!("{v2}/h"), annotated).await.unwrap();
    assert_eq!(annotated["metadata"]["annotations"], json!({"a": "b"}), "of v1 only");
    assert_eq!(
        refused(server.patch(&format!("{v2}/h"), json!({"spec": {"maxReplicas": 0}})).await),
        r#"422 HorizontalPodAutoscaler.autoscaling "h" is invalid: [spec.maxReplicas: Required value: must be set and greater than 0, spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`]"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_long_name_is_warned_of() {
    let server = Server::start().await;
    let sent =
        named(&"x".repeat(64), json!({"spec": {"containers": [{"name": "c", "image": "x"}]}}));
    server.create(PODS, sent).await.unwrap();
    assert_eq!(
        server.warnings(),
        [
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must be no more than 63 characters]"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_annotation_for_app_armor_becomes_a_member_with_a_warning() {
    let server = Server::start().await;
    let key = "container.apparmor.security.beta.kubernetes.io/c";
    let sent = |image: &str| {
        json!({"metadata": {"name": "p", "annotations": {key: "localhost/a"}},
            "spec": {"containers": [{"name": "c", "image": image}]}})
    };
    let warning = format!(
        "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
    );
    // As the original, a refused pod is warned of, too.
    server.create(PODS, sent("")).await.unwrap_err();
    assert_eq!(server.warnings(), [warning.as_str()]);
    let created = server.create(PODS, sent("x")).await.unwrap();
    assert_eq!(server.warnings(), [warning]);
    assert_eq!(
        created["spec"]["containers"][0]["securityContext"],
        json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}})
    );
}

#[tokio::test(start_paused = true)]
async fn a_certificate_request_records_its_user_and_is_approved_at_its_own_endpoint() {
    let mut server = Server::start().await;
    let all = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let sent = json!({"metadata": {"name": "r", "labels": {"a": "b"}},
        "spec": {"request": REQUEST, "signerName": "ex.io/s", "usages": ["client auth"],
            "username": "root", "uid": "0", "groups": ["system:masters"], "extra": {"a": ["b"]}}});
    let created = server.create(all, sent.clone()).await.unwrap();
    assert_eq!(created["spec"]["username"], "alice");
    for forged in ["uid", "groups", "extra"] {
        assert_eq!(created["spec"].get(forged), None);
    }
    let owned = created["metadata"]["managedFields"][0]["fieldsV1"].as_object().unwrap();
    assert!(owned.keys().eq(["f:metadata"]), "nothing else is a client's");
    server.identity.uid = "7".into();
    server.identity.groups = ["dev".into()].into();
    let facts = [("scope".to_owned(), vec!["own".to_owned()])];
    server.identity.extra = std::sync::Arc::new(facts.into());
    let mut known = sent;
    known["metadata"]["name"] = "known".into();
    let known = server.create(all, known).await.unwrap();
    assert_eq!(known["spec"]["uid"], "7");
    assert_eq!(known["spec"]["groups"], json!(["dev"]));
    assert_eq!(known["spec"]["extra"], json!({"scope": ["own"]}));
    let approve = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "x"}], "certificate": CERTIFICATE}});
    let ignored = server.patch(&format!("{all}/r"), approve.clone()).await.unwrap();
    assert_eq!(ignored["status"], json!({}));
    let mut approve = approve;
    approve["metadata"] = json!({"annotations": {"why": "known"}});
    let approved = server.patch(&format!("{all}/r/approval"), approve).await.unwrap();
    assert_eq!(approved["status"]["conditions"][0]["lastUpdateTime"], "2026-11-20T07:00:00Z");
    assert!(approved["status"].get("certificate").is_none(), "conditions only");
    assert_eq!(approved["metadata"]["annotations"], json!({"why": "known"}));
    let status = format!("{all}/r/status");
    let undecided = json!({"status": {"certificate": CERTIFICATE, "conditions": null}});
    assert_eq!(
        refused(server.patch(&status, undecided).await),
        r#"422 CertificateSigningRequest.certificates.k8s.io "r" is invalid: status.conditions: Forbidden: updates may not remove a condition of type "Approved""#
    );
    let signed = json!({"status": {"certificate": CERTIFICATE}});
    let signed = server.patch(&status, signed).await.unwrap();
    assert_eq!(signed["status"]["certificate"], CERTIFICATE);
    let entries = signed["metadata"]["managedFields"].as_array().unwrap();
    let owned = |subresource: &str| {
        let entry = entries.iter().find(|entry| entry["subresource"] == subresource).unwrap();
        let members = entry["fieldsV1"]["f:status"].as_object().unwrap();
        members.keys().map(String::as_str).filter(|name| *name != ".").collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (owned("approval").as_str(), owned("status").as_str()),
        ("f:conditions", "f:certificate")
    );
    assert_eq!(signed["status"]["conditions"][0]["type"], "Approved", "the decision stays");
}

#[tokio::test(start_paused = true)]
async fn a_limit_range_without_a_name_gets_a_unique_one() {
    let server = Server::start().await;
    let all = "/api/v1/namespaces/default/limitranges";
    let range = || json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}});
    let (first, second) =
        (server.create(all, range()).await.unwrap(), server.create(all, range()).await.unwrap());
    assert_eq!(first["metadata"]["name"].as_str().map(str::len), Some(36));
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
}

/// Kubernetes compares quantities by value.
#[tokio::test(start_paused = true)]
async fn a_quantity_in_other_words_is_no_change_of_a_pod_or_a_generation() {
    let server = Server::start().await;
    let spec = |memory: Value| {
        json!({"containers": [{
            "name": "c", "image": "x", "resources": {"limits": {"memory": memory}},
        }]})
    };
    server.create(PODS, named("p", json!({"spec": spec(json!(1073741824))}))).await.unwrap();
    let path = &format!("{PODS}/p");
    let mut pod = server.get(path).await.unwrap();
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Gi".into();
    let written = server.update(path, pod.clone()).await.unwrap();
    let limits = |pod: &Value| pod["spec"]["containers"][0]["resources"]["limits"].clone();
    assert_eq!(limits(&written), json!({"memory": "1Gi"}));
    let mut more = written;
    more["spec"]["containers"][0]["resources"]["limits"]["memory"] = "2Gi".into();
    assert!(refused(server.update(path, more).await).starts_with("422 "));

    let sets = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = |memory: &str| {
        let labels = json!({"a": "b"});
        named(
            "d",
            json!({"spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": spec(memory.into()),
            }}}),
        )
    };
    server.create(sets, deployment("1024Mi")).await.unwrap();
    let path = &format!("{sets}/d");
    let same = server.update(path, deployment("1Gi")).await.unwrap();
    assert_eq!(same["metadata"]["generation"], 1);
    let other = server.update(path, deployment("2Gi")).await.unwrap();
    assert_eq!(other["metadata"]["generation"], 2);
}

/// Names of managers in `managedFields` follow the rules of the option.
#[tokio::test(start_paused = true)]
async fn a_manager_in_managed_fields_has_at_most_128_bytes() {
    let server = Server::start().await;
    let all = "/api/v1/namespaces/default/configmaps";
    let managed = |manager: &str, part: &str| {
        json!({"metadata": {"name": "c", "managedFields": [{
            "manager": manager, "operation": "Update", "apiVersion": "v1", "subresource": part,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}},
        }]}})
    };
    let long = "m".repeat(129);
    let fault = "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes";
    assert_eq!(
        refused(server.create(all, managed(&long, "")).await),
        format!("422 ConfigMap \"c\" is invalid: {fault}")
    );
    assert_eq!(
        refused(server.create(all, managed("m", &"s".repeat(257))).await),
        "422 ConfigMap \"c\" is invalid: metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes"
    );
    server.create(all, managed("m", "")).await.unwrap();
    let patched = server.patch(&format!("{all}/c"), managed(&long, "")).await;
    assert!(refused(patched).contains(fault));
}

/// Claim templates become volumes of the pods.
#[tokio::test(start_paused = true)]
async fn a_stateful_set_may_mount_the_volumes_of_its_claim_templates() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    let set = |pod: Value| {
        named(
            "s",
            json!({"spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        )
    };
    let container =
        json!({"name": "c", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/d"}]});
    let made = server.create(path, set(json!({"containers": [container]}))).await.unwrap();
    assert_eq!(made["spec"]["volumeClaimTemplates"][0]["kind"], "PersistentVolumeClaim");
    let limited = json!({"activeDeadlineSeconds": 1, "restartPolicy": "Never", "containers": []});
    assert_eq!(
        refused(server.create(path, set(limited)).await),
        r#"422 StatefulSet.apps "s" is invalid: [spec.template.spec.containers: Required value, spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always", spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not Supported]"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_name_is_generated_has_the_labels_that_its_template_was_sent_with() {
    let server = Server::start().await;
    let job = |metadata: Value| {
        json!({"metadata": metadata, "spec": {"template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    };
    let generated = server.create(JOBS, job(json!({"generateName": "g-"}))).await.unwrap();
    assert_eq!(generated["metadata"]["labels"], json!({"app": "x"}));
    let owned = &generated["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"];
    assert_eq!(owned["f:labels"], json!({".": {}, "f:app": {}}));
    let template = &generated["spec"]["template"]["metadata"]["labels"];
    assert_eq!(template["job-name"], generated["metadata"]["name"]);
    // Otherwise the Job's labels become those of its pods.
    let named = server.create(JOBS, job(json!({"name": "n"}))).await.unwrap();
    assert_eq!(named["metadata"]["labels"], named["spec"]["template"]["metadata"]["labels"]);
    server.stop().await;
}

/// They are those of the template, and both get the uid.
#[tokio::test(start_paused = true)]
async fn labels_that_a_job_takes_from_its_template_are_owned_and_get_its_uid() {
    let server = Server::start().await;
    let job = |metadata: Value| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pod});
        json!({"metadata": metadata, "spec": {"template": template}})
    };
    let made = server.create(JOBS, job(json!({"name": "j"}))).await.unwrap();
    let labels = made["metadata"]["labels"].as_object().unwrap();
    assert_eq!(labels["app"], "x");
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], made["metadata"]["uid"]);
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"];
    assert_eq!(*owned, json!({".": {}, "f:app": {}}));
    // Its own labels stay as they are, even if they are those of the template.
    let own = json!({"name": "k", "labels": {"app": "x"}});
    let made = server.create(JOBS, job(own)).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"app": "x"}));
    let mut sent = server.get(&format!("{JOBS}/k")).await.unwrap();
    sent["metadata"].as_object_mut().unwrap().remove("labels");
    sent["spec"]["template"]["metadata"]["labels"] = json!({"app": "y"});
    let written = server.update(&format!("{JOBS}/k/status"), sent).await.unwrap();
    assert_eq!(written["metadata"]["labels"], json!({"app": "y"}));
    server.stop().await;
}
