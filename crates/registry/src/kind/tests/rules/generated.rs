//! What generated objects have shown: answers of kube-apiserver 1.36 to them.
use super::{changed, created, fresh, refuses, refuses_changes};
use crate::features::FeatureGates;
use crate::kind::rows;
use serde_json::{Value, json};

#[test]
fn sources_of_volumes_have_the_rules_of_the_first_one() {
    let name = ("", "v1", "PersistentVolume");
    let sample = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/e"}}});
    refuses(
        name,
        &sample,
        &[
            // A second source needs nothing.
            (
                "/spec/local",
                json!({}),
                &["spec.local: Forbidden: may not specify more than 1 volume type"],
            ),
            ("/spec/flexVolume", json!({"driver": "a/b"}), &[]),
            ("/spec/flexVolume", json!({}), &["spec.flexVolume.driver: Required value"]),
            (
                "/spec/capacity/storage",
                json!("-1Ki"),
                &[
                    "spec.capacity[storage]: Invalid value: -1024: must be a valid resource quantity",
                    "spec.capacity[storage]: Invalid value: \"-1Ki\": must be greater than zero",
                ],
            ),
        ],
    );
    let mut local = sample.clone();
    local["spec"]["nfs"] = Value::Null;
    local["spec"]["local"] = json!({"path": "/d"});
    assert_eq!(
        created(name, local),
        ["spec.nodeAffinity: Required value: Local volume requires node affinity"]
    );
    let mut host = sample;
    host["spec"]["nfs"] = Value::Null;
    host["spec"]["hostPath"] = json!({});
    host["spec"]["persistentVolumeReclaimPolicy"] = "Recycle".into();
    assert_eq!(created(name, host), ["spec.hostPath.path: Required value"]);
}

#[test]
fn an_empty_source_of_a_volume_is_another_one() {
    let name = ("", "v1", "PersistentVolume");
    let sample = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/e"}}});
    let old = fresh(name, sample);
    let mut new = old.clone();
    new["spec"]["emptySource"] = json!({});
    let errors = changed(name, &old, &new, false);
    assert!(errors[0].starts_with("spec.persistentvolumesource: Forbidden:"), "{errors:?}");
}

#[test]
fn addresses_of_services_are_checked_before_anything_else() {
    let name = ("", "v1", "Service");
    let sample = json!({"spec": {"ports": [{"port": 80}]}});
    refuses(
        name,
        &sample,
        &[(
            "/spec",
            json!({"ports": [], "clusterIP": "x"}),
            &[
                "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ],
        )],
    );
    let mut old = fresh(name, json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}));
    old["spec"]["type"] = "ClusterIP".into();
    let mut new = old.clone();
    new["spec"]["loadBalancerClass"] = "a/b".into();
    const CLASS: &str =
        "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'";
    assert_eq!(changed(name, &old, &new, false), [CLASS, CLASS]);
}

#[test]
fn a_claim_is_immutable_and_nothing_else() {
    let name = ("resource.k8s.io", "v1", "ResourceClaim");
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let sample = json!({"spec": {"devices": {"requests": [request]}}});
    let old = fresh(name, sample);
    let mut new = old.clone();
    new["spec"]["devices"]["requests"][0]["name"] = "not a label".into();
    let errors = changed(name, &old, &new, false);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].ends_with("field is immutable"), "{errors:?}");
}

/// An expression that is evaluated for each pair of attributes.
fn nested(inner: &str) -> String {
    format!("device.attributes.all(k, device.attributes[k].all(j, {inner}))")
}

#[test]
fn expressions_that_select_devices_are_compiled_and_estimated() {
    let name = ("resource.k8s.io", "v1", "DeviceClass");
    let sample = json!({"spec": {"selectors": [{"cel": {"expression": "cel.bind(a, device.attributes['ex.io'], a.b == 'x') && device.capacity['ex.io'].memory.compareTo(quantity('1Gi')) > 0 && device.driver == 'd' && !device.allowMultipleAllocations"}}]}});
    refuses(
        name,
        &sample,
        &[
            (
                "/spec/selectors/0/cel/expression",
                json!("3-1"),
                &[
                    "spec.selectors[0].cel.expression: Invalid value: \"3-1\": must evaluate to bool or the unknown type, not int",
                ],
            ),
            ("/spec/selectors/0/cel/expression", json!("device.attributes['ex.io'].a"), &[]),
            (
                "/spec/selectors/0/cel/expression",
                json!("int('x') == 1"),
                &[
                    "spec.selectors[0].cel.expression: Internal error: program instantiation failed: type conversion error from 'string' to 'int'",
                ],
            ),
            (
                "/spec/selectors/0/cel/expression",
                json!("dyn(true)"),
                &[
                    "spec.selectors[0].cel.expression: Invalid value: \"dyn(true)\": must evaluate to bool or the unknown type, not dyn",
                ],
            ),
            (
                "/spec/selectors/0/cel/expression",
                json!("device.attributes['ex.io'].l.exists(x, x)"),
                &[
                    "spec.selectors[0].cel.expression: Invalid value: \"device.attributes['ex.io'].l.exists(x, x)\": compilation failed: ERROR: <input>:1:27: expression of type 'any' cannot be range of a comprehension (must be list, map, or dynamic)\n | device.attributes['ex.io'].l.exists(x, x)\n | ..........................^",
                ],
            ),
            (
                "/spec/selectors/0/cel/expression",
                json!(nested("device.attributes[k].exists(l, true)")),
                &[],
            ),
            (
                "/spec/selectors/0/cel/expression",
                json!(nested("device.capacity.exists(l, device.capacity[l].exists(m, true))")),
                &["spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"],
            ),
            (
                "/spec/selectors/0/cel/expression",
                json!("other == 1"),
                &[
                    "spec.selectors[0].cel.expression: Invalid value: \"other == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n | other == 1\n | ^",
                ],
            ),
        ],
    );
}

