//! Finer rules of the core, apps and batch groups: what changes, orders and older annotations.
use super::{Name, changed, created, fresh, refuses, refuses_changes, refuses_status, set};
use crate::features::FeatureGates;
use crate::kind::rows;
use crate::kind::template::MIRROR;
use serde_json::{Value, json};

const POD: Name = ("", "v1", "Pod");

fn pod(rest: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    for (member, value) in rest.as_object().unwrap() {
        spec[member] = value.clone();
    }
    json!({"spec": spec})
}
fn workload(rest: Value) -> Value {
    let mut object = rest;
    object["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
    object["spec"]["template"] =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": pod(json!({}))["spec"]});
    object
}
/// The warnings for an update.
fn warned((group, _, kind): Name, new: &Value, old: &Value) -> Vec<String> {
    (rows::of(group, kind).unwrap().update_warnings)(new, old)
}

#[test]
fn images_of_a_pod_are_trimmed_after_all_else() {
    refuses(
        POD,
        &pod(json!({})),
        &[(
            "/spec",
            json!({"containers": [{"name": "c", "image": " i"}], "nodeName": "-", "volumes": [
                {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "p"}}]}}]}),
            &[
                "spec.nodeName: Invalid value: \"-\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
                "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
            ],
        )],
    );
}

#[test]
fn a_mirror_pod_has_no_claims() {
    let mut mirror =
        pod(json!({"nodeName": "n", "resourceClaims": [{"name": "-"}, {"name": "a"}]}));
    mirror["metadata"]["annotations"] = json!({MIRROR: "m"});
    const REFUSAL: &str = "[]: Forbidden: static pods do not support resource claims";
    assert_eq!(created(POD, mirror), [REFUSAL, REFUSAL]);
}

#[test]
fn huge_pages_of_a_pod_are_those_of_its_containers() {
    let amounts = json!({"cpu": "1", "hugepages-2Mi": "4Mi"});
    let container = json!({"name": "c", "image": "i", "resources": {"limits": amounts}});
    let whole = json!({"limits": {"cpu": "2", "hugepages-2Mi": "2Mi"}});
    assert_eq!(
        created(POD, pod(json!({"containers": [container], "resources": whole}))),
        [
            "spec.resources.requests[hugepages-2Mi]: Invalid value: \"2Mi\": must be greater than or equal to aggregate container requests of 4Mi",
            "spec.resources.limits[hugepages-2Mi]: Invalid value: \"2Mi\": must be greater than or equal to aggregate container limits of 4Mi",
            "spec.resources.containers[0][hugepages-2Mi].limits: Invalid value: \"4Mi\": must be less than or equal to pod limits of 2Mi",
        ]
    );
}

#[test]
fn a_divisor_fits_its_resource() {
    let variable = |resource: &str| json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": "3"}}}]);
    let file = json!([{"name": "v", "downwardAPI": {"items": [{"path": "p", "resourceFieldRef": {"resource": "limits.cpu", "divisor": "3"}}]}}]);
    let host = json!([{"name": "v", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "spec.host"}}]}}]);
    refuses(
        POD,
        &pod(json!({})),
        &[
            (
                "/spec/containers/0/env",
                variable("x.cpu"),
                &[
                    "spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value: \"x.cpu\": supported values: \"limits.cpu\", \"limits.ephemeral-storage\", \"limits.memory\", \"requests.cpu\", \"requests.ephemeral-storage\", \"requests.memory\"",
                ],
            ),
            (
                "/spec/volumes",
                file,
                &[
                    "spec.volumes[0].downwardAPI.resourceFieldRef.containerName: Required value",
                    "spec.volumes[0].downwardAPI.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource",
                ],
            ),
            (
                "/spec/volumes",
                host,
                &[
                    "spec.volumes[0].downwardAPI.fieldRef.fieldPath: Unsupported value: \"spec.nodeName\": supported values: \"metadata.annotations\", \"metadata.labels\", \"metadata.name\", \"metadata.namespace\", \"metadata.uid\"",
                ],
            ),
        ],
    );
}

