//! Answers of kube-apiserver 1.36 that few of the objects of `cargo xtask validation` ask for.
use super::{changed, context, created, fresh, refuses_changes, refuses_status};
use crate::kind::rows;
use serde_json::{Value, json};

const POD: super::Name = ("", "v1", "Pod");
const JOB: super::Name = ("batch", "v1", "Job");
const SERVICE: super::Name = ("", "v1", "Service");
const CLAIM: super::Name = ("", "v1", "PersistentVolumeClaim");
const DEVICE_CLAIM: super::Name = ("resource.k8s.io", "v1", "ResourceClaim");

fn warned(object: &Value) -> Vec<String> {
    (rows::of("", "Pod").unwrap().warnings)(object)
}

#[test]
fn files_that_hide_each_other_cause_warnings() {
    let items = json!([{"key": "k", "path": "a/"}, {"key": "l", "path": "a/b"}, {"key": "m", "path": "ab"}]);
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let volumes = json!([
        {"name": "c", "configMap": {"name": "m", "items": items}},
        {"name": "s", "secret": {"secretName": "t", "items": items}},
        {"name": "d", "downwardAPI": {"items": items}},
        {"name": "p", "projected": {"sources": [
            {}, token, {"secret": {"name": "n", "items": [{"key": "k", "path": "token/x"}]}}, token,
        ]}},
    ]);
    assert_eq!(
        warned(&json!({"metadata": {"name": "x"}, "spec": {"volumes": volumes}})),
        [
            r#"volume "c" (ConfigMap "m"): overlapping paths: "a/b" with "a""#,
            r#"volume "s" (Secret "t"): overlapping paths: "a/b" with "a""#,
            r#"volume "d" (DownwardAPI): overlapping paths: "a/b" with "a""#,
            r#"volume "p" (Projected) has no sources provided"#,
            r#"volume "p" (Projected): overlapping paths: "token/x" (Secret "n") with "token" (ServiceAccountToken)"#,
            r#"volume "p" (Projected): overlapping paths: "token" (ServiceAccountToken) with "token" (ServiceAccountToken)"#,
            r#"volume "p" (Projected): overlapping paths: "token" (ServiceAccountToken) with "token/x" (Secret "n")"#,
        ]
    );
}

#[test]
fn names_of_sources_of_variables_may_end_in_a_dash() {
    let pod = |name: &str| json!({"spec": {"containers": [{"name": "c", "image": "x", "envFrom": [{"secretRef": {"name": name}}]}]}});
    assert_eq!(created(POD, pod("a-")), [""; 0]);
    assert_eq!(created(POD, pod("-")).len(), 1);
}

#[test]
fn what_nodes_report_of_resources_is_about_containers() {
    let container = json!({"name": "c", "image": "x", "resources": {
        "requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"},
        "claims": [{"name": "k", "request": "r"}],
    }});
    let pod = json!({"spec": {
        "containers": [container],
        "resourceClaims": [{"name": "k", "resourceClaimName": "x"}],
    }});
    let report = |name: &str, resources: Value| json!({"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [{"name": name, "resources": resources}]}]});
    let path = "status.containerStatuses[0].allocatedResourcesStatus[0]";
    let claim = json!({"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [
        {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"},
        {"containerName": "d", "resourceName": "memory", "requestName": "r"},
        {"containerName": "c", "resourceName": "memory", "requestName": "r"},
    ]}});
    let mapping = "status.extendedResourceClaimStatus.requestMappings";
    refuses_status(
        POD,
        &pod,
        &[
            (report("example.com/gpu", json!([{"resourceID": "a", "health": "Healthy"}])), &[]),
            (report("claim:k/r", json!([])), &[]),
            (
                report("memory", json!([])),
                &[&format!(
                    "{path}.name: Invalid value: \"memory\": must match one of the container's resource requests"
                )],
            ),
            (
                report("claim:k", json!([])),
                &[&format!(
                    "{path}.name: Invalid value: \"claim:k\": must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
                )],
            ),
            (
                report(
                    "example.com/gpu",
                    json!([{"resourceID": "a", "health": "x"}, {"resourceID": "a", "health": "Unknown"}]),
                ),
                &[
                    &format!(
                        "{path}.resources[0].health: Unsupported value: \"x\": supported values: \"Healthy\", \"Unhealthy\", \"Unknown\""
                    ),
                    &format!("{path}.resources[1].resourceID: Duplicate value: \"a\""),
                ],
            ),
            (
                claim,
                &[
                    &format!(
                        "{mapping}[1].containerName: Invalid value: \"d\": must match the name of an entry in spec.initContainers.name or spec.containers.name"
                    ),
                    &format!(
                        "{mapping}[2].resourceName: Invalid value: \"memory\": must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"
                    ),
                ],
            ),
            (
                json!({"extendedResourceClaimStatus": {"resourceClaimName": "", "requestMappings": []}}),
                &[
                    &format!("{mapping}: Required value: at least one request mapping is required"),
                    "status.extendedResourceClaimStatus.resourceClaimName: Required value",
                ],
            ),
            (
                json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "x"}]}),
                &[
                    "status.podIPs[1]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                    "status.podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: x",
                    "status.podIPs: Invalid value: [{\"ip\":\"10.0.0.1\"},{\"ip\":\"x\"}]: may specify no more than one IP for each IP family",
                ],
            ),
        ],
    );
}

