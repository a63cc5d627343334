use super::*;
use expect_test::{Expect, expect};
use serde_json::json;

mod custom;

/// 2026-01-01T00:10:00Z.
const NOW: Timestamp = Timestamp::from_secs(1_767_226_200);

fn built_in(group: &str, version: &str, kind: &str) -> Columns {
    let fact = setpoint_facts::resource_of_kind(group, version, kind).unwrap();
    Columns::built_in(fact.columns, crate::kind::of(group, kind).unwrap().cells)
}
fn row(group: &str, version: &str, kind: &str, mut object: Value) -> String {
    if object["metadata"].get("name").is_none() {
        object["metadata"]["name"] = "x".into();
    }
    object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    object["apiVersion"] = format!("{group}/{version}").trim_start_matches('/').into();
    let columns = built_in(group, version, kind);
    let cells = columns.row(&object, NOW);
    assert_eq!(cells.len(), columns.definitions.len(), "{kind}: a cell for every heading");
    let shown: Vec<String> = cells
        .iter()
        .map(|cell| cell.as_str().map_or_else(|| format!("={cell}"), str::to_owned))
        .collect();
    shown.join(" | ")
}
fn check(group: &str, kind: &str, object: Value, expected: Expect) {
    expected.assert_eq(&row(group, "v1", kind, object));
}

#[test]
fn every_listed_kind_prints_an_empty_object_without_a_cell_missing() {
    for resource in setpoint_facts::RESOURCES.iter().filter(|row| row.serves("list")) {
        let columns = built_in(resource.group, resource.version, resource.kind);
        let cells = columns.row(&json!({}), NOW);
        assert_eq!(cells.len(), columns.definitions.len(), "{}", resource.kind);
        let headings: Vec<&str> = resource.columns.iter().map(|column| column.name).collect();
        let given: Vec<&str> = columns.definitions.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(headings, given, "{}", resource.kind);
        for (definition, cell) in columns.definitions.iter().zip(&cells) {
            if definition.name == "Age" {
                assert_eq!(cell, "<unknown>", "{}", resource.kind);
            }
        }
    }
}

