//! What `cargo xtask validation` has shown: answers of kube-apiserver 1.36 to odd objects.
use super::{changed, context, created, fresh, refuses, refuses_changes, refuses_status};
use crate::kind::address::{cidr_warnings, ip_warning};
use crate::kind::at::{same, same_in_all};
use crate::kind::rows;
use serde_json::{Value, json};

fn warned(group: &str, kind: &str, object: &Value) -> Vec<String> {
    (rows::of(group, kind).unwrap().warnings)(object)
}
fn warned_of_update(group: &str, kind: &str, new: &Value, old: &Value) -> Vec<String> {
    (rows::of(group, kind).unwrap().update_warnings)(new, old)
}

#[test]
fn a_scale_target_names_a_group() {
    let name = ("autoscaling", "v2", "HorizontalPodAutoscaler");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let sample = json!({"spec": {"maxReplicas": 3, "scaleTargetRef": target, "metrics": [metric]}});
    const TYPES: &str = "spec.metrics[0].type: Unsupported value: \"x\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"";
    refuses(
        name,
        &sample,
        &[
            (
                "/spec/scaleTargetRef/apiVersion",
                json!("v1"),
                &[
                    "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
                ],
            ),
            // Reported twice, as by the original.
            ("/spec/metrics/0/type", json!("x"), &[TYPES, TYPES]),
            (
                "/spec/metrics/0/resource/target/type",
                json!(""),
                &[
                    "spec.metrics[0].resource.target.type: Required value: must specify a metric target type",
                    "spec.metrics[0].resource.target.type: Invalid value: \"\": must be either Utilization, Value, or AverageValue",
                ],
            ),
        ],
    );
}

#[test]
fn a_status_does_not_approve_a_certificate() {
    let name = ("certificates.k8s.io", "v1", "CertificateSigningRequest");
    let conditions = json!({"conditions": [{"type": "Approved", "status": "True"}]});
    let old = json!({"metadata": {"name": "x"}, "spec": {}, "status": {}});
    let mut new = old.clone();
    new["status"] = conditions;
    assert_eq!(
        changed(name, &old, &new, true),
        ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]
    );
}

#[test]
fn the_metadata_of_a_claim_template_has_labels_and_annotations_only() {
    let name = ("resource.k8s.io", "v1", "ResourceClaimTemplate");
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let sample = json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [request]}}}});
    refuses(
        name,
        &sample,
        &[
            ("/spec/metadata/name", json!("x"), &["spec.metadata.name: Forbidden: cannot be set"]),
            (
                "/spec/metadata/generateName",
                json!("x"),
                &["spec.metadata.generateName: Forbidden: cannot be set"],
            ),
        ],
    );
}

#[test]
fn a_list_that_is_empty_is_the_same_as_none_where_a_spec_is_immutable() {
    let name = ("resource.k8s.io", "v1", "ResourceClaim");
    let mut none = fresh(name, json!({"spec": {"devices": {}}}));
    none["spec"]["devices"] = json!({"requests": null});
    let mut empty = none.clone();
    empty["spec"]["devices"]["requests"] = json!([]);
    assert_eq!(changed(name, &none, &empty, false), [""; 0]);
    assert_eq!(changed(name, &empty, &none, false), [""; 0]);
}

/// Each level is looked at once, also if all are the same.
#[test]
fn deep_objects_are_compared_level_by_level() {
    let deep = |last: Value| (0..100).fold(last, |inner, _| json!({"a": inner, "b": 1}));
    assert!(same_in_all(&deep(Value::Null), &deep(json!([]))));
    assert!(same(&deep(Value::Null), &deep(json!([]))));
    assert!(!same(&deep(json!([1])), &deep(json!([]))));
}

#[test]
fn a_selector_of_every_pod_is_another_one_than_none() {
    let name = ("batch", "v1", "Job");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"manualSelector": true, "selector": {}, "template": template});
    let job = fresh(name, json!({"spec": spec}));
    let mut without = job.clone();
    without["spec"].as_object_mut().unwrap().remove("selector");
    let errors = changed(name, &job, &without, false);
    let immutable = "spec.selector: Invalid value: null: field is immutable";
    assert!(errors.iter().any(|error| error == immutable), "{errors:?}");
}