#[test]
fn the_last_gate_of_a_name_is_refused() {
    let gate = json!({"name": "example.com/gate"});
    refuses_changes(
        POD,
        &json!({"spec": {"containers": [{"name": "c", "image": "x"}]}}),
        &[(
            "/spec/schedulingGates",
            json!([gate, gate]),
            &[
                "spec.schedulingGates[1]: Duplicate value: \"example.com/gate\"",
                "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/gate'",
            ],
        )],
    );
}

#[test]
fn a_job_of_an_unknown_mode_is_not_refused_for_its_indexes() {
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
    let spec = json!({"completionMode": "x", "backoffLimitPerIndex": 1, "template": template});
    assert_eq!(
        created(JOB, json!({"spec": spec})),
        [
            "spec.completionMode: Unsupported value: \"x\": supported values: \"NonIndexed\", \"Indexed\""
        ]
    );
    let waiting = json!({"spec": {"suspend": true, "template": template}});
    refuses_changes(JOB, &waiting, &[("/spec/template/spec/affinity", json!({}), &[])]);
    assert_eq!(fresh(JOB, waiting)["spec"]["manualSelector"], false);
}

#[test]
fn a_class_never_changes_its_handler_and_a_map_its_data() {
    let class = ("node.k8s.io", "v1", "RuntimeClass");
    let immutable = "handler: Invalid value: \"\": field is immutable";
    refuses_changes(
        class,
        &json!({"handler": "runc"}),
        &[("/handler", json!(""), &["handler: Required value", immutable])],
    );
    let map = ("", "v1", "ConfigMap");
    refuses_changes(
        map,
        &json!({"immutable": true, "data": {"a": "b"}}),
        &[(
            "/data",
            json!({"..": "c"}),
            &[
                "data: Forbidden: field is immutable when `immutable` is set",
                "data[..]: Invalid value: \"..\": must not be '..'",
            ],
        )],
    );
}

#[test]
fn sources_of_data_may_be_of_any_group_if_they_had_one() {
    let claim = |group: &str| {
        json!({"spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSourceRef": {"apiGroup": group, "kind": "A", "name": "a"},
        }})
    };
    assert_eq!(created(CLAIM, claim("a b")).len(), 2);
    let old = fresh(CLAIM, claim("ex.io"));
    let mut new = old.clone();
    for source in ["dataSource", "dataSourceRef"] {
        new["spec"][source]["apiGroup"] = "a b".into();
    }
    let immutable = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
    assert_eq!(changed(CLAIM, &old, &new, false), [immutable]);
    let mut new = old.clone();
    new["spec"]["selector"] = json!({});
    assert_eq!(changed(CLAIM, &old, &new, false), [immutable]);
}