#[test]
fn requests_are_compared_before_they_are_counted_in_pages() {
    let resources = json!({"requests": {"cpu": "1", "hugepages-2Mi": "3Mi"}, "limits": {"hugepages-2Mi": "2Mi"}});
    refuses(
        POD,
        &pod(json!({})),
        &[(
            "/spec/containers/0/resources",
            resources,
            &[
                "spec.containers[0].resources.requests: Invalid value: \"3Mi\": must be equal to hugepages-2Mi limit of 2Mi",
                "spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
            ],
        )],
    );
}

#[test]
fn rarer_volumes() {
    const PAIRS: &str = "spec.volumes[0].quobyte.registry: Invalid value: \"a,b\": must be a host:port pair or multiple pairs separated by commas";
    let iscsi =
        |iqn: &str| json!([{"name": "v", "iscsi": {"targetPortal": "p", "lun": 0, "iqn": iqn}}]);
    refuses(
        POD,
        &pod(json!({})),
        &[
            (
                "/spec/volumes",
                json!([{"name": "v", "quobyte": {"registry": "a,b", "volume": "w"}}]),
                &[PAIRS, PAIRS],
            ),
            (
                "/spec/volumes",
                json!([{"name": "v", "azureDisk": {"diskName": "d", "diskURI": "u", "kind": ""}}]),
                &[
                    "spec.volumes[0].azureDisk.kind: Unsupported value: \"\": supported values: \"Dedicated\", \"Managed\", \"Shared\"",
                    "spec.volumes[0].azureDisk.diskURI: Unsupported value: \"u\": supported values: \"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd\"",
                ],
            ),
            ("/spec/volumes", iscsi("iqn.2003-01.com.x:a^\u{a0}b"), &[]),
            (
                "/spec/volumes",
                iscsi("iqn.2003-01.com.x:a b"),
                &[
                    "spec.volumes[0].iscsi.iqn: Invalid value: \"iqn.2003-01.com.x:a b\": must be valid format",
                ],
            ),
        ],
    );
}

