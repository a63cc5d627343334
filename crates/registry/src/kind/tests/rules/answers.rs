//! What later runs of `cargo xtask validation` have shown: further answers of kube-apiserver 1.36.
use super::{changed, context, created, fresh, refuses, refuses_changes, refuses_status};
use crate::features::FeatureGates;
use crate::kind::rows;
use serde_json::{Value, json};

const POD: super::Name = ("", "v1", "Pod");

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "x"}]}})
}
fn warned(group: &str, kind: &str, object: &Value) -> Vec<String> {
    (rows::of(group, kind).unwrap().warnings)(object)
}

#[test]
fn a_new_pod_keeps_the_class_that_it_is_given() {
    let prepare = rows::of("", "Pod").unwrap().prepare;
    let mut new = fresh(POD, pod());
    assert_eq!(new["status"]["qosClass"], "BestEffort");
    new["status"] = json!({"qosClass": "Burstable", "message": "x"});
    prepare(&context(), &mut new, None);
    assert_eq!(new["status"], json!({"phase": "Pending", "qosClass": "Burstable"}));
}

#[test]
fn a_status_of_a_pod_keeps_what_it_leaves_out() {
    let row = rows::of("", "Pod").unwrap();
    let ready = |more: Value| {
        let mut condition = json!({"type": "Ready", "status": "True"});
        condition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        condition
    };
    let mut old = fresh(POD, pod());
    old["status"]["observedGeneration"] = 3.into();
    old["status"]["conditions"] = json!([ready(json!({"observedGeneration": 2}))]);
    let mut new = old.clone();
    new["status"] = json!({"conditions": [ready(json!({}))]});
    (row.prepare_status)(&context(), &mut new, &old);
    assert_eq!(new["status"]["observedGeneration"], 3);
    assert_eq!(new["status"]["qosClass"], "BestEffort");
    assert_eq!(new["status"]["conditions"][0]["observedGeneration"], 2);
    new["status"]["qosClass"] = "a".into();
    assert_eq!(
        changed(POD, &old, &new, true),
        ["status.qosClass: Invalid value: \"a\": field is immutable"]
    );
}

#[test]
fn the_single_address_of_a_pod_wins() {
    let of = |status: Value| {
        let mut pod = pod();
        pod["status"] = status;
        super::stored("", "v1", "Pod", pod)["status"].clone()
    };
    let one = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
    assert_eq!(of(json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]})), one);
    assert_eq!(of(json!({"podIP": "10.0.0.1", "podIPs": []})), one);
    assert_eq!(of(json!({"podIPs": [{"ip": "10.0.0.1"}]})), one);
}

/// The errors of a resize.
fn resized(old: &Value, mut sent: Value) -> Vec<String> {
    let part = rows::of("", "Pod").unwrap().part("resize").unwrap();
    let mut merged = old.clone();
    (part.take)(&mut merged, &mut sent);
    let mut errors = crate::kind::Report::new(FeatureGates::default());
    (part.validate)(&merged, Some(old), &mut errors);
    super::texts(&errors)
}

#[test]
fn a_container_that_starts_first_is_not_restarted_by_a_resize() {
    let policy = |restart: &str| json!([{"resourceName": "memory", "restartPolicy": restart}]);
    let mut old = fresh(POD, pod());
    old["spec"]["initContainers"] = json!([{"name": "i", "image": "x", "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File", "resizePolicy": policy("RestartContainer")}]);
    let larger = json!({"requests": {"memory": "2Gi"}});
    const RESTARTS: &str = "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
    const QOS: &str =
        "spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing";
    let mut new = old.clone();
    new["spec"]["initContainers"][0]["resources"] = larger.clone();
    assert_eq!(resized(&old, old.clone()), [""; 0]);
    assert_eq!(resized(&old, new.clone()), [QOS, RESTARTS]);
    // One that keeps running beside the others is.
    old["spec"]["initContainers"][0]["restartPolicy"] = "Always".into();
    new["spec"]["initContainers"][0]["restartPolicy"] = "Always".into();
    assert_eq!(resized(&old, new.clone()), [QOS]);
    old["spec"]["initContainers"][0]["restartPolicy"] = Value::Null;
    old["spec"]["initContainers"][0]["resizePolicy"] = policy("NotRequired");
    assert_eq!(
        resized(&old, new),
        [
            "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar initContainers",
            QOS,
            "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable",
            RESTARTS,
        ][..]
    );
}

