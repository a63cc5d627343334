//! Where pods run, what they may do, and what changes of them.
use super::{Name, changed, created, fresh, refuses, refuses_changes, refuses_status};
use serde_json::{Value, json};

const POD: Name = ("", "v1", "Pod");

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn placement() {
    refuses(
        POD,
        &pod(),
        &[
            (
                "/spec/tolerations",
                json!([{"operator": "Equal"}]),
                &[
                    "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
                ],
            ),
            (
                "/spec/tolerations",
                json!([{"key": "a", "operator": "X"}]),
                &[
                    "spec.tolerations[0].operator: Unsupported value: \"X\": supported values: \"Equal\", \"Exists\"",
                ],
            ),
            (
                "/spec/tolerations",
                json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]),
                &[
                    "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
                ],
            ),
            (
                "/spec/affinity",
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
                &[
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
                ],
            ),
            (
                "/spec/affinity",
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}}}),
                &[
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                ],
            ),
            (
                "/spec/affinity",
                json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": {"topologyKey": "k"}}]}}),
                &[
                    "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100",
                ],
            ),
            (
                "/spec/affinity",
                json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "k", "matchLabelKeys": ["a"]}]}}),
                &[
                    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
                ],
            ),
            (
                "/spec/topologySpreadConstraints",
                json!([{"maxSkew": 0, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]),
                &[
                    "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                ],
            ),
            (
                "/spec/topologySpreadConstraints",
                json!([{"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}, {"maxSkew": 2, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]),
                &[
                    "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{k, DoNotSchedule}\"",
                ],
            ),
            (
                "/spec/schedulingGates",
                json!([{"name": "a"}, {"name": "a"}]),
                &["spec.schedulingGates[1]: Duplicate value: \"a\""],
            ),
            (
                "/spec/nodeSelector",
                json!({"a": "b c"}),
                &[
                    "spec.nodeSelector: Invalid value: \"b c\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                ],
            ),
        ],
    );
}

#[test]
fn hosts_and_security() {
    refuses(
        POD,
        &pod(),
        &[
            (
                "/spec/dnsPolicy",
                json!("None"),
                &[
                    "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
                ],
            ),
            (
                "/spec/dnsConfig",
                json!({"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]}),
                &[
                    "spec.dnsConfig.nameservers: Invalid value: [\"1.1.1.1\",\"2.2.2.2\",\"3.3.3.3\",\"4.4.4.4\"]: must not have more than 3 nameservers",
                ],
            ),
            ("/spec/dnsConfig", json!({"searches": ["_tcp.ex.io", "."]}), &[]),
            (
                "/spec/hostAliases",
                json!([{"ip": "x", "hostnames": ["a"]}]),
                &[
                    "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ],
            ),
            (
                "/spec/activeDeadlineSeconds",
                json!(0),
                &[
                    "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
                ],
            ),
            (
                "/spec/preemptionPolicy",
                json!("X"),
                &[
                    "spec.preemptionPolicy: Unsupported value: \"X\": supported values: \"PreemptLowerPriority\", \"Never\"",
                ],
            ),
            (
                "/spec/os",
                json!({"name": "dos"}),
                &["spec.os: Unsupported value: \"dos\": supported values: \"linux\", \"windows\""],
            ),
            (
                "/spec/overhead",
                json!({"x": "1"}),
                &[
                    "spec.overhead.limits[x]: Invalid value: \"x\": must be a standard resource type or fully qualified",
                    "spec.overhead.limits[x]: Invalid value: \"x\": must be a standard resource for containers",
                ],
            ),
            (
                "/spec/securityContext",
                json!({"runAsUser": -1}),
                &[
                    "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                ],
            ),
            (
                "/spec/securityContext",
                json!({"sysctls": [{"name": "A", "value": "1"}]}),
                &[
                    r#"spec.securityContext.sysctls[0].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
                ],
            ),
            (
                "/spec/securityContext",
                json!({"sysctls": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}),
                &["spec.securityContext.sysctls[1].name: Duplicate value: \"a\""],
            ),
            (
                "/spec/securityContext",
                json!({"seccompProfile": {"type": "Localhost"}}),
                &[
                    "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
                ],
            ),
            (
                "/spec/securityContext",
                json!({"appArmorProfile": {"type": "X"}}),
                &[
                    "spec.securityContext.appArmorProfile.type: Unsupported value: \"X\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
                ],
            ),
            (
                "/spec/containers/0/securityContext",
                json!({"privileged": true, "allowPrivilegeEscalation": false}),
                &[
                    "spec.containers[0].securityContext: Invalid value: {\"allowPrivilegeEscalation\":false,\"privileged\":true}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
                ],
            ),
            (
                "/metadata/annotations",
                json!({"controller.kubernetes.io/pod-deletion-cost": "+1"}),
                &[
                    "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"+1\": must be a 32bit integer",
                ],
            ),
        ],
    );
    let mut host = pod();
    host["spec"]["hostNetwork"] = true.into();
    refuses(
        POD,
        &host,
        &[
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 80, "hostPort": 81}]),
                &[
                    "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
                ],
            ),
            (
                "/spec/securityContext",
                json!({"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}),
                &[
                    "spec.securityContext.sysctls[0].name: Invalid value: \"net.core.somaxconn\": may not be specified when 'hostNetwork' is true",
                ],
            ),
            (
                "/spec/hostUsers",
                json!(false),
                &["spec.hostNetwork: Forbidden: when `hostUsers` is false"],
            ),
        ],
    );
}

#[test]
fn changes() {
    refuses_changes(
        POD,
        &pod(),
        &[
            ("/spec/containers/0/image", json!("j"), &[]),
            // Reported by the rules of a pod and by those of its changes.
            (
                "/spec/containers/0/image",
                json!(""),
                &[
                    "spec.containers[0].image: Required value",
                    "spec.containers[0].image: Required value",
                ],
            ),
            (
                "/spec/containers/-",
                json!({"name": "d"}),
                &[
                    "spec.containers[1].image: Required value",
                    "spec.containers[1].terminationMessagePolicy: Required value",
                    "spec.containers[1].imagePullPolicy: Required value",
                    "spec.containers: Forbidden: pod updates may not add or remove containers",
                ],
            ),
            ("/spec/tolerations", json!([{"key": "a", "operator": "Exists"}]), &[]),
            (
                "/spec/schedulingGates",
                json!([{"name": "g"}]),
                &[
                    "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'",
                ],
            ),
            (
                "/metadata/annotations",
                json!({"kubernetes.io/config.mirror": "x"}),
                &[
                    "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set",
                    "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation",
                    "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set",
                ],
            ),
        ],
    );
    // A gated pod may be restricted to fewer nodes.
    let mut gated = pod();
    gated["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    gated["spec"]["nodeSelector"] = json!({"a": "b"});
    refuses_changes(
        POD,
        &gated,
        &[
            ("/spec/nodeSelector/c", json!("d"), &[]),
            (
                "/spec/nodeSelector/a",
                json!("c"),
                &[
                    "spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
                ],
            ),
            (
                "/spec/affinity",
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}}}),
                &[],
            ),
            ("/spec/schedulingGates", json!(null), &[]),
        ],
    );
    // Without an affinity to nodes, it is none of a gated pod.
    let mut same = gated.clone();
    same["spec"]["affinity"] = json!({});
    let refusals = changed(POD, &fresh(POD, gated), &fresh(POD, same), false);
    assert!(refusals[0].starts_with("spec: Forbidden: pod updates may not change"), "{refusals:?}");
}

#[test]
fn status() {
    let mut sample = pod();
    sample["spec"]["restartPolicy"] = "Never".into();
    refuses_status(
        POD,
        &sample,
        &[
            (
                json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}]}),
                &[],
            ),
            (
                json!({"podIPs": [{"ip": "x"}]}),
                &[
                    "status.podIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ],
            ),
            (
                json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}),
                &[
                    "status.podIPs: Invalid value: [{\"ip\":\"10.0.0.1\"},{\"ip\":\"10.0.0.2\"}]: may specify no more than one IP for each IP family",
                ],
            ),
        ],
    );
    let mut ended = fresh(POD, sample);
    ended["status"]["containerStatuses"] =
        json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]);
    let mut running = ended.clone();
    running["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
    assert_eq!(
        changed(POD, &ended, &running, true),
        [
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
        ]
    );
}

#[test]
fn warnings() {
    let spec = json!({"spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 80}, {"containerPort": 80}]}], "imagePullSecrets": [{"name": "s"}, {"name": "s"}]}});
    assert_eq!(created(POD, spec.clone()), [""; 0]);
    let pod = fresh(POD, spec);
    assert_eq!(
        crate::kind::template::pod_warnings(&pod),
        [
            "spec.imagePullSecrets[1].name: duplicate name \"s\"",
            "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ]
    );
}