#[test]
fn policies_of_capacities_need_devices_that_are_shared() {
    let name = ("resource.k8s.io", "v1", "ResourceSlice");
    let sample = json!({"spec": {"driver": "ex.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d", "capacity": {"memory": {"value": "1Gi"}}}]}});
    refuses(
        name,
        &sample,
        &[(
            "/spec/devices/0/capacity/memory/requestPolicy",
            json!({}),
            &[
                "spec.devices[0].capacity[memory].requestPolicy: Forbidden: allowMultipleAllocations must be true",
            ],
        )],
    );
    refuses_changes(
        name,
        &sample,
        &[(
            "/spec/driver",
            json!(""),
            &[
                "spec.driver: Required value",
                "spec.driver: Invalid value: \"\": field is immutable",
            ],
        )],
    );
}

#[test]
fn policies_of_capacities_are_amounts_in_order_or_a_range() {
    let name = ("resource.k8s.io", "v1", "ResourceSlice");
    let device = |policy: Value| {
        json!([{"name": "d", "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "10", "requestPolicy": policy}}}])
    };
    let sample = json!({"spec": {"driver": "ex.io", "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": device(json!({"default": "2", "validValues": ["1", "2", "4"]}))}});
    const AT: &str = "spec.devices[0].capacity[memory].requestPolicy";
    let cases: &[(Value, &[&str])] = &[
        (json!({}), &[]),
        (json!({"default": "20"}), &[]),
        (json!({"default": "2", "validRange": {"min": "1", "max": "9", "step": "1"}}), &[]),
        (
            json!({"validValues": ["1"], "validRange": {"min": "1"}}),
            &[
                ": Forbidden: exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
            ],
        ),
        (
            json!({"validValues": ["1"]}),
            &[".default: Required value: required when validValues is defined"],
        ),
        (
            json!({"validRange": {}}),
            &[".default: Required value: required when validRange is defined"],
        ),
        (
            json!({"default": "3", "validValues": ["2", "1", "11", "1100m"]}),
            &[
                ".validValues[1]: Invalid value: \"1\": values must be sorted in ascending order",
                ".validValues[3]: Invalid value: \"1100m\": values must be sorted in ascending order",
                ".validValues[2]: Invalid value: \"11\": option is larger than capacity value: 10",
                ".validValues[3]: Duplicate value: \"2\"",
                ".validValues: Invalid value: \"3\": default value is not valid according to the requestPolicy",
            ],
        ),
        (
            json!({"default": "1", "validValues": vec!["1"; 11]}),
            &[
                ".validValues: Too many: 11: must have at most 10 items",
                ".validValues: Invalid value: \"1\": default value is not valid according to the requestPolicy",
            ],
        ),
        (
            json!({"default": "1", "validRange": {"max": "2"}}),
            &[".validRange.min: Required value: required when validRange is defined"],
        ),
        (
            json!({"default": "4", "validRange": {"min": "11", "max": "3", "step": "5"}}),
            &[
                ".validRange.min: Invalid value: \"11\": min is larger than capacity value: 10",
                ".validRange.min: Invalid value: \"4\": default is less than min: 11",
                ".validRange.max: Invalid value: \"11\": min is larger than max: 3",
                ".validRange.max: Invalid value: \"4\": default is more than max: 3",
                ".validRange.step: Invalid value: \"5\": one step 16 is larger than capacity value: 10",
                ".validRange.step: Invalid value: \"4\": value is not a multiple of a given step (5) from (11)",
                ".validRange.step: Invalid value: \"3\": value is not a multiple of a given step (5) from (11)",
            ],
        ),
        // kube-apiserver ends the request.
        (
            json!({"default": "1", "validRange": {"min": "1", "step": "0"}}),
            &[
                ".validRange.step: Invalid value: \"1\": value is not a multiple of a given step (0) from (1)",
            ],
        ),
    ];
    for (policy, expected) in cases {
        let expected: Vec<String> = expected.iter().map(|error| format!("{AT}{error}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        refuses(name, &sample, &[("/spec/devices", device(policy.clone()), &expected)]);
    }
}

#[test]
fn ephemeral_containers_are_refused_in_the_order_of_their_members() {
    let name = ("", "v1", "PodTemplate");
    let container = json!({"name": "c", "image": "x"});
    let sample = json!({"template": {"spec": {"containers": [container]}}});
    let mut object = sample;
    object["template"]["spec"]["ephemeralContainers"] = json!([{
        "name": "e", "image": "x", "restartPolicy": "Always", "lifecycle": {},
        "livenessProbe": {"exec": {"command": ["a"]}},
    }]);
    let errors = created(name, object);
    let at = "template.spec.ephemeralContainers[0]";
    let refused: Vec<_> = errors.iter().filter(|error| error.contains("an Ephemeral")).collect();
    let expected = ["restartPolicy", "livenessProbe", "lifecycle"].map(|member| {
        format!("{at}.{member}: Forbidden: cannot be set for an Ephemeral Container")
    });
    assert_eq!(refused, expected.iter().collect::<Vec<_>>(), "{errors:?}");
}

#[test]
fn projected_tokens_need_an_account() {
    let name = ("", "v1", "Pod");
    let token =
        json!({"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}});
    let container = json!({"name": "c", "image": "x"});
    let sample =
        json!({"spec": {"containers": [container], "serviceAccountName": "a", "volumes": [token]}});
    refuses(
        name,
        &sample,
        &[(
            "/spec/serviceAccountName",
            Value::Null,
            &[
                "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
            ],
        )],
    );
}

#[test]
fn templates_of_claims_have_no_metadata_but_labels_and_annotations() {
    let name = ("", "v1", "Pod");
    let claim = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": claim}});
    let container = json!({"name": "c", "image": "x"});
    let sample = json!({"spec": {"containers": [container], "volumes": [volume]}});
    let at = "/spec/volumes/0/ephemeral/volumeClaimTemplate/metadata";
    refuses(
        name,
        &sample,
        &[
            (
                &format!("{at}/deletionGracePeriodSeconds"),
                json!(1),
                &[
                    "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.deletionGracePeriodSeconds: Forbidden: cannot be set",
                ],
            ),
            (
                &format!("{at}/uid"),
                json!("u"),
                &[
                    "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.uID: Forbidden: cannot be set",
                ],
            ),
        ],
    );
}

#[test]
fn a_text_that_names_no_image_is_not_pulled_always() {
    let policy = |image: &str| {
        let container = json!({"name": "c", "image": image});
        let pod = fresh(("", "v1", "Pod"), json!({"spec": {"containers": [container]}}));
        pod["spec"]["containers"][0]["imagePullPolicy"].clone()
    };
    for image in ["nginx", "nginx:latest", "localhost:5000/a/b_c--d", "ex.io/a__b", "a.b/c"] {
        assert_eq!(policy(image), "Always", "{image}");
    }
    let hex = "a".repeat(64);
    for image in ["a b", "../b", "Gt", "1Gi", "https://ex.io/a", "a//b", "a:b:c", &hex, "nginx:1"] {
        assert_eq!(policy(image), "IfNotPresent", "{image}");
    }
}

#[test]
fn resources_of_a_pod_stand_for_those_of_its_containers() {
    let class = |resources: Value| {
        let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
        let spec = json!({"containers": [container], "resources": resources});
        fresh(("", "v1", "Pod"), json!({"spec": spec}))["status"]["qosClass"].clone()
    };
    assert_eq!(class(Value::Null), "Burstable");
    assert_eq!(class(json!({})), "BestEffort");
    let both = json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(class(json!({"requests": both, "limits": both})), "Guaranteed");
}

#[test]
fn missing_texts_of_events_are_empty() {
    let name = ("events.k8s.io", "v1", "Event");
    let old = json!({
        "metadata": {"name": "x", "namespace": "n"}, "involvedObject": {"namespace": "n"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "a.b/c",
        "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal",
    });
    let mut new = old.clone();
    new.as_object_mut().unwrap().remove("type");
    new["message"] = "".into();
    assert_eq!(changed(name, &old, &new, false), ["type: Invalid value: \"\": field is immutable"]);
    // Members of the older version are named in the order of the original.
    let mut older = old;
    older["source"] = json!({"host": "h"});
    older["count"] = 1.into();
    let mut errors = crate::kind::Report::new(FeatureGates::default());
    (rows::of("events.k8s.io", "Event").unwrap().validate)(&older, None, &mut errors);
    let texts = super::texts(&errors);
    let unset = texts
        .iter()
        .filter_map(|text| text.strip_suffix(": Invalid value: \"\": needs to be unset"));
    assert_eq!(unset.collect::<Vec<_>>(), ["count", "source"], "{texts:?}");
}

#[test]
fn a_changed_description_of_a_priority_is_no_generation() {
    assert!(!rows::of("scheduling.k8s.io", "PriorityClass").unwrap().steps_generation);
    assert!(rows::of("apps", "Deployment").unwrap().steps_generation);
}

#[test]
fn taints_of_a_changed_node_are_reported_twice() {
    const KEY: &str = "metadata.taints[0].effect: Required value";
    let sample = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    refuses_changes(
        ("", "v1", "Node"),
        &sample,
        &[("/spec/taints/0/effect", json!(""), &[KEY, KEY])],
    );
}