#[test]
fn binding_conditions_come_in_two_lists() {
    let name = ("resource.k8s.io", "v1", "ResourceSlice");
    let sample = json!({"spec": {"driver": "ex.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d", "bindingConditions": ["a"], "bindingFailureConditions": ["b"]}]}});
    refuses(
        name,
        &sample,
        &[
            (
                "/spec/devices/0/bindingFailureConditions",
                json!(["a"]),
                &[
                    "spec.devices[0].bindingFailureConditions[0]: Invalid value: \"a\": bindingFailureConditions must not overlap with bindingConditions",
                ],
            ),
            (
                "/spec/devices/0/bindingFailureConditions",
                Value::Null,
                &[
                    "spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
                ],
            ),
        ],
    );
}

#[test]
fn the_single_range_of_a_node_wins() {
    let name = ("", "v1", "Node");
    let node = fresh(name, json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["x"]}}));
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
    let node = fresh(name, json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}}));
    assert_eq!(node["spec"]["podCIDR"], "10.0.0.0/24");
    assert_eq!(
        created(name, json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.0.1/8"]}})),
        [
            "spec.podCIDRs[1]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
            "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.0.1/8\"]: may specify no more than one CIDR for each IP family",
        ]
    );
    assert_eq!(
        created(name, json!({"spec": {"podCIDRs": ["10.0.0.0/24", "x"]}})),
        [
            "spec.podCIDRs[1]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)",
            "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"x\"]: may specify no more than one CIDR for each IP family",
        ]
    );
}

#[test]
fn sources_of_data_are_in_both_fields() {
    let name = ("", "v1", "PersistentVolumeClaim");
    let source = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "a"});
    let claim = |member: &str, source: &Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        spec[member] = source.clone();
        fresh(name, json!({"spec": spec}))
    };
    for member in ["dataSource", "dataSourceRef"] {
        let claim = claim(member, &source);
        assert_eq!(claim["spec"]["dataSource"], source);
        assert_eq!(claim["spec"]["dataSourceRef"], source);
    }
    // Neither a claim nor a snapshot, in the older field only.
    let other = json!({"apiGroup": "ex.io", "kind": "Bucket", "name": "a"});
    assert_eq!(claim("dataSource", &other)["spec"].get("dataSource"), None);
    assert_eq!(claim("dataSourceRef", &other)["spec"]["dataSource"], other);
    // Of another namespace.
    let far = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "b"});
    assert_eq!(claim("dataSourceRef", &far)["spec"].get("dataSourceRef"), None);
    // A claim that was stored with one of them may be changed.
    let mut old = claim("dataSource", &source);
    let new = old.clone();
    old["spec"].as_object_mut().unwrap().remove("dataSourceRef");
    assert_eq!(changed(name, &old, &new, false), [""; 0]);
}

#[test]
fn a_new_phase_of_a_volume_has_a_new_time() {
    let mut volume = json!({"status": {"phase": "Bound"}});
    let old = json!({"status": {"phase": "Available", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}});
    let prepare = rows::of("", "PersistentVolume").unwrap().prepare_status;
    prepare(&context(), &mut volume, &old);
    assert_eq!(volume["status"]["lastPhaseTransitionTime"], "1970-01-01T00:00:00Z");
    let mut volume = json!({"status": {"phase": "Available"}});
    prepare(&context(), &mut volume, &old);
    assert_eq!(volume["status"]["lastPhaseTransitionTime"], "2020-01-01T00:00:00Z");
}

#[test]
fn what_the_server_keeps_of_references_and_topology() {
    let account = fresh(
        ("", "v1", "ServiceAccount"),
        json!({"secrets": [{"name": "a", "namespace": "b", "kind": "Secret"}]}),
    );
    assert_eq!(account["secrets"], json!([{"name": "a"}]));
    let endpoint = json!({"addresses": ["10.1.2.3"], "deprecatedTopology": {"a": "b"}});
    let slice = fresh(
        ("discovery.k8s.io", "v1", "EndpointSlice"),
        json!({"addressType": "IPv4", "endpoints": [endpoint], "ports": []}),
    );
    assert_eq!(slice["endpoints"], json!([{"addresses": ["10.1.2.3"], "conditions": {}}]));
}

