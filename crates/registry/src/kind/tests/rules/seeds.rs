//! Answers of kube-apiserver 1.36 that further seeds of `cargo xtask validation` have shown.
use super::{changed, created, fresh, refuses, refuses_status};
use crate::kind::rows;
use serde_json::{Value, json};

const POD: super::Name = ("", "v1", "Pod");
const SLICE: super::Name = ("resource.k8s.io", "v1", "ResourceSlice");

fn warned(group: &str, kind: &str, object: &Value) -> Vec<String> {
    (rows::of(group, kind).unwrap().warnings)(object)
}

/// The errors that are about one of some fields, without their texts.
fn fields(errors: &[String]) -> Vec<&str> {
    errors.iter().map(|error| error.split(": ").next().unwrap()).collect()
}

#[test]
fn selectors_of_deprecated_labels_of_nodes_cause_warnings() {
    const OS: &str = "deprecated since v1.14; use \"kubernetes.io/os\" instead";
    let term = json!({"matchExpressions": [
        {"key": "beta.kubernetes.io/os", "operator": "In", "values": ["$(", "ok"]},
    ]});
    let spec = json!({
        "nodeSelector": {"a": "b", "beta.kubernetes.io/os": "c"},
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}],
        }},
        "topologySpreadConstraints": [{"topologyKey": "beta.kubernetes.io/os"}],
    });
    let required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]";
    let preferred = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0]";
    let of_spec = |path: &str| {
        let label = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        vec![
            format!("{path}.nodeSelector[beta.kubernetes.io/os]: {OS}"),
            format!("{path}.{required}.key: beta.kubernetes.io/os is {OS}"),
            format!("{path}.{preferred}.key: beta.kubernetes.io/os is {OS}"),
            format!("{path}.{preferred}.values[0]: $( is invalid, {label}"),
            format!(
                "{path}.topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/os is {OS}"
            ),
            format!(
                "{path}.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"
            ),
        ]
    };
    assert_eq!(
        warned("", "Pod", &json!({"metadata": {"name": "x"}, "spec": spec})),
        of_spec("spec")
    );
    let set = json!({"metadata": {"name": "x"}, "spec": {"template": {"spec": spec}}});
    assert_eq!(warned("apps", "DaemonSet", &set), of_spec("spec.template.spec"));

    let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
    assert_eq!(
        warned("", "PersistentVolume", &volume),
        [format!(
            "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is {OS}"
        )]
    );
    let class = json!({"scheduling": {"nodeSelector": {"beta.kubernetes.io/os": "a"}}});
    assert_eq!(
        warned("node.k8s.io", "RuntimeClass", &class),
        [format!("scheduling.nodeSelector: {OS}")]
    );
    let topology = json!({"matchLabels": {"beta.kubernetes.io/os": "a"}, "matchExpressions": term["matchExpressions"]});
    assert_eq!(
        warned("storage.k8s.io", "CSIStorageCapacity", &json!({"nodeTopology": topology})),
        [
            format!("nodeTopology.matchExpressions[0].key: beta.kubernetes.io/os is {OS}"),
            format!("nodeTopology.matchLabels.beta.kubernetes.io/os: {OS}"),
        ]
    );
    let class = json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "beta.kubernetes.io/os"}]}]});
    assert_eq!(
        warned("storage.k8s.io", "StorageClass", &class),
        [format!("allowedTopologies[0].matchLabelExpressions[0].key: {OS}")]
    );
}

#[test]
fn annotations_that_members_have_replaced_cause_warnings() {
    let annotations = json!({
        "scheduler.alpha.kubernetes.io/critical-pod": "",
        "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
        "container.seccomp.security.alpha.kubernetes.io/c": "runtime/default",
        "container.apparmor.security.beta.kubernetes.io/c": "unconfined",
    });
    let mut template = json!({
        "metadata": {"name": "x", "annotations": annotations},
        "spec": {"containers": [{"name": "c"}]},
    });
    let names = |warnings: Vec<String>| -> Vec<String> {
        let names = warnings.iter().map(|warning| warning.split("]: ").next().unwrap());
        names.map(|name| name.rsplit("annotations[").next().unwrap().to_owned()).collect()
    };
    let seccomp = [
        "scheduler.alpha.kubernetes.io/critical-pod",
        "seccomp.security.alpha.kubernetes.io/pod",
        "container.seccomp.security.alpha.kubernetes.io/c",
    ];
    assert_eq!(names(warned("", "Pod", &template)), seccomp);
    let of_template = |template: &Value| {
        let set = json!({"metadata": {"name": "x"}, "spec": {"template": template}});
        names(warned("apps", "DaemonSet", &set))
    };
    let mut all = seccomp.to_vec();
    all.push("container.apparmor.security.beta.kubernetes.io/c");
    assert_eq!(of_template(&template), all);
    // The pod's own profile is the same.
    template["spec"]["securityContext"] = json!({"appArmorProfile": {"type": "Unconfined"}});
    assert_eq!(of_template(&template), seccomp);

    let annotations =
        json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "a"}}});
    for kind in ["PersistentVolume", "PersistentVolumeClaim"] {
        assert_eq!(
            warned("", kind, &annotations),
            [
                "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ]
        );
    }
}