#[test]
fn durations_have_two_units_while_the_first_is_small() {
    let shown: Vec<String> = [
        -2,
        -1,
        0,
        119,
        120,
        150,
        599,
        600,
        3 * 3600 - 1,
        3 * 3600,
        12_000,
        8 * 3600,
        172_799,
        172_800,
        187_200,
        691_200,
        63_071_999,
        63_072_000,
        217_382_400,
        252_288_000,
    ]
    .into_iter()
    .map(human_duration)
    .collect();
    expect![[r#"<invalid> 0s 0s 119s 2m 2m30s 9m59s 10m 179m 3h 3h20m 8h 47h 2d 2d4h 8d 729d 2y 6y326d 8y"#]]
        .assert_eq(&shown.join(" "));
}

#[test]
fn pods() {
    let containers = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]);
    check(
        "",
        "Pod",
        json!({"spec": {"containers": containers}, "status": {"phase": "Pending"}}),
        expect!["x | 0/2 | Pending | 0 | 10m | <none> | <none> | <none> | <none>"],
    );
    check(
        "",
        "Pod",
        json!({
            "spec": {"containers": containers, "nodeName": "n", "readinessGates": [{"conditionType": "g"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "g", "status": "True"}],
                "containerStatuses": [
                    {"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}},
                     "lastState": {"terminated": {"finishedAt": "2026-01-01T00:05:00Z"}}},
                    {"name": "b", "ready": false, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                ]},
        }),
        expect!["x | 1/2 | CrashLoopBackOff | 3 (5m ago) | 10m | 10.0.0.1 | n | <none> | 1/1"],
    );
    check(
        "",
        "Pod",
        json!({"spec": {"containers": containers}, "status": {"phase": "Succeeded", "containerStatuses": [
            {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]}}),
        expect!["x | 0/2 | Completed | 0 | 10m | <none> | <none> | <none> | <none>"],
    );
    check(
        "",
        "Pod",
        json!({"spec": {"containers": containers}, "status": {"phase": "Failed", "containerStatuses": [
            {"state": {"terminated": {"exitCode": 3}}}]}}),
        expect!["x | 0/2 | ExitCode:3 | 0 | 10m | <none> | <none> | <none> | <none>"],
    );
    // The success of one container does not hide the failure of another.
    for ready in ["False", "True"] {
        check(
            "",
            "Pod",
            json!({"spec": {"containers": containers}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [
                {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
                {"state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}}),
            expect!["x | 0/2 | Error | 0 | 10m | <none> | <none> | <none> | <none>"],
        );
    }
    check(
        "",
        "Pod",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:10:00Z"},
            "spec": {"containers": containers}, "status": {"phase": "Running"}}),
        expect!["x | 0/2 | Terminating | 0 | 10m | <none> | <none> | <none> | <none>"],
    );
}

#[test]
fn pods_that_initialize() {
    let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
    check(
        "",
        "Pod",
        json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [
            {"name": "i", "restartCount": 1, "state": {"running": {}}}]}}),
        expect!["x | 0/2 | Init:0/2 | 1 | 10m | <none> | <none> | <none> | <none>"],
    );
    check(
        "",
        "Pod",
        json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [
            {"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}}),
        expect!["x | 0/2 | Init:Error | 1 | 10m | <none> | <none> | <none> | <none>"],
    );
    check(
        "",
        "Pod",
        json!({"spec": spec, "status": {"phase": "Running", "initContainerStatuses": [
            {"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}},
            {"name": "s", "restartCount": 2, "started": true, "ready": true, "state": {"running": {}}}],
            "containerStatuses": [{"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}}]}}),
        expect!["x | 2/2 | Running | 2 | 10m | <none> | <none> | <none> | <none>"],
    );
}

#[test]
fn workloads() {
    let template =
        json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}});
    let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["z", "y"]}]});
    check(
        "apps",
        "Deployment",
        json!({"spec": {"replicas": 3, "selector": selector, "template": template},
            "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
        expect!["x | 1/3 | =2 | =1 | 10m | a,b | i,j | a in (y,z),b=1"],
    );
    check(
        "apps",
        "ReplicaSet",
        json!({"spec": {"replicas": 3, "template": template}, "status": {"replicas": 2}}),
        expect!["x | =3 | =2 | =0 | 10m | a,b | i,j | <none>"],
    );
    check(
        "",
        "ReplicationController",
        json!({"spec": {"replicas": 1, "selector": {"a": "b"}, "template": template}}),
        expect!["x | =1 | =0 | =0 | 10m | a,b | i,j | a=b"],
    );
    check(
        "apps",
        "StatefulSet",
        json!({"spec": {"replicas": 2, "template": template}}),
        expect!["x | 0/2 | 10m | a,b | i,j"],
    );
    check(
        "apps",
        "DaemonSet",
        json!({"spec": {"template": template}, "status": {"desiredNumberScheduled": 2}}),
        expect!["x | =2 | =0 | =0 | =0 | =0 | <none> | 10m | a,b | i,j | <none>"],
    );
    check(
        "apps",
        "ControllerRevision",
        json!({"revision": 2, "metadata": {"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": true}]}}),
        expect!["x | statefulset.apps/s | =2 | 10m"],
    );
    check(
        "batch",
        "Job",
        json!({"spec": {"completions": 3, "template": template},
            "status": {"succeeded": 1, "startTime": "2026-01-01T00:07:30Z"}}),
        expect!["x | Running | 1/3 | 2m30s | 10m | a,b | i,j | <none>"],
    );
    check(
        "batch",
        "Job",
        json!({"spec": {"parallelism": 2}, "status": {"conditions": [{"type": "Complete", "status": "True"}],
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:05Z"}}),
        expect!["x | Complete | 0/1 of 2 | 5s | 10m |  |  | <none>"],
    );
    check(
        "batch",
        "CronJob",
        json!({"spec": {"schedule": "* * * * *", "suspend": false,
            "jobTemplate": {"spec": {"template": template}}}, "status": {"active": [{}]}}),
        expect!["x | * * * * * | <none> | False | =1 | <none> | 10m | a,b | i,j | <none>"],
    );
}

#[test]
fn traffic() {
    check(
        "",
        "Service",
        json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "selector": {"b": "c", "a": "b"},
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]}}),
        expect!["x | NodePort | 10.0.0.1 | <none> | 80:30080/TCP,53/UDP | 10m | a=b,b=c"],
    );
    check(
        "",
        "Service",
        json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]}}),
        expect!["x | LoadBalancer | <none> | <pending> | 80/TCP | 10m | <none>"],
    );
    check(
        "",
        "Service",
        json!({"spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "h"}, {"ip": "1.2.3.4"}]}}}),
        expect!["x | LoadBalancer | <none> | 1.2.3.4,h,9.9.9.9 | <none> | 10m | <none>"],
    );
    check(
        "",
        "Service",
        json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}),
        expect!["x | ExternalName | <none> | a.b | <none> | 10m | <none>"],
    );
    check(
        "networking.k8s.io",
        "Ingress",
        json!({"spec": {"tls": [{}], "rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}]}}),
        expect!["x | <none> | a,b,c + 1 more... |  | 80, 443 | 10m"],
    );
    check(
        "",
        "Endpoints",
        json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}], "ports": [{"port": 1}, {"port": 2}]}]}),
        expect!["x | 1.1.1.1:1,2.2.2.2:1,1.1.1.1:2 + 1 more... | 10m"],
    );
    check(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": ["1.1.1.1"]}]}),
        expect!["x | IPv4 | 80 | 1.1.1.1 | 10m"],
    );
    check(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"addressType": "IPv4"}),
        expect!["x | IPv4 | <unset> | <unset> | 10m"],
    );
    check(
        "networking.k8s.io",
        "NetworkPolicy",
        json!({"spec": {"podSelector": {}}}),
        expect!["x | <none> | 10m"],
    );
    check(
        "networking.k8s.io",
        "IPAddress",
        json!({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}}),
        expect!["x | services/n/s"],
    );
}