#[test]
fn deprecated_and_ignored_members_cause_warnings() {
    let service = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "externalIPs": ["203.0.113.1"], "externalName": "a", "trafficDistribution": "PreferClose"}});
    let expected = [
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    ];
    assert_eq!(warned("", "Service", &service), expected);
    assert_eq!(warned_of_update("", "Service", &service, &service), expected);
    let headless = json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "externalIPs": ["203.0.113.1"], "sessionAffinity": "ClientIP"}});
    assert_eq!(
        warned("", "Service", &headless),
        [
            "spec.externalIPs is ignored for headless services",
            "spec.SessionAffinity is ignored for headless services",
        ]
    );
    let volume = json!({"spec": {"persistentVolumeReclaimPolicy": "Recycle", "rbd": {}}});
    assert_eq!(
        warned("", "PersistentVolume", &volume),
        [
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
            "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
        ]
    );
    let claim = json!({"spec": {"resources": {"requests": {"storage": "100m"}}}});
    assert_eq!(
        warned("", "PersistentVolumeClaim", &claim),
        [
            "spec.resources.requests[storage]: fractional byte value \"100m\" is invalid, must be an integer"
        ]
    );
    let slice = json!({"addressType": "FQDN"});
    assert_eq!(
        warned("discovery.k8s.io", "EndpointSlice", &slice),
        ["spec.addressType: FQDN endpoints are deprecated"]
    );
    let node = json!({"spec": {"externalID": "x", "configSource": {}}});
    assert_eq!(
        warned("", "Node", &node),
        [
            "spec.configSource: the feature is removed",
            "spec.externalID: this field is deprecated, and is unused by Kubernetes",
        ]
    );
    let driver = json!({"spec": {"tokenRequests": [{"audience": "a"}]}});
    assert_eq!(
        warned("storage.k8s.io", "CSIDriver", &driver),
        [
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"
        ]
    );
    let same = warned_of_update("storage.k8s.io", "CSIDriver", &driver, &driver);
    assert_eq!(same, [""; 0]);
    let pod = json!({"metadata": {"name": "a"}, "spec": {"volumes": [{"name": "v", "projected": {"sources": [{}]}}]}});
    assert_eq!(warned("", "Pod", &pod), ["volume \"v\" (Projected) has no sources provided"]);
    assert_eq!(warned_of_update("", "Pod", &pod, &pod), [""; 0]);
}

#[test]
fn a_changed_volume_is_checked_twice() {
    let name = ("", "v1", "PersistentVolume");
    let sample = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/e"}}});
    const MODES: &str = "spec.accessModes: Required value";
    refuses_changes(name, &sample, &[("/spec/accessModes", json!([]), &[MODES, MODES])]);
}

#[test]
fn changes_of_secrets_come_before_their_rules() {
    let name = ("", "v1", "Secret");
    let old = fresh(name, json!({"type": "Opaque"}));
    let mut new = old.clone();
    new["type"] = "kubernetes.io/tls".into();
    assert_eq!(
        changed(name, &old, &new, false),
        [
            "type: Invalid value: \"kubernetes.io/tls\": field is immutable",
            "data[tls.crt]: Required value",
            "data[tls.key]: Required value",
        ]
    );
}