#[test]
fn claims_without_a_name_are_no_claims_of_a_pod() {
    let container = json!({"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}});
    let claim = json!({"name": "gpu", "resourceClaimName": "a"});
    refuses(
        POD,
        &json!({"spec": {"containers": [container], "resourceClaims": [claim]}}),
        &[(
            "/spec/resourceClaims/0/name",
            json!(""),
            &[
                "spec.resourceClaims[0].name: Required value",
                "spec.containers[0].resources.claims[0]: Not found: \"gpu\": must be one of the names in pod.spec.resourceClaims which is empty",
            ],
        )],
    );
}

#[test]
fn errors_have_the_order_of_the_rules() {
    let containers = json!([{"name": "c", "image": "x"}]);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let spec = json!({
        "selector": {"matchLabels": {"a": "b"}}, "template": template,
        "minReadySeconds": -1, "revisionHistoryLimit": -1,
        "updateStrategy": {"rollingUpdate": {"maxSurge": 1}},
    });
    assert_eq!(
        fields(&created(("apps", "v1", "DaemonSet"), json!({"spec": spec}))),
        [
            "spec.minReadySeconds",
            "spec.updateStrategy.rollingUpdate.maxSurge",
            "spec.revisionHistoryLimit"
        ]
    );
    let spec = json!({"selector": {"matchLabels": {"a": "c"}}, "template": template, "minReadySeconds": -1});
    assert_eq!(
        fields(&created(("apps", "v1", "ReplicaSet"), json!({"spec": spec}))),
        ["spec.minReadySeconds", "spec.template.metadata.labels"]
    );
    // The length of a name comes last, and only when it is new.
    let mut job = fresh(
        ("batch", "v1", "CronJob"),
        json!({"metadata": {"name": "a".repeat(53)}, "spec": {"schedule": "", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}}}}}),
    );
    let errors = created(("batch", "v1", "CronJob"), job.clone());
    assert_eq!(fields(&errors), ["spec.schedule", "metadata.name"]);
    assert!(errors[1].ends_with(": must be no more than 52 characters"));
    job["spec"]["schedule"] = "@hourly".into();
    assert_eq!(changed(("batch", "v1", "CronJob"), &job, &job, false), [""; 0]);

    let csr = json!({"spec": {"usages": ["any", "any", "x"], "signerName": "a.b/c"}});
    let errors = created(("certificates.k8s.io", "v1", "CertificateSigningRequest"), csr);
    assert_eq!(fields(&errors), ["spec.request", "spec.usages[2]", "spec.usages[1]"]);

    let webhook = json!({
        "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://a"}, "reinvocationPolicy": "x",
        "objectSelector": {"matchLabels": {"a": "/"}},
    });
    let name = ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration");
    assert_eq!(
        fields(&created(name, json!({"webhooks": [webhook]}))),
        ["webhooks[0].objectSelector.matchLabels", "webhooks[0].reinvocationPolicy"]
    );
}

#[test]
fn hosts_of_quobyte_have_one_port() {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let name = ("", "v1", "PersistentVolume");
    let sample = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "quobyte": {"registry": "a:1,[::1]:2,:", "volume": "v"}}});
    for registry in ["::1", "a", "[::1]", "[a:1", "a]:1", "[::1]:2:3", "a:1,", "[a][b]:1"] {
        let shown = format!("spec.quobyte.registry: Invalid value: \"{registry}\": {PAIRS}");
        refuses(name, &sample, &[("/spec/quobyte/registry", json!(registry), &[&shown])]);
    }
}

#[test]
fn classes_are_reported_as_the_original_has_them() {
    refuses(
        ("storage.k8s.io", "v1", "StorageClass"),
        &json!({"provisioner": "Example.com/disk"}),
        &[
            (
                "/volumeBindingMode",
                json!(""),
                &[
                    "volumeBindingMode: Unsupported value: \"\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
                ],
            ),
            (
                "/provisioner",
                json!("A::1"),
                &[
                    "provisioner: Invalid value: \"a::1\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                ],
            ),
        ],
    );
    let errors =
        created(("storage.k8s.io", "v1", "VolumeAttributesClass"), json!({"driverName": "$(A)"}));
    assert!(errors[0].starts_with("driverName: Invalid value: \"$(a)\": "), "{errors:?}");
}

#[test]
fn volumes_of_attachments_may_have_a_class_of_attributes() {
    let volume = json!({"accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": "a", "csi": {"driver": "d", "volumeHandle": "h"}});
    let sample =
        json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"inlineVolumeSpec": volume}}});
    refuses(
        ("storage.k8s.io", "v1", "VolumeAttachment"),
        &sample,
        &[
            ("/spec/source/inlineVolumeSpec/volumeAttributesClassName", json!(""), &[]),
            (
                "/spec/source/inlineVolumeSpec/csi",
                Value::Null,
                &[
                    "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
                    "spec.source.inlineVolumeSpec: Required value: must specify a volume type",
                ],
            ),
        ],
    );
}