#[test]
fn a_service_without_a_second_family_says_so() {
    let of = |more: Value| {
        let mut spec = json!({"ports": [{"port": 80}], "selector": {"a": "b"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        created(SERVICE, json!({"spec": spec}))
    };
    assert_eq!(
        of(json!({"clusterIP": "fe80::1"})),
        [
            "spec.clusterIPs[0]: Invalid value: [\"fe80::1\"]: IPv6 is not configured on this cluster"
        ]
    );
    assert_eq!(
        of(json!({"ipFamilyPolicy": "RequireDualStack"})),
        [
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services"
        ]
    );
    assert_eq!(
        of(json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]})),
        ["spec.ipFamilies[1]: Invalid value: \"IPv6\": not configured on this cluster"]
    );
    assert_eq!(
        of(json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]})),
        [
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        ]
    );
    assert_eq!(of(json!({"ipFamilyPolicy": "PreferDualStack"})), [""; 0]);
    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.b", "internalTrafficPolicy": "Cluster"}});
    assert!(fresh(SERVICE, external)["spec"].get("internalTrafficPolicy").is_none());
}

#[test]
fn reports_about_devices_follow_their_allocation() {
    let device = |name: &str| json!({"driver": "ex.io", "pool": "p", "device": name});
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let mut old = fresh(DEVICE_CLAIM, json!({"spec": {"devices": {"requests": [request]}}}));
    old["status"] = json!({
        "allocation": {"devices": {"results": [device("d"), device("e")]}},
        "devices": [device("d"), device("e")],
    });
    let row = rows::of("resource.k8s.io", "ResourceClaim").unwrap();
    let mut new = old.clone();
    new["status"]["allocation"]["devices"]["results"] = json!([device("e")]);
    (row.prepare_status)(&context(), &mut new, &old);
    assert_eq!(new["status"]["devices"], json!([device("e")]));
    new["status"].as_object_mut().unwrap().remove("allocation");
    (row.prepare_status)(&context(), &mut new, &old);
    assert!(new["status"].get("devices").is_none());

    let mut new = old.clone();
    new["status"]["devices"] = json!([device(""), device("d"), device("d")]);
    new["status"]["devices"][1]["networkData"] =
        json!({"ips": ["10.0.0.1/24", "10.0.0.1/24", "10.0.0.1", "::ffff:10.0.0.1/120"]});
    let shown =
        |name: &str| format!(r#"{{"Driver":"ex.io","Pool":"p","Device":"{name}","ShareID":""}}"#);
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let ips = "status.devices[1].networkData.ips";
    assert_eq!(
        changed(DEVICE_CLAIM, &old, &new, true),
        [
            format!("status.devices[0].device: Invalid value: \"\": {label}"),
            format!(
                "status.devices[0]: Invalid value: {}: must be an allocated device in the claim",
                shown("")
            ),
            format!(
                "{ips}[2]: Invalid value: \"10.0.0.1\": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
            ),
            format!(
                "{ips}[3]: Invalid value: \"::ffff:10.0.0.1/120\": must be in canonical form (\"10.0.0.1/24\")"
            ),
            format!("{ips}[1]: Duplicate value: \"10.0.0.1/24\""),
            format!("status.devices[2]: Duplicate value: {}", shown("d")),
        ]
    );
}

#[test]
fn taints_of_devices_are_dated_and_local_apis_are_available() {
    let slice = ("resource.k8s.io", "v1", "ResourceSlice");
    let taint = json!({"key": "a.b/c", "effect": "NoSchedule"});
    let slice = fresh(slice, json!({"spec": {"devices": [{"name": "d", "taints": [taint]}]}}));
    assert_eq!(slice["spec"]["devices"][0]["taints"][0]["timeAdded"], "1970-01-01T00:00:00Z");
    let api = ("apiregistration.k8s.io", "v1", "APIService");
    let local = fresh(api, json!({"spec": {"group": "ex.io", "version": "v1"}}));
    assert_eq!(local["status"]["conditions"][0]["reason"], "Local");
    let remote = json!({"spec": {"group": "ex.io", "version": "v1", "service": {"name": "s"}}});
    assert!(fresh(api, remote)["status"].get("conditions").is_none());
}

#[test]
fn numbers_of_a_strategy_may_be_texts() {
    let set = ("apps", "v1", "DaemonSet");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let spec = json!({
        "selector": {"matchLabels": {"a": "b"}},
        "template": template,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "80", "maxUnavailable": 1}},
    });
    let surge = "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: \"80\"";
    assert_eq!(
        created(set, json!({"spec": spec})),
        [
            format!(
                "{surge}: a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            ),
            format!("{surge}: may not be set when maxUnavailable is non-zero"),
        ]
    );
    let scaler = ("autoscaling", "v2", "HorizontalPodAutoscaler");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let spec = json!({"minReplicas": 0, "maxReplicas": 3, "scaleTargetRef": target});
    assert_eq!(
        created(scaler, json!({"spec": spec})),
        [
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
        ]
    );
}