#[test]
fn settings_and_rights() {
    check(
        "",
        "ConfigMap",
        json!({"data": {"a": "b"}, "binaryData": {"c": ""}}),
        expect!["x | =2 | 10m"],
    );
    check(
        "",
        "Secret",
        json!({"type": "Opaque", "data": {"a": ""}}),
        expect!["x | Opaque | =1 | 10m"],
    );
    check(
        "",
        "ResourceQuota",
        json!({"status": {"hard": {"requests.cpu": "2", "limits.cpu": "4", "pods": "5"}, "used": {"pods": "1"}}}),
        expect!["x | pods: 1/5, requests.cpu: 0/2 | limits.cpu: 0/4 | 10m"],
    );
    check(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
        expect!["x | Role/r | 10m | u, v |  | n/s"],
    );
    check(
        "coordination.k8s.io",
        "Lease",
        json!({"spec": {"holderIdentity": "h"}}),
        expect!["x | h | 10m"],
    );
    check(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600},
            "status": {"certificate": "x", "conditions": [{"type": "Approved"}]}}),
        expect!["x | 10m | s | u | 60m | Approved,Issued"],
    );
    check("rbac.authorization.k8s.io", "Role", json!({}), expect!["x | 2026-01-01T00:00:00Z"]);
}

#[test]
fn events_in_both_groups() {
    let expected = expect!["5m | Normal | R | pod/p | f | c, h | m | 10m | =2 | x"];
    expected.assert_eq(&row("", "v1", "Event", json!({"type": "Normal", "reason": "R", "message": "m\n",
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"}, "source": {"component": "c", "host": "h"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z", "count": 2})));
    let expected = expect!["10m | Normal | R | pod/p |  | c, i | m | 10m | =1 | x"];
    expected.assert_eq(&row("events.k8s.io", "v1", "Event", json!({"type": "Normal", "reason": "R", "note": "m",
        "regarding": {"kind": "Pod", "name": "p"}, "reportingController": "c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z", "deprecatedFirstTimestamp": null, "deprecatedSource": {}})));
}

