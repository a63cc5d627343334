//! Workloads.
use super::{Name, refuses, refuses_changes, refuses_status};
use serde_json::{Value, json};

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}
fn set_of(rest: Value) -> Value {
    let mut spec = rest;
    spec["selector"] = json!({"matchLabels": {"a": "b"}});
    spec["template"] = template();
    json!({"spec": spec})
}

#[test]
fn deployments_and_replica_sets() {
    let name: Name = ("apps", "v1", "Deployment");
    refuses(
        name,
        &set_of(json!({})),
        &[
            (
                "/spec/replicas",
                json!(-1),
                &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                "/spec/selector",
                json!({}),
                &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
            ),
            (
                "/spec/selector/matchLabels/a",
                json!("c"),
                &[
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
                ],
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("Never"),
                &[
                    "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                ],
            ),
            (
                "/spec/template/spec/activeDeadlineSeconds",
                json!(1),
                &[
                    "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
                ],
            ),
            (
                "/spec/strategy",
                json!({"type": "Recreate", "rollingUpdate": {}}),
                &[
                    "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
                ],
            ),
            (
                "/spec/strategy",
                json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
                &[
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
                ],
            ),
            (
                "/spec/strategy",
                json!({"rollingUpdate": {"maxSurge": "x"}}),
                &[
                    "spec.strategy.rollingUpdate.maxSurge: Invalid value: \"x\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                ],
            ),
            ("/spec/progressDeadlineSeconds", json!(10), &[]),
            (
                "/spec/minReadySeconds",
                json!(600),
                &[
                    "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
                ],
            ),
            (
                "/spec/template/spec/ephemeralContainers",
                json!([{"name": "e", "image": "i"}]),
                &[
                    "spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template",
                ],
            ),
        ],
    );
    refuses_changes(
        name,
        &set_of(json!({})),
        &[
            ("/spec/replicas", json!(7), &[]),
            (
                "/spec/selector",
                json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
                &[
                    "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Exists\"}]}: field is immutable",
                ],
            ),
        ],
    );
    refuses_status(
        name,
        &set_of(json!({})),
        &[
            (json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}), &[]),
            (
                json!({"replicas": 1, "readyReplicas": 2}),
                &["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
            ),
            (
                json!({"collisionCount": -1}),
                &["status.collisionCount: Invalid value: -1: must be greater than or equal to 0"],
            ),
        ],
    );
    refuses_status(
        ("apps", "v1", "ReplicaSet"),
        &set_of(json!({})),
        &[(
            json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2}),
            &["status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"],
        )],
    );
}

