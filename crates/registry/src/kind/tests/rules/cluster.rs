//! Quotas, scaling and the cluster's own objects.
use super::{Name, refuses, refuses_changes, refuses_status};
use serde_json::json;

#[test]
fn quotas_and_limits() {
    let quota: Name = ("", "v1", "ResourceQuota");
    let sample = json!({"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}});
    refuses(
        quota,
        &sample,
        &[
            (
                "/spec/hard",
                json!({"pods": "500m"}),
                &["spec.hard[pods]: Invalid value: \"500m\": must be an integer"],
            ),
            (
                "/spec/hard",
                json!({"x": "1"}),
                &[
                    "spec.hard[x]: Invalid value: \"x\": must be a standard resource type or fully qualified",
                    "spec.hard[x]: Invalid value: \"x\": must be a standard resource for quota",
                ],
            ),
            (
                "/spec/hard",
                json!({"cpu": "1"}),
                &[
                    "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
                ],
            ),
            (
                "/spec/scopes",
                json!(["X"]),
                &["spec.scopes: Invalid value: [\"X\"]: unsupported scope"],
            ),
            (
                "/spec/scopes",
                json!(["BestEffort", "NotBestEffort"]),
                &[
                    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
                ],
            ),
            (
                "/spec/scopeSelector",
                json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}),
                &[
                    "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                ],
            ),
        ],
    );
    refuses_changes(
        quota,
        &sample,
        &[(
            "/spec/scopes",
            json!(["NotTerminating"]),
            &["spec.scopes: Invalid value: [\"NotTerminating\"]: field is immutable"],
        )],
    );
    refuses(
        ("", "v1", "LimitRange"),
        &json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}]}}),
        &[
            (
                "/spec/limits/0/min",
                json!({"cpu": "3"}),
                &[
                    "spec.limits[0].min[cpu]: Invalid value: \"3\": min value 3 is greater than max value 2",
                    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": min value 3 is greater than default request value 2",
                    "spec.limits[0].default[cpu]: Invalid value: \"3\": min value 3 is greater than default value 2",
                ],
            ),
            (
                "/spec/limits/-",
                json!({"type": "Container"}),
                &["spec.limits[1].type: Duplicate value: \"Container\""],
            ),
            (
                "/spec/limits/-",
                json!({"type": "X"}),
                &[
                    "spec.limits[1].type: Invalid value: \"X\": must be a standard limit type or fully qualified",
                ],
            ),
            (
                "/spec/limits/-",
                json!({"type": "PersistentVolumeClaim"}),
                &[
                    "spec.limits[1].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
                ],
            ),
            (
                "/spec/limits/0/maxLimitRequestRatio",
                json!({"cpu": "3"}),
                &[
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
                ],
            ),
            // Of an amount whose thousandths are no `int64`, all are counted in units.
            (
                "/spec/limits/0",
                json!({
                    "type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"},
                    "maxLimitRequestRatio": {"cpu": "9E"},
                }),
                &[
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"9E\": ratio 9E is greater than max/min = 2.000000",
                ],
            ),
        ],
    );
}