#[test]
fn only_the_last_resource_is_compared_with_all_of_them() {
    let hooks = ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration");
    let of = |resources: Value| {
        let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources});
        let hook = json!({
            "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://a.b"}, "rules": [rule],
        });
        created(hooks, json!({"webhooks": [hook]})).len()
    };
    assert_eq!([of(json!(["pods", "*"])), of(json!(["*", "pods", "pods/status"]))], [0, 1]);
}

#[test]
fn a_status_counts_in_the_order_of_its_kind() {
    refuses_status(
        ("apps", "v1", "ReplicaSet"),
        &json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {}}}),
        &[(
            json!({"replicas": -1, "terminatingReplicas": -2, "observedGeneration": -3}),
            &[
                "status.replicas: Invalid value: -1: must be greater than or equal to 0",
                "status.observedGeneration: Invalid value: -3: must be greater than or equal to 0",
                "status.terminatingReplicas: Invalid value: -2: must be greater than or equal to 0",
                "status.fullyLabeledReplicas: Invalid value: 0: cannot be greater than status.replicas",
                "status.readyReplicas: Invalid value: 0: cannot be greater than status.replicas",
                "status.availableReplicas: Invalid value: 0: cannot be greater than status.replicas",
            ],
        )],
    );
    let mut namespace = fresh(("", "v1", "Namespace"), json!({}));
    namespace["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(
        changed(("", "v1", "Namespace"), &namespace, &namespace, true),
        [
            "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
        ]
    );
}

#[test]
fn an_allocation_is_checked_before_it_is_stored() {
    let name = ("resource.k8s.io", "v1", "ResourceClaim");
    let sample = json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}});
    let result = json!({"request": "r", "driver": "ex.io", "pool": "p", "device": "d"});
    let with = |more: Value| {
        let mut result = result.clone();
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"allocation": {"devices": {"results": [result]}}})
    };
    let config = |requests: &[&str]| json!({"source": "FromClass", "requests": requests, "opaque": {"driver": "ex.io", "parameters": {}}});
    let configs =
        |n: usize| json!({"allocation": {"devices": {"config": vec![config(&["r"]); n]}}});
    const AT: &str = "status.allocation.devices.results[0]";
    const WHAT: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    refuses_status(
        name,
        &sample,
        &[
            (with(json!({"shareID": "3b1c2b0e-8f5b-4b7c-9a43-0b8a6f0c5c11"})), &[]),
            (
                with(json!({"shareID": "x"})),
                &[&format!(
                    "{AT}.shareID: Invalid value: \"x\": error validating uid: invalid UUID length: 1"
                )],
            ),
            (with(json!({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]})), &[]),
            (
                with(json!({"bindingConditions": ["a"], "bindingFailureConditions": ["a"]})),
                &[&format!(
                    "{AT}.bindingFailureConditions[0]: Invalid value: \"a\": bindingFailureConditions must not overlap with bindingConditions"
                )],
            ),
            (configs(64), &[]),
            (
                configs(65),
                &["status.allocation.devices.config: Too many: 65: must have at most 64 items"],
            ),
            // Duplicates come last.
            (
                json!({"allocation": {"devices": {"config": [config(&["r", "r", "x"])]}}}),
                &[
                    &format!(
                        "status.allocation.devices.config[0].requests[2]: Invalid value: \"x\": {WHAT}"
                    ),
                    "status.allocation.devices.config[0].requests[1]: Duplicate value: \"r\"",
                ],
            ),
            (
                json!({"allocation": {"nodeSelector": {"nodeSelectorTerms": []}}}),
                &[
                    "status.allocation.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term",
                ],
            ),
        ],
    );
}