#[test]
fn devices_with_own_nodes_say_which() {
    let device = json!({"name": "d", "allNodes": true});
    let sample = json!({"spec": {"driver": "ex.io", "perDeviceNodeSelection": true, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [device]}});
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let required = format!("spec.devices[0]: Required value: {ONE}");
    refuses(
        SLICE,
        &sample,
        &[
            (
                "/spec/devices/0/allNodes",
                json!(false),
                &[
                    "spec.devices[0].allNodes: Invalid value: false: must be either unset or set to true",
                    &required,
                ],
            ),
            (
                "/spec/devices/0",
                json!({"name": "d", "nodeName": ""}),
                &["spec.devices[0].nodeName: Invalid value: \"\": must not be empty", &required],
            ),
            (
                "/spec/devices/0/nodeName",
                json!("n"),
                &[&format!(
                    "spec.devices[0]: Invalid value: \"{{`nodeName`, `allNodes`}}\": {ONE}"
                )],
            ),
            (
                "/spec/devices/0/nodeSelector",
                json!({}),
                &[
                    "spec.devices[0].nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term",
                    &format!(
                        "spec.devices[0]: Invalid value: \"{{`nodeSelector`, `allNodes`}}\": {ONE}"
                    ),
                ],
            ),
        ],
    );
}

#[test]
fn names_of_properties_of_devices_are_cut_where_they_are_long() {
    let device = json!({"name": "d", "attributes": {"a/b/c": {"int": 1}}});
    let sample = json!({"spec": {"driver": "ex.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [device]}});
    let key = "k".repeat(200);
    let shown = format!("{}...{}", "k".repeat(47), "k".repeat(46));
    refuses(
        SLICE,
        &sample,
        &[
            (
                &format!("/spec/devices/0/attributes/{key}"),
                json!({}),
                &[
                    "spec.devices[0].attributes: Too long: may not be more than 32 bytes",
                    &format!(
                        "spec.devices[0].attributes[{shown}]: Invalid value: \"\": exactly one value must be specified"
                    ),
                ],
            ),
            (
                &format!("/spec/devices/0/capacity/{key}"),
                json!({"value": "1", "requestPolicy": {}}),
                &[
                    "spec.devices[0].capacity: Too long: may not be more than 32 bytes",
                    &format!(
                        "spec.devices[0].capacity[{shown}].requestPolicy: Forbidden: allowMultipleAllocations must be true"
                    ),
                ],
            ),
        ],
    );
}

#[test]
fn data_of_devices_is_an_object() {
    let name = ("resource.k8s.io", "v1", "ResourceClaim");
    let sample = json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}});
    let result = json!({"request": "r", "driver": "ex.io", "pool": "p", "device": "d"});
    let status = |device: Value| {
        let mut device = device;
        for (member, value) in [("driver", "ex.io"), ("pool", "p"), ("device", "d")] {
            device[member] = value.into();
        }
        json!({"allocation": {"devices": {"results": [result]}}, "devices": [device]})
    };
    const OBJECT: &str =
        "status.devices[0].data: Invalid value: \"<value omitted>\": must be a valid JSON object";
    refuses_status(
        name,
        &sample,
        &[
            (status(json!({"data": {}})), &[]),
            (status(json!({"data": "a"})), &[OBJECT]),
            (status(json!({"data": 1})), &[OBJECT]),
            (status(json!({"data": []})), &[OBJECT]),
        ],
    );
    // Who reserves a claim is looked at after the devices.
    let old = fresh(name, sample);
    let mut new = old.clone();
    new["status"] = json!({
        "reservedFor": [{"resource": "pods", "name": "a", "uid": "u"}],
        "devices": [{"driver": "ex.io", "pool": "p", "device": "d"}],
    });
    let errors = changed(name, &old, &new, true);
    assert_eq!(fields(&errors), ["status.devices[0]", "status.reservedFor"]);
}