#[test]
fn budgets_and_scaling() {
    refuses(
        ("policy", "v1", "PodDisruptionBudget"),
        &json!({"spec": {"minAvailable": 1}}),
        &[
            (
                "/spec/minAvailable",
                json!("101%"),
                &["spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%"],
            ),
            (
                "/spec/unhealthyPodEvictionPolicy",
                json!("X"),
                &[
                    "spec.unhealthyPodEvictionPolicy: Unsupported value: \"X\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\"",
                ],
            ),
        ],
    );
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    refuses(
        ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        &json!({"spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}}),
        &[
            (
                "/spec/maxReplicas",
                json!(0),
                &[
                    "spec.maxReplicas: Required value: must be set and greater than 0",
                    "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
                ],
            ),
            (
                "/spec/minReplicas",
                json!(0),
                &[
                    "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                    "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
                ],
            ),
            ("/spec/scaleTargetRef/kind", json!(""), &["spec.scaleTargetRef.kind: Required value"]),
            (
                "/spec/metrics/0/type",
                json!("X"),
                &[
                    "spec.metrics[0].type: Unsupported value: \"X\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"",
                    "spec.metrics[0].type: Unsupported value: \"X\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"",
                ],
            ),
            (
                "/spec/metrics/0/type",
                json!("Pods"),
                &[
                    "spec.metrics[0].pods: Required value: must populate information for the given metric source",
                ],
            ),
            (
                "/spec/metrics/0/resource/target/averageUtilization",
                json!(0),
                &[
                    "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
                ],
            ),
            (
                "/spec/behavior",
                json!({"scaleUp": {"policies": [{"type": "X", "value": 1, "periodSeconds": 1801}]}}),
                &[
                    "spec.behavior.scaleUp.policies[0].type: Unsupported value: \"X\": supported values: \"Percent\", \"Pods\"",
                    "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
                ],
            ),
        ],
    );
}

#[test]
fn small_kinds() {
    let runtime: Name = ("node.k8s.io", "v1", "RuntimeClass");
    refuses(
        runtime,
        &json!({"handler": "runc"}),
        &[
            ("/handler", json!(""), &["handler: Required value"]),
            (
                "/overhead",
                json!({"podFixed": {"hugepages-2Mi": "1Mi"}}),
                &[
                    "overhead.limits[hugepages-2Mi]: Invalid value: \"1Mi\": 1Mi is not positive integer multiple of hugepages-2Mi",
                    "overhead: Forbidden: HugePages require cpu or memory",
                ],
            ),
            ("/overhead", json!({"podFixed": {"hugepages-2Mi": "2Mi", "cpu": "1"}}), &[]),
        ],
    );
    refuses_changes(
        runtime,
        &json!({"handler": "runc"}),
        &[("/handler", json!("other"), &["handler: Invalid value: \"other\": field is immutable"])],
    );
    refuses(
        ("coordination.k8s.io", "v1", "Lease"),
        &json!({"spec": {}}),
        &[
            (
                "/spec/leaseDurationSeconds",
                json!(0),
                &["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
            ),
            (
                "/spec/preferredHolder",
                json!("a"),
                &[
                    "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
                ],
            ),
        ],
    );
    let priority: Name = ("scheduling.k8s.io", "v1", "PriorityClass");
    refuses(
        priority,
        &json!({"value": 1}),
        &[(
            "/preemptionPolicy",
            json!("X"),
            &[
                "preemptionPolicy: Unsupported value: \"X\": supported values: \"PreemptLowerPriority\", \"Never\"",
            ],
        )],
    );
    refuses_changes(
        priority,
        &json!({"value": 1}),
        &[("/value", json!(2), &["value: Forbidden: may not be changed in an update."])],
    );
    let node: Name = ("", "v1", "Node");
    let sample = json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "a"}});
    refuses(
        node,
        &sample,
        &[
            (
                "/spec/taints",
                json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]),
                &[
                    "metadata.taints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"a\"}: taints must be unique by key and effect pair",
                ],
            ),
            (
                "/spec/taints",
                json!([{"key": "a", "effect": "X"}]),
                &[
                    "metadata.taints[0].effect: Unsupported value: \"X\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                ],
            ),
        ],
    );
    refuses_changes(
        node,
        &sample,
        &[(
            "/spec/providerID",
            json!("b"),
            &[
                "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
            ],
        )],
    );
    let revision: Name = ("apps", "v1", "ControllerRevision");
    refuses(
        revision,
        &json!({"data": {}, "revision": 1}),
        &[
            ("/data", json!(null), &["data: Required value: data is mandatory"]),
            (
                "/revision",
                json!(-1),
                &["revision: Invalid value: -1: must be greater than or equal to 0"],
            ),
        ],
    );
    refuses_changes(
        revision,
        &json!({"data": {}, "revision": 1}),
        &[
            ("/data", json!(null), &["data: Invalid value: null: field is immutable"]),
            ("/data", json!({"a": 1}), &["data: Invalid value: {\"a\":1}: field is immutable"]),
        ],
    );
    refuses(
        ("", "v1", "Secret"),
        &json!({"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": "{}"}}),
        &[(
            "/stringData/.dockercfg",
            json!("x"),
            &[
                "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value",
            ],
        )],
    );
    refuses_status(
        ("", "v1", "Namespace"),
        &json!({}),
        &[
            (json!({"phase": "Active"}), &[]),
            (
                json!({"phase": "Terminating"}),
                &[
                    "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
                ],
            ),
        ],
    );
    let event: Name = ("", "v1", "Event");
    refuses(
        event,
        &json!({"metadata": {"namespace": "default"}, "involvedObject": {"kind": "Node"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingComponent": "ex.io/c", "reportingInstance": "i", "action": "a", "reason": "r"}),
        &[
            ("/action", json!(""), &["action: Required value"]),
            (
                "/reason",
                json!("r".repeat(129)),
                &["reason: Invalid value: \"\": can have at most 128 characters"],
            ),
        ],
    );
}