#[test]
fn a_resize_gives_a_pod_cpu_and_memory_only() {
    let old = fresh(POD, pod());
    let given = |resources: Value| {
        let mut new = old.clone();
        new["spec"]["resources"] = resources;
        resized(&old, new)
    };
    let about_the_pod = |errors: Vec<String>| -> Vec<String> {
        errors.into_iter().filter(|error| error.contains("mutable")).collect()
    };
    const POD_LEVEL: &str =
        "spec: Forbidden: only cpu and memory resources are mutable at pod-level";
    assert_eq!(about_the_pod(given(json!({"limits": {"pods": "1m"}}))), [POD_LEVEL]);
    assert_eq!(about_the_pod(given(json!({"requests": {"cpu": "1"}}))), [""; 0]);
    // What says nothing is something, too.
    assert_eq!(given(json!({})), ["spec: Forbidden: only cpu and memory resources are mutable"]);
    let mut whole = pod();
    whole["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
    let whole = fresh(POD, whole);
    assert_eq!(resized(&whole, whole.clone()), [""; 0]);
    assert_eq!(
        resized(&whole, old.clone())[1..],
        ["spec.resources: Forbidden: pod-level resources cannot be removed"]
    );
}

#[test]
fn a_resize_keeps_containers_and_whatever_has_claims() {
    let mut sample = pod();
    sample["spec"]["resourceClaims"] = json!([{"name": "r", "resourceClaimName": "r"}]);
    let plain = fresh(POD, sample.clone());
    sample["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "r"}]});
    let claims = fresh(POD, sample);
    let errors = resized;
    assert_eq!(errors(&plain, plain.clone()), [""; 0]);
    // Containers come before those that start first.
    let mut both = plain.clone();
    both["spec"]["initContainers"] = json!([{"name": "i", "image": "x"}]);
    let mut changed = both.clone();
    for list in ["initContainers", "containers"] {
        changed["spec"][list][0]["resizePolicy"] =
            json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
    }
    assert_eq!(
        errors(&both, changed),
        [
            "spec: Forbidden: only cpu and memory resources are mutable",
            "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable",
        ]
    );
    assert_eq!(
        errors(&claims, claims.clone()),
        ["spec: Forbidden: only cpu and memory resources are mutable"]
    );
    let mut other = plain.clone();
    other["spec"]["containers"][0]["name"] = "d".into();
    assert_eq!(
        errors(&plain, other),
        [
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
        ]
    );
    let mut none = plain.clone();
    none["spec"]["containers"] = json!([]);
    assert_eq!(
        errors(&plain, none),
        [
            "spec.containers: Required value",
            "spec.containers: Forbidden: containers may not be added or removed on resize",
        ]
    );
}

#[test]
fn labels_are_changed_by_policy_only_where_one_is_stored() {
    let path = "spec.securityContext.seLinuxChangePolicy";
    refuses(
        POD,
        &pod(),
        &[(
            "/spec/securityContext/seLinuxChangePolicy",
            json!("MountOption"),
            &[&format!(
                "{path}: Unsupported value: \"MountOption\": supported values: \"Recursive\""
            )],
        )],
    );
    let name = ("apps", "v1", "Deployment");
    let template = |policy: &str| {
        json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x"}], "securityContext": {"seLinuxChangePolicy": policy}},
        })
    };
    let sample = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template("Recursive")}});
    let old = fresh(name, sample);
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["securityContext"]["seLinuxChangePolicy"] =
        "MountOption".into();
    assert_eq!(changed(name, &old, &new, false), [""; 0]);
}