/// A container ends for good unless its rules, its policy or its pod's says otherwise.
#[test]
fn containers_that_restart_leave_their_end() {
    const ENDED: [&str; 1] = [
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
    ];
    const FREE: [&str; 0] = [];
    let rule = |action: &str, operator: &str| json!([{"action": action, "exitCodes": {"operator": operator, "values": [42]}}]);
    let cases: [(Value, &str, i64, &[&str]); 12] = [
        (json!({}), "Always", 0, &FREE),
        (json!({}), "OnFailure", 1, &FREE),
        (json!({}), "OnFailure", 0, &ENDED),
        (json!({}), "Never", 1, &ENDED),
        (json!({"restartPolicy": "Never"}), "Always", 1, &ENDED),
        (json!({"restartPolicy": "Always"}), "Never", 0, &FREE),
        (json!({"restartPolicy": "OnFailure"}), "Never", 0, &ENDED),
        (json!({"restartPolicy": "OnFailure"}), "Never", 1, &FREE),
        (
            json!({"restartPolicy": "Never", "restartPolicyRules": rule("Restart", "In")}),
            "Never",
            42,
            &FREE,
        ),
        (
            json!({"restartPolicy": "Never", "restartPolicyRules": rule("Restart", "NotIn")}),
            "Never",
            42,
            &ENDED,
        ),
        (
            json!({"restartPolicy": "Never", "restartPolicyRules": rule("RestartAllContainers", "In")}),
            "Never",
            1,
            &FREE,
        ),
        (json!({"name": "other"}), "Always", 1, &ENDED),
    ];
    for (rest, policy, code, expected) in cases {
        let mut container = json!({"name": "c", "image": "i"});
        for (member, value) in rest.as_object().unwrap() {
            container[member] = value.clone();
        }
        let mut old = fresh(POD, pod(json!({"containers": [container], "restartPolicy": policy})));
        old["status"]["containerStatuses"] =
            json!([{"name": "c", "state": {"terminated": {"exitCode": code}}}]);
        let mut new = old.clone();
        new["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
        assert_eq!(changed(POD, &old, &new, true), expected, "{rest} {policy} {code}");
    }
}

#[test]
fn a_status_of_a_pod_is_checked_in_the_order_of_its_members() {
    let mut old = fresh(POD, pod(json!({"nodeName": "n"})));
    old["status"]["qosClass"] = "BestEffort".into();
    let mut new = old.clone();
    new["status"] = json!({"nominatedNodeName": "m", "observedGeneration": -1, "qosClass": "Burstable",
        "podIPs": [{"ip": "x"}]});
    assert_eq!(
        changed(POD, &old, &new, true),
        [
            "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node",
            "status.observedGeneration: Invalid value: -1: must be a non-negative integer",
            "status.qosClass: Invalid value: \"Burstable\": field is immutable",
            "status.podIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ]
    );
}

#[test]
fn annotations_for_init_containers_are_dropped() {
    let annotations = json!({"pod.beta.kubernetes.io/init-containers": "[]", "a": "b"});
    let mut new = pod(json!({}));
    new["metadata"] = json!({"annotations": annotations});
    assert_eq!(fresh(POD, new)["metadata"]["annotations"], json!({"a": "b"}));
    let mut set = workload(json!({}));
    set["spec"]["template"]["metadata"]["annotations"] =
        json!({"pod.alpha.kubernetes.io/init-container-statuses": "[]"});
    let set = fresh(("apps", "v1", "Deployment"), set);
    assert_eq!(set["spec"]["template"]["metadata"], json!({"labels": {"a": "b"}}));
}

#[test]
fn annotations_of_services() {
    let name: Name = ("", "v1", "Service");
    const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let sample = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    refuses(
        name,
        &sample,
        &[
            (
                "/metadata/annotations",
                json!({"service.kubernetes.io/topology-mode": "Auto", "service.kubernetes.io/topology-aware-hints": "Disabled"}),
                &[
                    "metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: \"Auto\": must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified",
                ],
            ),
            ("/metadata/annotations", json!({RANGES: " 10.0.0.0/8, 192.168.0.0/16 "}), &[]),
            ("/metadata/annotations", json!({RANGES: " "}), &[]),
            (
                "/metadata/annotations",
                json!({RANGES: "10.0.0.0/8,x"}),
                &[
                    "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                ],
            ),
        ],
    );
    let mut inside =
        json!({"spec": {"ports": [{"port": 80, "nodePort": 1}, {"port": 81, "nodePort": 1}]}});
    inside["metadata"]["annotations"] = json!({RANGES: "10.0.0.0/8"});
    let [first, second] = [0, 1].map(|i| {
        format!("spec.ports[{i}].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'")
    });
    let third = "spec.ports[1].nodePort: Duplicate value: 1".to_owned();
    let fourth = format!(
        "metadata.annotations[{RANGES}]: Forbidden: may only be used when `type` is 'LoadBalancer'"
    );
    // Ports get names, or they would be reported, too.
    set(&mut inside, "/spec/ports/0/name", &json!("a"));
    set(&mut inside, "/spec/ports/1/name", &json!("b"));
    assert_eq!(created(name, inside), [first, second, third, fourth]);
    refuses_status(
        name,
        &json!({"spec": {"ports": [{"port": 80}]}}),
        &[(
            json!({"loadBalancer": {"ingress": [{"ip": "x"}]}}),
            &[
                "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
            ],
        )],
    );
}

#[test]
fn annotations_from_before_taints_and_tolerations_were_members_are_checked() {
    let node = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    const NODE: Name = ("", "v1", "Node");
    const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
    const AVOIDED: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
    const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
    let taints = r#"[{"key": "a", "effect": "NoSchedule"}, {"Key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "x"}]"#;
    let avoided = r#"{"preferAvoidPods": [{}, {"podSignature": {"podController": {"controller": false}}}, {"podSignature": {"podController": {"controller": true}}}]}"#;
    assert_eq!(
        created(NODE, node(json!({TAINTS: taints, AVOIDED: avoided}))),
        [
            "metadata.annotations.scheduler.alpha.kubernetes.io/taints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"a\"}: taints must be unique by key and effect pair",
            "metadata.annotations.scheduler.alpha.kubernetes.io/taints[2].effect: Unsupported value: \"x\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature: Required value",
            "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[1].PodSignature.PodController.Controller: Invalid value: false: must point to a controller",
        ]
    );
    assert_eq!(
        created(NODE, node(json!({TAINTS: "x", AVOIDED: "[]"}))),
        [
            "metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/taints\": invalid character 'x' looking for beginning of value",
            "metadata.annotations.AvoidPods: Invalid value: \"scheduler.alpha.kubernetes.io/preferAvoidPods\": json: cannot unmarshal array into Go value of type v1.AvoidPods",
        ]
    );
    let mut tolerant = pod(json!({}));
    tolerant["metadata"]["annotations"] =
        json!({TOLERATIONS: r#"[{"key": "a", "operator": "Exists", "value": "b"}]"#});
    assert_eq!(
        created(POD, tolerant.clone()),
        [
            "metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"
        ]
    );
    tolerant["metadata"]["annotations"] = json!({TOLERATIONS: r#"[{"key": 1}]"#});
    assert_eq!(
        created(POD, tolerant),
        [
            "metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/tolerations\": json: cannot unmarshal number into Go struct field Toleration.Key of type string"
        ]
    );
}

#[test]
fn the_source_of_a_nodes_configuration_is_whole() {
    const NODE: Name = ("", "v1", "Node");
    let map = json!({"namespace": "n", "name": "-", "kubeletConfigKey": "k", "uid": "u"});
    let mut old = fresh(NODE, json!({}));
    old["spec"] = json!({"configSource": {}});
    let mut new = old.clone();
    new["spec"]["configSource"]["configMap"] = map.clone();
    new["status"]["config"] = json!({"assigned": {"configMap": map}, "active": {}});
    assert_eq!(
        changed(NODE, &old, &new, true),
        [
            "spec.configSource.configMap.uid: Forbidden: uid must not be set in spec",
            "spec.configSource.configMap.name: Invalid value: \"-\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "status.config.assigned.configMap.resourceVersion: Required value",
            "status.config.assigned.configMap.name: Invalid value: \"-\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "status.config.active: Invalid value: {}: exactly one reference subfield must be non-nil",
        ]
    );
}

#[test]
fn nodes_are_registered_with_any_addresses() {
    let name: Name = ("", "v1", "Node");
    let twice = json!([{"type": "InternalIP", "address": "1.1.1.1"}, {"type": "InternalIP", "address": "1.1.1.1"}]);
    let row = rows::of(name.0, name.2).unwrap();
    let mut node = fresh(name, json!({}));
    node["status"]["addresses"] = twice;
    let mut errors = crate::kind::Report::new(FeatureGates::default());
    (row.validate)(&node, None, &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    let old = fresh(name, json!({"spec": {"podCIDRs": ["10.0.0.0/24", "2001:db8::/64"]}}));
    let mut new = old.clone();
    new["status"]["addresses"] = node["status"]["addresses"].clone();
    new["status"]["nodeInfo"]["swap"] = json!({"capacity": 0});
    assert_eq!(
        changed(name, &old, &new, true),
        ["status.addresses[1]: Duplicate value: {\"address\":\"1.1.1.1\",\"type\":\"InternalIP\"}"]
    );
    let mut errors = crate::kind::Report::new(FeatureGates::default());
    (row.validate)(&new, None, &mut errors);
    assert_eq!(
        super::texts(&errors),
        ["metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero"]
    );
    const RANGES: &str =
        "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid";
    let mut new = old.clone();
    new["spec"]["podCIDRs"] = json!(["10.1.0.0/24", "2001:db8:1::/64"]);
    assert_eq!(changed(name, &old, &new, false), [RANGES, RANGES]);
}

#[test]
fn a_volume_without_mount_options_has_no_annotation_for_them() {
    let name: Name = ("", "v1", "PersistentVolume");
    let annotations = json!({"volume.beta.kubernetes.io/mount-options": "ro"});
    let mut volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/e"}}});
    volume["metadata"]["annotations"] = annotations;
    assert_eq!(created(name, volume.clone()), [""; 0]);
    volume["spec"].as_object_mut().unwrap().remove("nfs");
    volume["spec"]["hostPath"] = json!({"path": "/p"});
    assert_eq!(
        created(name, volume),
        [
            "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"
        ]
    );
}

#[test]
fn the_annotation_with_the_class_of_a_claim_stays() {
    let name: Name = ("", "v1", "PersistentVolumeClaim");
    const KEY: &str = "volume.beta.kubernetes.io/storage-class";
    let mut sample = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    sample["metadata"]["annotations"] = json!({KEY: "a"});
    refuses_changes(
        name,
        &sample,
        &[
            (
                "/metadata/annotations",
                json!({KEY: "b"}),
                &[
                    "metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: \"b\": field is immutable",
                ],
            ),
            (
                "/metadata/annotations",
                json!({}),
                &[
                    "metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: \"\": field is immutable",
                ],
            ),
            ("/spec/storageClassName", json!("a"), &[]),
        ],
    );
    // The class moves from the annotation to the member.
    let old = fresh(name, sample);
    let mut new = old.clone();
    new["spec"]["storageClassName"] = "a".into();
    new["metadata"]["annotations"] = json!({});
    assert_eq!(changed(name, &old, &new, false), [""; 0]);
}

#[test]
fn quotas_report_each_resource_and_each_conflict() {
    const UNFIT: &str =
        "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource";
    let name: Name = ("", "v1", "ResourceQuota");
    refuses(
        name,
        &json!({"spec": {"hard": {"pods": "1"}}}),
        &[(
            "/spec",
            json!({"hard": {"cpu": "1", "memory": "1", "pods": "1"}, "scopes": ["BestEffort"]}),
            &[UNFIT, UNFIT],
        )],
    );
    let scopes = json!(["Terminating", "NotTerminating", "BestEffort", "NotBestEffort"]);
    let errors = created(name, json!({"spec": {"hard": {"pods": "1"}, "scopes": scopes}}));
    let conflicts = errors.iter().filter(|error| error.ends_with("conflicting scopes"));
    assert_eq!((errors.len(), conflicts.count()), (2, 2), "{errors:?}");
}

#[test]
fn faults_have_the_order_of_the_api() {
    assert_eq!(
        created(
            ("", "v1", "LimitRange"),
            json!({"spec": {"limits": [{"type": "PersistentVolumeClaim", "maxLimitRequestRatio": {"a": "1"}}]}})
        ),
        [
            "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
            "spec.limits[0].maxLimitRequestRatio[a]: Invalid value: \"a\": must be a standard resource type or fully qualified",
        ]
    );
    assert_eq!(
        created(
            ("", "v1", "ReplicationController"),
            json!({"spec": {"replicas": -1, "minReadySeconds": -1}})
        ),
        [
            "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.selector: Required value",
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template: Required value",
        ]
    );
}

/// Very many scopes and resources do not take very long.
#[test]
fn quotas_with_very_many_faults_are_refused() {
    let hard: serde_json::Map<String, Value> =
        (0..5000).map(|i| (format!("hugepages-{i}Mi"), json!("1"))).collect();
    let scopes: Vec<&str> = std::iter::repeat_n("BestEffort", 20_000).collect();
    let errors =
        created(("", "v1", "ResourceQuota"), json!({"spec": {"hard": hard, "scopes": scopes}}));
    assert!(!errors.is_empty());
}

#[test]
fn an_account_that_restricts_secrets_causes_a_warning() {
    let name: Name = ("", "v1", "ServiceAccount");
    let annotated =
        json!({"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}});
    const WARNING: &str = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
    let row = rows::of(name.0, name.2).unwrap();
    assert_eq!((row.warnings)(&annotated), [WARNING]);
    assert_eq!(warned(name, &annotated, &json!({"metadata": {}})), [WARNING]);
    assert_eq!(warned(name, &annotated, &annotated), [""; 0]);
}

#[test]
fn updates_of_workloads_warn_of_the_template_that_the_api_looks_at() {
    let selector = json!({"beta.kubernetes.io/os": "linux"});
    const WARNING: &str = "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead";
    for (kind, of_new, of_old) in
        [("ReplicationController", 0, 1), ("ReplicaSet", 1, 0), ("DaemonSet", 1, 0)]
    {
        let group = if kind == "ReplicationController" { "" } else { "apps" };
        let name: Name = (group, "v1", kind);
        let plain = workload(json!({}));
        let mut odd = plain.clone();
        odd["spec"]["template"]["spec"]["nodeSelector"] = selector.clone();
        odd["metadata"]["generation"] = 2.into();
        assert_eq!(warned(name, &odd, &plain), vec![WARNING; of_new], "{kind}");
        assert_eq!(warned(name, &plain, &odd), vec![WARNING; of_old], "{kind}");
    }
    let mut set = workload(json!({}));
    set["spec"]["template"]["spec"]["nodeSelector"] = selector;
    let mut slower = set.clone();
    slower["spec"]["minReadySeconds"] = 1.into();
    assert_eq!(warned(("apps", "v1", "DaemonSet"), &slower, &set), [""; 0]);
    // Annotations count as a generation of a Deployment.
    let mut noted = set.clone();
    noted["metadata"]["generation"] = 2.into();
    assert_eq!(warned(("apps", "v1", "Deployment"), &noted, &set), [WARNING]);
}

#[test]
fn a_daemon_set_keeps_the_generation_that_it_comes_with() {
    let name: Name = ("apps", "v1", "DaemonSet");
    const KEY: &str = "deprecated.daemonset.template.generation";
    let generation = |annotations: Value| {
        let set = fresh(name, workload(json!({"metadata": {"annotations": annotations}})));
        set["metadata"]["annotations"][KEY].clone()
    };
    assert_eq!(generation(json!({KEY: "4"})), "4");
    assert_eq!(generation(json!({KEY: "-4"})), "1");
    assert_eq!(generation(json!({})), "1");
}

#[test]
fn a_deployment_has_a_number_in_its_annotation() {
    let row = rows::of("apps", "Deployment").unwrap();
    let fault = |text: &str| {
        (row.unreadable)(
            &json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": text}}}),
        )
    };
    assert_eq!((fault(""), fault("3")), (None, None));
    assert_eq!(
        fault("x").unwrap(),
        "failed to parse annotation[deprecated.deployment.rollback.to]=x as int64: strconv.ParseInt: parsing \"x\": invalid syntax"
    );
}

#[test]
fn collisions_are_counted_before_the_parts() {
    refuses_status(
        ("apps", "v1", "Deployment"),
        &workload(json!({})),
        &[(
            json!({"collisionCount": -1, "updatedReplicas": 1}),
            &[
                "status.collisionCount: Invalid value: -1: must be greater than or equal to 0",
                "status.updatedReplicas: Invalid value: 1: cannot be greater than status.replicas",
            ],
        )],
    );
}