#[test]
fn nodes_and_the_cluster() {
    check(
        "",
        "Node",
        json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "a"}},
            "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}], "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": ""}}}),
        expect![
            "x | Ready,SchedulingDisabled | a,worker | 10m | v1.36.0 | 1.1.1.1 | <none> | <unknown> | <unknown> | <unknown>"
        ],
    );
    check(
        "",
        "Node",
        json!({"status": {"nodeInfo": {"kernelVersion": "6.1", "architecture": "arm64"}}}),
        expect![
            "x | Unknown | <none> | 10m |  | <none> | <none> | <unknown> | 6.1 (arm64) | <unknown>"
        ],
    );
    check("", "Namespace", json!({"status": {"phase": "Active"}}), expect!["x | Active | 10m"]);
    check(
        "apiregistration.k8s.io",
        "APIService",
        json!({"spec": {"service": {"namespace": "n", "name": "s"}},
            "status": {"conditions": [{"type": "Available", "status": "False", "reason": "R"}]}}),
        expect!["x | n/s | False (R) | 10m"],
    );
    check(
        "scheduling.k8s.io",
        "PriorityClass",
        json!({"value": 5}),
        expect!["x | =5 | =false | 10m | PreemptLowerPriority"],
    );
    check(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        json!({"spec": {"type": "Exempt"}}),
        expect!["x | Exempt | <none> | <none> | <none> | <none> | 10m"],
    );
    check(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        json!({}),
        expect!["x | 2026-01-01T00:00:00Z"],
    );
    check(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        json!({"spec": {"policyName": "p", "paramRef": {"name": "q"}}}),
        expect!["x | p | */q | 10m"],
    );
}

#[test]
fn volumes() {
    // Bound before its capacity is known.
    check(
        "",
        "PersistentVolumeClaim",
        json!({"spec": {"volumeName": "v"}, "status": {"phase": "Pending"}}),
        expect!["x | Pending | v | 0 |  |  | <unset> | 10m | <unset>"],
    );
    check(
        "",
        "PersistentVolumeClaim",
        json!({"spec": {"volumeName": "v", "storageClassName": "c", "volumeMode": "Filesystem"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}}),
        expect!["x | Bound | v | 1Gi | RWO,RWX | c | <unset> | 10m | Filesystem"],
    );
    check(
        "",
        "PersistentVolume",
        json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"],
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"}}, "status": {"phase": "Bound"}}),
        expect!["x | 1Gi | RWOP | Retain | Bound | n/c |  | <unset> |  | 10m | <unset>"],
    );
    check(
        "storage.k8s.io",
        "StorageClass",
        json!({"provisioner": "p",
            "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        expect!["x (default) | p | Delete | Immediate | =false | 10m"],
    );
    check(
        "storage.k8s.io",
        "CSIDriver",
        json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Persistent"]}}),
        expect!["x | =false | =false | =false | <unset> | =false | Persistent | 10m"],
    );
}

#[test]
fn scaling() {
    let object = json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
            {"type": "External", "external": {"target": {"averageValue": "5"}}},
            {"type": "Pods", "pods": {"target": {"averageValue": "1k"}}}]},
        "status": {"currentReplicas": 2, "currentMetrics": [{"resource": {"current": {"averageUtilization": 12}}}]}});
    expect![
        "x | Deployment/d | cpu: 12%/80%, <unknown>/5 (avg) + 1 more... | <unset> | =3 | =2 | 10m"
    ]
    .assert_eq(&row("autoscaling", "v2", "HorizontalPodAutoscaler", object));
    check(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}}),
        expect!["x | Deployment/d | cpu: <unknown>/50% | 1 | =3 | =0 | 10m"],
    );
    let memory = r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}}]"#;
    let current = r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":9,"currentAverageValue":"0"}}]"#;
    check(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({
            "metadata": {"annotations": {
                "autoscaling.alpha.kubernetes.io/metrics": memory,
                "autoscaling.alpha.kubernetes.io/current-metrics": current,
            }},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50},
            "status": {"currentReplicas": 1},
        }),
        expect!["x | Deployment/d | cpu: 9%/50%, memory: <unknown>/1Gi | 1 | =3 | =1 | 10m"],
    );
    check(
        "policy",
        "PodDisruptionBudget",
        json!({"spec": {"maxUnavailable": "10%"}}),
        expect!["x | N/A | 10% | =0 | 10m"],
    );
}