#[test]
fn messages_of_validations_are_one_line() {
    let validation = json!({"expression": "true", "message": "m"});
    let rule =
        json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]});
    let sample = json!({"spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}});
    refuses(
        ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"),
        &sample,
        &[
            (
                "/spec/validations/0/message",
                json!(" "),
                &[
                    "spec.validations[0].message: Invalid value: \" \": must be non-empty if specified",
                ],
            ),
            (
                "/spec/validations/0/message",
                json!("a\nb"),
                &[
                    "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
                ],
            ),
        ],
    );
}

#[test]
fn urls_of_webhooks_are_read_as_by_go() {
    let webhook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://a"}});
    refuses(
        ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
        &json!({"webhooks": [webhook]}),
        &[(
            "/webhooks/0/clientConfig/url",
            json!("%%%"),
            &[
                "webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse \"%%%\": invalid URL escape \"%%%\"; desired format: https://host[/path]",
            ],
        )],
    );
}

#[test]
fn conditions_without_a_type_decide_nothing() {
    let name = ("certificates.k8s.io", "v1", "CertificateSigningRequest");
    let old = fresh(name, json!({"spec": {"usages": ["any"], "signerName": "a.b/c"}}));
    let mut new = old.clone();
    new["status"]["conditions"] = json!([{"status": "True"}, {"type": "Failed", "status": "True"}]);
    assert_eq!(changed(name, &old, &new, true), ["status.conditions[0].type: Required value"]);
}

#[test]
fn ids_that_containers_run_with_are_in_range() {
    let sample = json!({"spec": {"containers": [{"name": "c", "image": "x"}]}});
    let of = |linux: Value| json!({"containerStatuses": [{"name": "c", "user": {"linux": linux}}]});
    let path = "status.containerStatuses[0].user.linux";
    refuses_status(
        POD,
        &sample,
        &[
            (of(json!({"uid": 1, "gid": 0, "supplementalGroups": [2_147_483_647]})), &[]),
            (
                of(json!({"uid": -1, "gid": 2_147_483_648_i64, "supplementalGroups": [-2]})),
                &[
                    &format!(
                        "{path}.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive"
                    ),
                    &format!(
                        "{path}.gid: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive"
                    ),
                    &format!(
                        "{path}.supplementalGroups[0]: Invalid value: -2: must be between 0 and 2147483647, inclusive"
                    ),
                ],
            ),
        ],
    );
    let windows =
        json!({"spec": {"os": {"name": "windows"}, "containers": [{"name": "c", "image": "x"}]}});
    refuses_status(
        POD,
        &windows,
        &[(
            of(json!({"uid": 1, "gid": 1})),
            &[&format!("{path}: Forbidden: cannot be set for a windows pod")],
        )],
    );
}

#[test]
fn a_source_without_a_name_is_shown_as_an_empty_text() {
    let items = json!([{"key": "k", "path": "p"}]);
    let sources = json!([
        {"secret": {"name": "s", "items": items}},
        {"configMap": {"name": "m", "items": [{"key": "k", "path": "q"}]}},
    ]);
    let volume = json!({"name": "v", "projected": {"sources": sources}});
    refuses(
        POD,
        &json!({"spec": {"containers": [{"name": "c", "image": "x"}], "volumes": [volume]}}),
        &[(
            "/spec/volumes/0/projected/sources/1/configMap",
            json!({"items": items}),
            &[
                "spec.volumes[0].projected.sources[1].configMap.name: Required value",
                "spec.volumes[0].projected: Invalid value: \"\": conflicting duplicate paths",
            ],
        )],
    );
}

#[test]
fn negative_grace_period_of_a_pod_is_one_second() {
    let spec = json!({"terminationGracePeriodSeconds": -2, "containers": []});
    let defaulted = |group: &str, kind: &str, version: &str, object: Value| {
        let mut object = object;
        (rows::of(group, kind).unwrap().default)(object.as_object_mut().unwrap(), version);
        object
    };
    let pod = defaulted("", "Pod", "v1", json!({"spec": spec}));
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
    let set = json!({"spec": {"template": {"spec": spec}}});
    let set = defaulted("apps", "DaemonSet", "v1", set);
    assert_eq!(set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], -2);
}

#[test]
fn generated_names_of_roles_are_whole_segments() {
    for kind in ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"] {
        let row = rows::of("rbac.authorization.k8s.io", kind).unwrap();
        assert_eq!(row.names, crate::kind::NameRule::WholeSegment, "{kind}");
    }
}

#[test]
fn empty_protocol_of_an_endpoint_slice_is_unsupported() {
    let slice = json!({
        "metadata": {"name": "x", "namespace": "n"}, "addressType": "FQDN",
        "endpoints": [{"addresses": ["a.example.com"]}],
        "ports": [{"name": "http", "port": 80, "protocol": ""}],
    });
    let found = created(("discovery.k8s.io", "v1", "EndpointSlice"), slice);
    assert_eq!(
        found,
        [r#"ports[0].protocol: Unsupported value: "": supported values: "SCTP", "TCP", "UDP""#]
    );
}