#[test]
fn a_local_volume_needs_an_affinity_of_any_kind() {
    let name = ("", "v1", "PersistentVolume");
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/d"}});
    assert_eq!(
        created(name, json!({"spec": spec})),
        ["spec.nodeAffinity: Required value: Local volume requires node affinity"]
    );
    let mut spec = spec;
    spec["nodeAffinity"] = json!({});
    assert_eq!(
        created(name, json!({"spec": spec})),
        ["spec.nodeAffinity.required: Required value: must specify required node constraints"]
    );
}

#[test]
fn labels_of_an_affinity_may_get_their_present_names_and_not_their_older_ones() {
    const OLDER: &str = "failure-domain.beta.kubernetes.io/zone";
    const PRESENT: &str = "topology.kubernetes.io/zone";
    let name = ("", "v1", "PersistentVolume");
    let with_key = |key: &str| {
        let requirement = json!({"key": key, "operator": "In", "values": ["a"]});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/d"}, "nodeAffinity": {"required": required}});
        fresh(name, json!({"spec": spec}))
    };
    assert_eq!(changed(name, &with_key(OLDER), &with_key(PRESENT), false), [""; 0]);
    for (old, new) in [(PRESENT, OLDER), (OLDER, "other"), ("other", PRESENT)] {
        let errors = changed(name, &with_key(old), &with_key(new), false);
        let [error] = &*errors else { panic!("{old} {new}: {errors:?}") };
        assert!(
            error.ends_with("field is immutable, except for updating from beta label to GA"),
            "{error}"
        );
    }
}

