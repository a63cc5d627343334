//! Defaults that kinds set in code, and their rules.
mod rules;

use super::fill_defaults;
use serde_json::{Value, json};
use setpoint_schema::{builtin, decode};

/// Decodes and defaults an object of a kind; panics on unknown fields.
fn stored(group: &str, version: &str, kind: &str, mut value: Value) -> Value {
    let schema = builtin::type_schema(group, version, kind).unwrap();
    let mut problems = Vec::new();
    decode::conform(&schema, kind, &mut value, &mut problems).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    fill_defaults(group, version, kind, &schema, &mut value);
    value
}

#[test]
fn pull_policy_follows_the_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("reg:5000/nginx", "Always"),
        ("reg:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:00", "IfNotPresent"),
    ] {
        assert_eq!(super::pod_default::pull_policy(image), policy, "{image}");
    }
}

#[test]
fn a_recreate_deployment_gets_no_rolling_update() {
    let spec = json!({"strategy": {"type": "Recreate"}, "selector": {}, "replicas": 0, "template": {"spec": {"containers": []}}});
    let stored = stored("apps", "v1", "Deployment", json!({"spec": spec}));
    assert_eq!(stored["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(stored["spec"]["replicas"], 0);
}

#[test]
fn zero_of_a_plain_field_counts_as_absent() {
    let container =
        json!({"name": "c", "livenessProbe": {"timeoutSeconds": 0, "exec": {"command": ["x"]}}});
    let stored =
        stored("", "v1", "Pod", json!({"spec": {"hostNetwork": false, "containers": [container]}}));
    assert_eq!(stored["spec"]["containers"][0]["livenessProbe"]["timeoutSeconds"], 1);
    assert_eq!(stored["spec"].get("hostNetwork"), None);
}

#[test]
fn host_network_sets_the_host_ports_of_a_pod() {
    let container = json!({"name": "c", "ports": [{"containerPort": 80}]});
    let pod =
        stored("", "v1", "Pod", json!({"spec": {"hostNetwork": true, "containers": [container]}}));
    assert_eq!(
        pod["spec"]["containers"][0]["ports"][0],
        json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"})
    );
}

#[test]
fn string_data_of_a_secret_moves_into_data() {
    let secret = stored(
        "",
        "v1",
        "Secret",
        json!({"stringData": {"a": "b"}, "data": {"a": "eA==", "c": "eA=="}}),
    );
    assert_eq!(
        secret,
        json!({"data": {"a": "Yg==", "c": "eA=="}, "type": "Opaque", "metadata": {}})
    );
}

#[test]
fn autoscaler_behavior_is_filled_only_when_given() {
    let scaler = json!({"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 1,
        "scaleTargetRef": {"kind": "A", "name": "b"}, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}}}});
    let scaler = stored("autoscaling", "v2", "HorizontalPodAutoscaler", scaler);
    assert_eq!(
        scaler["spec"]["behavior"],
        json!({"scaleDown": {"policies": [{"periodSeconds": 15, "type": "Percent", "value": 100}], "selectPolicy": "Max", "stabilizationWindowSeconds": 1},
            "scaleUp": {"policies": [{"periodSeconds": 15, "type": "Pods", "value": 4}, {"periodSeconds": 15, "type": "Percent", "value": 100}],
                "selectPolicy": "Max", "stabilizationWindowSeconds": 0}})
    );
}

#[test]
fn definitions_get_names_and_conversion() {
    let crd = stored(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        json!({"spec": {"group": "ex.io", "scope": "Cluster",
        "names": {"kind": "Foo", "plural": "foos"}, "versions": []}}),
    );
    assert_eq!(
        crd["spec"]["names"],
        json!({"kind": "Foo", "listKind": "FooList", "plural": "foos", "singular": "foo"})
    );
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
}

#[test]
fn autoscalers_of_v1_target_cpu_by_default() {
    let scaler = |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"maxReplicas": 1, "scaleTargetRef": {"kind": "A", "name": "b"}}});
    let plain = stored("autoscaling", "v1", "HorizontalPodAutoscaler", scaler(json!({})));
    assert_eq!(plain["spec"]["targetCPUUtilizationPercentage"], 80);
    let other = stored(
        "autoscaling",
        "v1",
        "HorizontalPodAutoscaler",
        scaler(json!({"autoscaling.alpha.kubernetes.io/metrics": "[]"})),
    );
    assert_eq!(other["spec"].get("targetCPUUtilizationPercentage"), None);
}