#[test]
fn what_some_cells_say_of_defaults_names_and_selectors() {
    let rule = |host: &str| json!({"host": host});
    check(
        "networking.k8s.io",
        "Ingress",
        json!({"spec": {"rules": [rule(""), rule("a"), rule("b"), rule("c"), rule("")]}}),
        expect!["x | <none> | a,b,c + 2 more... |  | 80 | 10m"],
    );
    check(
        "networking.k8s.io",
        "Ingress",
        json!({"spec": {"rules": [rule(""), rule("a"), rule("b"), rule("c")]}}),
        expect!["x | <none> | a,b,c |  | 80 | 10m"],
    );
    check(
        "networking.k8s.io",
        "IngressClass",
        json!({"spec": {"controller": "ex.io/c"},
            "metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}}),
        expect!["x (default) | ex.io/c | <none> | 10m"],
    );
    check(
        "storage.k8s.io",
        "VolumeAttributesClass",
        json!({"driverName": "d",
            "metadata": {"annotations": {"volumeattributesclass.alpha.kubernetes.io/is-default-class": "true"}}}),
        expect!["x | d | 10m"],
    );
    check(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"addressType": "IPv4", "ports": [{"name": ""}, {"name": "a"}, {"name": "b", "port": 80}]}),
        expect!["x | IPv4 | ,a,80 | <unset> | 10m"],
    );
    let selector = json!({
        "matchLabels": {"b": "1", "a": "2"},
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["x", "y"]}],
    });
    check(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        json!({"spec": {"policyName": "p", "paramRef": {"selector": selector}}}),
        expect![
            "x | p | &LabelSelector{MatchLabels:map[string]string{a: 2,b: 1,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[x y],},},} | 10m"
        ],
    );
}

#[test]
fn custom_columns() {
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"s": "text", "i": 3, "f": 2.5, "b": true, "o": {"a": [1]}, "when": "2019-01-31T00:10:00Z", "bad": "no time"}});
    let column = |ty: &str, path: &str| json!({"name": path, "type": ty, "jsonPath": path});
    let columns = Columns::custom(&json!([
        column("string", ".spec.s"),
        column("string", ".spec.o"),
        column("string", ".spec.i"),
        column("integer", ".spec.i"),
        column("integer", ".spec.f"),
        column("integer", ".spec.s"),
        column("number", ".spec.f"),
        column("boolean", ".spec.b"),
        column("date", ".spec.when"),
        column("date", ".spec.bad"),
        column("string", ".spec.absent"),
    ]));
    let cells = Value::from(columns.row(&object, NOW)).to_string();
    expect![[r#"["x","text","{\"a\":[1]}","3",3,2,null,2.5,true,"6y337d","<invalid>",null]"#]]
        .assert_eq(&cells);
    assert!(!columns.definitions[0].description.is_empty());
    assert_eq!(
        columns.definitions[1].description,
        "Custom resource definition column (in JSONPath format): .spec.s"
    );
}

/// As the reference prints them: Go's `fmt.Fprint`, and `json.Marshal` for objects and lists.
#[test]
fn string_columns_print_values_as_the_reference_does() {
    let object = json!({"metadata": {"name": "x"}, "spec": {
        "null": null, "list": [null, {"b": "<b>&", "a": 1e21}], "float": 123_456_789.5,
        "plain": 999_999.5, "small": 0.000_000_01, "whole": 9_007_199_254_740_993_i64, "no": false,
    }});
    let column = |ty: &str, path: &str| json!({"name": path, "type": ty, "jsonPath": path});
    let columns = Columns::custom(&json!([
        column("string", ".spec.null"),
        column("string", ".spec.list[0]"),
        column("integer", ".spec.null"),
        column("string", ".spec.list"),
        column("string", ".spec.float"),
        column("string", ".spec.plain"),
        column("string", ".spec.small"),
        column("string", ".spec.whole"),
        column("integer", ".spec.whole"),
        column("number", ".spec.whole"),
        column("number", ".spec.float"),
        column("string", ".spec.no"),
        column("string", ".spec.list[0:9]"),
    ]));
    let cells = columns.row(&object, NOW);
    let mut shown = Vec::new();
    setpoint_object::encode::push(&mut shown, &Value::from(cells));
    expect![[r#"["x","\u003cno value\u003e","\u003cno value\u003e",null,"[null,{\"a\":1e+21,\"b\":\"\\u003cb\\u003e\\u0026\"}]","1.234567895e+08","999999.5","1e-08","9007199254740993",9007199254740993,9007199254740992,123456789.5,"false",null]"#]]
        .assert_eq(&String::from_utf8(shown).unwrap());
}