#[test]
fn a_local_api_shows_the_size_of_its_bundle() {
    let name = ("apiregistration.k8s.io", "v1", "APIService");
    let spec = json!({"group": "ex.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "caBundle": "YWJjZA=="});
    assert_eq!(
        created(name, json!({"metadata": {"name": "v1.ex.io"}, "spec": spec})),
        ["spec.caBundle: Invalid value: \"4 bytes\": local APIServices may not have a caBundle"]
    );
}

#[test]
fn conditions_of_the_common_type_are_checked() {
    let condition = json!({"type": "a b", "status": "x", "reason": "1", "observedGeneration": -1});
    let reason = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
    let path = "status.conditions[0]";
    let qualified = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let expected = [
        format!("{path}.type: Invalid value: \"a b\": {qualified}"),
        format!(
            "{path}.status: Unsupported value: \"x\": supported values: \"False\", \"True\", \"Unknown\""
        ),
        format!(
            "{path}.observedGeneration: Invalid value: -1: must be greater than or equal to zero"
        ),
        format!("{path}.lastTransitionTime: Required value"),
        format!("{path}.reason: Invalid value: \"1\": {reason}"),
    ];
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    refuses_status(
        ("policy", "v1", "PodDisruptionBudget"),
        &json!({"spec": {"minAvailable": 1}}),
        &[
            (json!({"conditions": [condition]}), &expected),
            (
                json!({"disruptionsAllowed": -1}),
                &[
                    "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
        ],
    );
}

#[test]
fn versions_of_devices_are_semantic() {
    let name = ("resource.k8s.io", "v1", "ResourceSlice");
    let sample = json!({"spec": {"driver": "ex.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d", "attributes": {"a": {"version": "1.2.3-rc.1+5"}}}]}});
    let path = "/spec/devices/0/attributes/a/version";
    let error = |text: &str| {
        format!(
            "spec.devices[0].attributes[a].version: Invalid value: \"{text}\": must be a string compatible with semver.org spec 2.0.0"
        )
    };
    for text in ["1.2", "01.2.3", "v1.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "a.b.c"] {
        refuses(name, &sample, &[(path, json!(text), &[&error(text)])]);
    }
    assert_eq!(
        warned("resource.k8s.io", "ResourceSlice", &json!({"spec": {"driver": "Ex.io"}})),
        ["spec.driver: driver names should be lowercase; \"Ex.io\" contains uppercase characters"]
    );
}

#[test]
fn declared_features_are_sorted_names() {
    let path = "status.declaredFeatures";
    refuses_status(
        ("", "v1", "Node"),
        &json!({"spec": {}}),
        &[
            (json!({"declaredFeatures": ["Another", "My/sub"]}), &[]),
            (
                json!({"declaredFeatures": ["My", "My", "Another"]}),
                &[
                    &format!("{path}[1]: Duplicate value: \"My\""),
                    &format!(
                        "{path}[2]: Invalid value: \"Another\": list must be sorted alphabetically"
                    ),
                ],
            ),
            (
                json!({"declaredFeatures": ["/a"]}),
                &[&format!(
                    "{path}[0]: Invalid value: \"/a\": invalid feature name \"/a\": must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
                )],
            ),
        ],
    );
}

#[test]
fn credentials_that_are_no_object_are_refused_with_the_reason() {
    let name = ("", "v1", "Secret");
    for (text, why) in [
        ("YQ==", "invalid character 'a' looking for beginning of value"),
        ("", "unexpected end of JSON input"),
        ("ODA=", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        ("W10=", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ] {
        let secret =
            json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": text}});
        assert_eq!(
            created(name, secret),
            [format!(
                "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": {why}"
            )]
        );
    }
}

#[test]
fn a_daemon_set_has_a_number_in_its_annotation() {
    let unreadable = rows::of("apps", "DaemonSet").unwrap().unreadable;
    let of = |text: &str| {
        unreadable(
            &json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": text}}}),
        )
    };
    assert_eq!(of("7"), None);
    assert_eq!(of("x").unwrap(), "strconv.ParseInt: parsing \"x\": invalid syntax");
    assert_eq!(
        of("99999999999999999999").unwrap(),
        "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"
    );
}

#[test]
fn a_status_does_not_change_the_generation_of_a_template() {
    let row = rows::of("apps", "DaemonSet").unwrap();
    const KEY: &str = "deprecated.daemonset.template.generation";
    let old = json!({"metadata": {"annotations": {KEY: "2"}}});
    for annotations in [json!({}), json!({KEY: "1"}), json!(null)] {
        let mut new = json!({"metadata": {"annotations": annotations}});
        (row.prepare_status)(&context(), &mut new, &old);
        assert_eq!(new["metadata"]["annotations"], json!({KEY: "2"}));
    }
}

#[test]
fn a_secret_of_another_type_is_checked_as_such_too() {
    let name = ("", "v1", "Secret");
    let data = json!({".dockerconfigjson": "YQ=="});
    let old = fresh(name, json!({"type": "Opaque", "data": data}));
    let mut new = old.clone();
    new["type"] = "kubernetes.io/dockerconfigjson".into();
    let found = changed(name, &old, &new, false);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].starts_with("data[.dockerconfigjson]: Invalid value"), "{found:?}");
}

#[test]
fn nodes_of_all_are_not_nodes_of_none() {
    let name = ("storage.k8s.io", "v1", "CSIStorageCapacity");
    let of =
        |topology: Value| fresh(name, json!({"storageClassName": "a", "nodeTopology": topology}));
    let (all, none) = (of(json!({})), of(Value::Null));
    assert_eq!(changed(name, &all, &all, false), [""; 0]);
    assert_eq!(
        changed(name, &all, &none, false),
        ["nodeTopology: Invalid value: null: field is immutable"]
    );
    assert_eq!(
        changed(name, &none, &all, false),
        ["nodeTopology: Invalid value: {}: field is immutable"]
    );
}

#[test]
fn metadata_only_forms_lack_the_annotations_that_are_fields_of_another_version() {
    let hidden = |group, kind| rows::of(group, kind).unwrap().hidden_annotations.len();
    assert_eq!(hidden("apps", "DaemonSet"), 1);
    assert_eq!(hidden("autoscaling", "HorizontalPodAutoscaler"), 4);
    assert_eq!(hidden("apps", "Deployment"), 0);
}

#[test]
fn rows_of_pods_say_that_they_are_completed() {
    let of = |phase: &str| {
        let pod = json!({"status": {"phase": phase}});
        (rows::of("", "Pod").unwrap().completion)(&pod)
    };
    assert_eq!(of("Failed"), Some(("Failed", "The pod failed.")));
    assert_eq!(of("Succeeded"), Some(("Succeeded", "The pod has completed successfully.")));
    assert_eq!(of("Running"), None);
}

#[test]
fn a_namespace_without_a_phase_is_active() {
    let name = ("", "v1", "Namespace");
    let stored =
        super::stored("", "v1", "Namespace", json!({"metadata": {"name": "a"}, "status": {}}));
    assert_eq!(stored["status"]["phase"], "Active");
    let old = fresh(name, json!({}));
    let mut new = old.clone();
    new["status"] = stored["status"].clone();
    assert_eq!(changed(name, &old, &new, true), [""; 0]);
}

#[test]
fn amounts_of_resources_are_rounded_to_thousandths() {
    let of = |amount: &str| {
        let quota = json!({"spec": {"hard": {"cpu": amount}}});
        super::stored("", "v1", "ResourceQuota", quota)["spec"]["hard"]["cpu"].clone()
    };
    assert_eq!([of("1n"), of("1500u"), of("2"), of("1e-6")], ["1m", "2m", "2", "1e-3"]);
}

#[test]
fn an_empty_list_that_is_refused_is_seen() {
    let name = ("autoscaling", "v2", "HorizontalPodAutoscaler");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
    let spec = json!({"maxReplicas": 3, "scaleTargetRef": target, "behavior": {"scaleUp": {"policies": []}}});
    assert_eq!(
        created(name, json!({"spec": spec})),
        ["spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"]
    );
}

#[test]
fn what_never_changes_is_reported_as_such() {
    refuses_changes(
        ("", "v1", "PersistentVolumeClaim"),
        &json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        &[(
            "/spec/volumeMode",
            json!("Block"),
            &[
                "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n",
                "volumeMode: Invalid value: \"Block\": field is immutable",
            ],
        )],
    );
}

#[test]
fn ports_and_fractions_of_bytes_cause_warnings() {
    let port = |host: i64, ip: &str| json!({"containerPort": 80, "hostPort": host, "hostIP": ip, "protocol": "TCP"});
    let pod = json!({"metadata": {"name": "a"}, "spec": {
        "imagePullSecrets": [{}, {}],
        "overhead": {"memory": "1m"},
        "containers": [{
            "name": "c", "resources": {"limits": {"memory": "2m"}},
            "ports": [port(80, ""), port(80, ""), port(81, ""), port(80, "10.0.0.1"), port(0, "")],
        }],
    }});
    let [first, second, third, fourth] =
        [0, 1, 2, 3].map(|i| format!("spec.containers[0].ports[{i}]"));
    let fifth = "spec.containers[0].ports[4]";
    assert_eq!(
        warned("", "Pod", &pod),
        [
            "spec.imagePullSecrets[1].name: duplicate name \"\"".to_owned(),
            "spec.imagePullSecrets[0].name: invalid empty name \"\"".to_owned(),
            "spec.imagePullSecrets[1].name: invalid empty name \"\"".to_owned(),
            "spec.overhead[memory]: fractional byte value \"1m\" is invalid, must be an integer".to_owned(),
            "spec.containers[0].resources.limits[memory]: fractional byte value \"2m\" is invalid, must be an integer".to_owned(),
            format!("{second}: duplicate port definition with {first}"),
            format!("{fourth}: dangerously ambiguous port definition with {first}"),
            format!("{fourth}: dangerously ambiguous port definition with {second}"),
            format!("{fifth}: overlapping port definition with {first}"),
            format!("{fifth}: overlapping port definition with {second}"),
            format!("{fifth}: overlapping port definition with {third}"),
            format!("{fifth}: overlapping port definition with {fourth}"),
        ]
    );
    let quota = json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1"}}});
    assert_eq!(
        warned("", "ResourceQuota", &quota),
        ["ResourceQuota cpu (2) should be less than limits.cpu (1)"]
    );
}