#[test]
fn labels_of_a_job_are_those_of_its_pods() {
    let name = ("batch", "v1", "Job");
    let container = json!({"name": "c", "image": "x"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = fresh(name, json!({"spec": {"template": template}}));
    assert_eq!(job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(job["metadata"]["labels"]["batch.kubernetes.io/job-name"], "x");
    // A job keeps the labels that were made for it.
    let mut new = job.clone();
    new["spec"]["template"]["metadata"]["labels"]["job-name"] = "y".into();
    let errors = changed(name, &job, &new, false);
    assert!(errors[0].ends_with("must be 'x'"), "{errors:?}");
}

#[test]
fn statuses_of_volumes_have_no_other_rules() {
    let name = ("", "v1", "PersistentVolume");
    let sample = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/e"}}});
    refuses_status(name, &sample, &[(json!({"phase": "Failed"}), &[])]);
}

#[test]
fn forms_that_are_not_canonical_have_warnings() {
    for (text, warnings) in [
        ("10.0.0.1", &[][..]),
        ("x", &[]),
        ("10.0.0.0/8", &[]),
        ("fd00::/64", &[]),
        ("10.0.0.0/33", &[]),
        ("010.0.0.1", &[r#"non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1""#]),
        (
            "::ffff:1.2.3.4",
            &[r#"non-standard IP address "::ffff:1.2.3.4" is invalid: use "1.2.3.4""#],
        ),
        (
            "FD00::1",
            &[r#"IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")"#],
        ),
        (
            "FD00::/64",
            &[
                r#"IPv6 CIDR value "FD00::/64" should be in RFC 5952 canonical format ("fd00::/64")"#,
            ],
        ),
        (
            "10.0.0.5/08",
            &[
                r#"CIDR value "10.0.0.5/08" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.5/32"?)"#,
                r#"non-standard CIDR value "10.0.0.5/08" is invalid: use "10.0.0.0/8""#,
            ],
        ),
        (
            "FD00::1/64",
            &[
                r#"CIDR value "FD00::1/64" is ambiguous in this context (should be "fd00::/64" or "fd00::1/128"?)"#,
            ],
        ),
        (
            "::ffff:10.0.0.0/104",
            &[r#"non-standard CIDR value "::ffff:10.0.0.0/104" is invalid: use "10.0.0.0/8""#],
        ),
    ] {
        let expected: Vec<String> = warnings.iter().map(|text| format!("at: {text}")).collect();
        let found = match text.contains('/') {
            true => cidr_warnings(|| "at".to_owned(), text),
            false => ip_warning(|| "at".to_owned(), text).into_iter().collect(),
        };
        assert_eq!(found, expected, "{text}");
    }
}

/// Each kind with addresses warns of those in another form: when it is made, changed, or its
/// status is written.
#[test]
fn kinds_with_addresses_warn_of_their_form() {
    let [new, update, status] = [0, 1, 2];
    let spec = json!({
        "dnsConfig": {"nameservers": ["10.0.0.1", "FD00::1"]},
        "hostAliases": [{"ip": "FD00::1"}],
    });
    let slice =
        json!({"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::2", "FD00::1"]}]});
    let mut of_controller = slice.clone();
    of_controller["metadata"]["labels"] =
        json!({"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
    let balanced = json!({"status": {"loadBalancer": {"ingress": [
        {"hostname": "a.b"}, {"ip": "10.0.0.1"}, {"ip": "FD00::1"},
    ]}}});
    let pod = json!({"status": {"podIPs": [{"ip": "FD00::1"}], "hostIPs": [{"ip": "FD00::1"}]}});
    let node = json!({"spec": {"podCIDRs": ["10.0.0.0/24", "FD00::/64"]}});
    // It is checked only if the Service has a load balancer.
    let unchecked = json!({"spec": {"type": "ClusterIP", "loadBalancerIP": "10.0.0.1/8"}});
    let all: [(&str, &str, usize, Value, &[&str]); 14] = [
        ("", "Service", update, unchecked, &[]),
        (
            "",
            "Pod",
            new,
            json!({"metadata": {"name": "a"}, "spec": spec}),
            &["spec.dnsConfig.nameservers[1]", "spec.hostAliases[0].ip"],
        ),
        ("", "Pod", update, json!({"spec": spec}), &[]),
        ("", "Pod", status, pod, &["status.podIPs[0].ip", "status.hostIPs[0].ip"]),
        (
            "apps",
            "Deployment",
            new,
            json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": spec}}}),
            &[
                "spec.template.spec.dnsConfig.nameservers[1]",
                "spec.template.spec.hostAliases[0].ip",
            ],
        ),
        ("", "Node", new, node.clone(), &["spec.podCIDRs[1]"]),
        ("", "Node", update, node.clone(), &["spec.podCIDRs[1]"]),
        ("", "Node", status, node, &[]),
        ("discovery.k8s.io", "EndpointSlice", new, slice.clone(), &["endpoints[0].addresses[1]"]),
        ("discovery.k8s.io", "EndpointSlice", update, slice, &["endpoints[0].addresses[1]"]),
        ("discovery.k8s.io", "EndpointSlice", new, of_controller, &[]),
        ("", "Service", status, balanced.clone(), &["status.loadBalancer.ingress[2]"]),
        (
            "networking.k8s.io",
            "Ingress",
            status,
            balanced.clone(),
            &["status.loadBalancer.ingress[2]"],
        ),
        ("networking.k8s.io", "Ingress", update, balanced, &[]),
    ];
    for (group, kind, when, object, places) in all {
        let row = rows::of(group, kind).unwrap();
        let warnings = match when {
            0 => (row.warnings)(&object),
            1 => (row.update_warnings)(&object, &object),
            _ => (row.status_warnings)(&object),
        };
        let warning = |place: &&str| {
            let of = || (*place).to_owned();
            match place.contains("podCIDRs") {
                true => cidr_warnings(of, "FD00::/64"),
                false => ip_warning(of, "FD00::1").into_iter().collect(),
            }
        };
        let expected: Vec<String> = places.iter().flat_map(warning).collect();
        assert_eq!(warnings, expected, "{kind} {when}");
    }
}