#[test]
fn daemon_sets() {
    let name: Name = ("apps", "v1", "DaemonSet");
    refuses(
        name,
        &set_of(json!({})),
        &[
            (
                "/spec/updateStrategy",
                json!({"type": "X"}),
                &[
                    "spec.updateStrategy: Unsupported value: {\"type\":\"X\"}: supported values: \"RollingUpdate\", \"OnDelete\"",
                ],
            ),
            (
                "/spec/updateStrategy",
                json!({"rollingUpdate": {"maxUnavailable": 0}}),
                &[
                    "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
                ],
            ),
            (
                "/spec/updateStrategy",
                json!({"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}),
                &[
                    "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
                ],
            ),
            (
                "/spec/template/spec/activeDeadlineSeconds",
                json!(1),
                &[
                    "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported",
                ],
            ),
        ],
    );
}

#[test]
fn stateful_sets() {
    let name: Name = ("apps", "v1", "StatefulSet");
    let mut set = set_of(
        json!({"serviceName": "s", "volumeClaimTemplates": [{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}]}),
    );
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/d"}]);
    refuses(
        name,
        &set,
        &[
            (
                "/spec/podManagementPolicy",
                json!("X"),
                &[
                    "spec.podManagementPolicy: Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'",
                ],
            ),
            (
                "/spec/updateStrategy",
                json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}}),
                &[
                    "spec.updateStrategy.rollingUpdate: Invalid value: {\"partition\":1}: only allowed for updateStrategy 'RollingUpdate'",
                ],
            ),
            (
                "/spec/ordinals",
                json!({"start": -1}),
                &["spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                "/spec/serviceName",
                json!("A"),
                &[
                    "spec.serviceName: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                ],
            ),
            (
                "/spec/persistentVolumeClaimRetentionPolicy",
                json!({"whenScaled": "X"}),
                &[
                    "spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: \"X\": supported values: \"Retain\", \"Delete\"",
                ],
            ),
            (
                "/spec/volumeClaimTemplates/0/spec/accessModes",
                json!([]),
                &[
                    "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
                ],
            ),
            (
                "/spec/template/spec/containers/0/volumeMounts/0/name",
                json!("x"),
                &["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"x\""],
            ),
        ],
    );
    const FORBIDDEN: &str = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    refuses_changes(
        name,
        &set,
        &[
            ("/spec/replicas", json!(2), &[]),
            ("/spec/serviceName", json!("other"), &[FORBIDDEN]),
            ("/spec/podManagementPolicy", json!("Parallel"), &[FORBIDDEN]),
        ],
    );
}

fn job(rest: Value) -> Value {
    let mut spec = rest;
    spec["template"] = template();
    spec["template"]["spec"]["restartPolicy"] = "Never".into();
    json!({"spec": spec})
}

#[test]
fn jobs() {
    let name: Name = ("batch", "v1", "Job");
    refuses(
        name,
        &job(json!({})),
        &[
            (
                "/spec/parallelism",
                json!(-1),
                &["spec.parallelism: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                "/spec/completionMode",
                json!("X"),
                &[
                    "spec.completionMode: Unsupported value: \"X\": supported values: \"NonIndexed\", \"Indexed\"",
                ],
            ),
            (
                "/spec/backoffLimitPerIndex",
                json!(1),
                &["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
            ),
            (
                "/spec/managedBy",
                json!("me"),
                &[
                    "spec.managedBy: Invalid value: \"me\": must be a domain-prefixed path (such as \"acme.io/foo\")",
                ],
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("Always"),
                &[
                    "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
                ],
            ),
            (
                "/spec/podFailurePolicy",
                json!({"rules": [{"action": "X", "onExitCodes": {"operator": "In", "values": [1]}}]}),
                &[
                    "spec.podFailurePolicy.rules[0].action: Unsupported value: \"X\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"",
                ],
            ),
            (
                "/spec/podFailurePolicy",
                json!({"rules": [{"action": "Count"}]}),
                &[
                    "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
                ],
            ),
            (
                "/spec/podFailurePolicy",
                json!({"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [2, 1, 0]}}]}),
                &[
                    "spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Invalid value: 0: must not be 0 for the In operator",
                    "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1,0]: must be ordered",
                ],
            ),
            (
                "/spec/successPolicy",
                json!({"rules": [{"succeededCount": 1}]}),
                &[
                    "spec.successPolicy: Invalid value: {\"rules\":[{\"succeededCount\":1}]}: requires indexed completion mode",
                ],
            ),
            (
                "/spec/selector",
                json!({"matchLabels": {"x": "y"}}),
                &[
                    "spec.selector: Invalid value: {\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"u\",\"x\":\"y\"}}: `selector` not auto-generated",
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"u\",\"batch.kubernetes.io/job-name\":\"x\",\"controller-uid\":\"u\",\"job-name\":\"x\"}: `selector` does not match template `labels`",
                ],
            ),
        ],
    );
    let indexed = job(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3}));
    refuses(
        name,
        &indexed,
        &[
            (
                "/spec/completions",
                json!(null),
                &["spec.completions: Required value: when completion mode is Indexed"],
            ),
            (
                "/spec/successPolicy",
                json!({"rules": [{"succeededIndexes": "0-1,5"}]}),
                &[
                    "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"0-1,5\": error parsing succeededIndexes: too large index: \"5\"",
                ],
            ),
            (
                "/spec/successPolicy",
                json!({"rules": [{"succeededIndexes": "0-1", "succeededCount": 3}]}),
                &[
                    "spec.successPolicy.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
                ],
            ),
            (
                "/spec/parallelism",
                json!(100_001),
                &[
                    "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
                ],
            ),
        ],
    );
    refuses_changes(
        name,
        &job(json!({"suspend": false})),
        &[
            ("/spec/parallelism", json!(2), &[]),
            ("/spec/suspend", json!(true), &[]),
            (
                "/spec/completions",
                json!(2),
                &["spec.completions: Invalid value: 2: field is immutable"],
            ),
            (
                "/spec/backoffLimitPerIndex",
                json!(2),
                &[
                    "spec.backoffLimitPerIndex: Invalid value: 2: requires indexed completion mode",
                    "spec.backoffLimitPerIndex: Invalid value: 2: requires indexed completion mode",
                    "spec.backoffLimitPerIndex: Invalid value: 2: field is immutable",
                ],
            ),
        ],
    );
    refuses_changes(
        name,
        &indexed,
        &[(
            "/spec/completions",
            json!(4),
            &[
                "spec.completions: Invalid value: 4: can only be modified in tandem with spec.parallelism",
            ],
        )],
    );
    refuses_changes(
        name,
        &job(json!({"suspend": true})),
        &[
            ("/spec/template/spec/nodeSelector", json!({"a": "b"}), &[]),
            ("/spec/template/spec/containers/0/resources", json!({"limits": {"cpu": "1"}}), &[]),
        ],
    );
    refuses_status(
        name,
        &job(json!({})),
        &[
            (json!({"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z"}), &[]),
            (
                json!({"active": 1, "ready": 2}),
                &["status.ready: Invalid value: 2: cannot set more ready pods than active"],
            ),
            // Where nobody says how many are ready, they are not more.
            (
                json!({"active": -2}),
                &["status.active: Invalid value: -2: must be greater than or equal to 0"],
            ),
            (
                json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "conditions": [{"type": "Complete", "status": "True"}, {"type": "SuccessCriteriaMet", "status": "True"}]}),
                &[],
            ),
            (
                json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Failed", "status": "True"}]}),
                &[
                    "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
                ],
            ),
            (
                json!({"active": 1, "terminating": 1, "ready": 2, "conditions": [{"type": "Complete", "status": "True"}]}),
                &[
                    "status.completionTime: Required value: completionTime is required for Complete jobs",
                    "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                    "status.active: Invalid value: 1: active>0 is invalid for finished job",
                    "status.startTime: Required value: startTime is required for finished job",
                    "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
                    "status.ready: Invalid value: 2: cannot set more ready pods than active",
                ],
            ),
        ],
    );
}

#[test]
fn cron_jobs() {
    let name: Name = ("batch", "v1", "CronJob");
    let mut cron = json!({"spec": {"schedule": "* * * * *", "timeZone": "Europe/Berlin"}});
    cron["spec"]["jobTemplate"] = job(json!({}));
    refuses(
        name,
        &cron,
        &[
            (
                "/spec/schedule",
                json!("* * * *"),
                &[
                    "spec.schedule: Invalid value: \"* * * *\": expected exactly 5 fields, found 4: [* * * *]",
                ],
            ),
            (
                "/spec/schedule",
                json!("61 * * * *"),
                &[
                    "spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61",
                ],
            ),
            (
                "/spec/schedule",
                json!("TZ=UTC 0 * * * *"),
                &[
                    "spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
                ],
            ),
            (
                "/spec/timeZone",
                json!("Europe/Nowhere"),
                &[
                    "spec.timeZone: Invalid value: \"Europe/Nowhere\": unknown time zone Europe/Nowhere",
                ],
            ),
            (
                "/spec/timeZone",
                json!("local"),
                &[
                    "spec.timeZone: Invalid value: \"local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
                    "spec.timeZone: Invalid value: \"local\": unknown time zone local",
                ],
            ),
            (
                "/spec/concurrencyPolicy",
                json!("X"),
                &[
                    "spec.concurrencyPolicy: Unsupported value: \"X\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
                ],
            ),
            (
                "/spec/startingDeadlineSeconds",
                json!(-1),
                &[
                    "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
            (
                "/spec/jobTemplate/spec/manualSelector",
                json!(true),
                &[
                    "spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\"",
                ],
            ),
        ],
    );
}
