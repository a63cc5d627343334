//! Nodes without containers and the scheduler, as users see them.

use crate::user::{User, with_user};
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, Selection, SimulatedNodes, Stages};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";

fn server() -> Value {
    json!({"containers": [{"name": "c", "image": "example.com/server:1"}]})
}

fn needs(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}]})
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

fn pod(name: &str) -> String {
    format!("{PODS}/{name}")
}

/// The events about an object, as `Reason: message`.
async fn events(user: &User, name: &str) -> Vec<String> {
    let list = user.get("/api/v1/namespaces/default/events").await;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let about = items.iter().filter(|event| event["involvedObject"]["name"] == name);
    about
        .map(|event| {
            format!("{}: {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap())
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_are_ready_and_keep_their_leases() {
    with_user(ControlPlane::builder().nodes(3), async |user| {
        for name in ["node-0", "node-1", "node-2"] {
            let node = user.until(&format!("{NODES}/{name}"), is_ready).await;
            assert_eq!(node["status"]["allocatable"]["cpu"], "32");
            assert_eq!(condition(&node, "DiskPressure")["status"], "False");
            assert_eq!(node["status"]["addresses"][1]["address"], name);
        }
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1";
        let first = user.until(lease, |lease| lease["spec"]["renewTime"].is_string()).await;
        assert_eq!(first["spec"]["holderIdentity"], "node-1");
        let renewed = |lease: &Value| lease["spec"]["renewTime"] != first["spec"]["renewTime"];
        user.until(lease, renewed).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_placed_runs_and_is_removed() {
    with_user(ControlPlane::builder().nodes(2), async |user| {
        let started = tokio::time::Instant::now();
        user.until(&format!("{NODES}/node-1"), is_ready).await;
        user.pod("web", server()).await;
        let created = tokio::time::Instant::now();
        let web = user.until(&pod("web"), is_ready).await;
        assert!(created.elapsed() < Duration::from_secs(1), "ready after {:?}", created.elapsed());
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(web["status"]["phase"], "Running");
        assert!(web["spec"]["nodeName"].as_str().unwrap().starts_with("node-"));
        assert!(web["status"]["podIP"].is_string() && web["status"]["hostIP"].is_string());
        assert_eq!(web["status"]["containerStatuses"][0]["ready"], true);
        assert_eq!(web["status"]["observedGeneration"], web["metadata"]["generation"]);
        let node = web["spec"]["nodeName"].as_str().unwrap();
        let scheduled = format!("Scheduled: Successfully assigned default/web to {node}");
        let seen = events(&user, "web").await;
        assert!(seen.contains(&scheduled), "{seen:?}");
        assert!(seen.contains(&"Started: Started container c".to_owned()), "{seen:?}");
        user.delete(&pod("web")).await;
        user.until(&pod("web"), Value::is_null).await;
    })
    .await;
}

/// A resize (`pods/resize`) is given at once, waits for room with a condition, and makes room for
/// pods that wait for a node.
#[tokio::test(start_paused = true)]
async fn a_pod_is_resized_when_its_node_has_room() {
    with_user(ControlPlane::builder().nodes(1), async |user| {
        let resize = async |name: &str, cpu: &str| {
            user.patch(&format!("{}/resize", pod(name)), json!({"spec": needs(cpu)})).await
        };
        let has = |pod: &Value, cores: &str| {
            let status = &pod["status"]["containerStatuses"][0];
            status["resources"]["requests"]["cpu"] == cores
                && status["allocatedResources"]["cpu"] == cores
                && status["restartCount"] == 0
        };
        let waits = |pod: &Value| condition(pod, "PodResizePending")["reason"] == "Deferred";
        user.pod("a", needs("10")).await;
        user.pod("b", needs("20")).await;
        user.until(&pod("a"), is_ready).await;
        user.until(&pod("b"), |pod| is_ready(pod) && has(pod, "20")).await;
        // The node has 32 cores.
        resize("a", "12").await;
        user.until(&pod("a"), |pod| has(pod, "12") && !waits(pod)).await;
        resize("a", "16").await;
        let deferred = user.until(&pod("a"), waits).await;
        assert_eq!(
            condition(&deferred, "PodResizePending")["message"],
            "Node didn't have enough resource: cpu, requested: 16000, used: 20000, capacity: 32000"
        );
        assert!(has(&deferred, "12"));
        // What it wants counts, so that the scheduler leaves the room to it.
        user.pod("c", needs("1")).await;
        let is_refused = |pod: &Value| condition(pod, "PodScheduled")["reason"] == "Unschedulable";
        user.until(&pod("c"), is_refused).await;
        resize("b", "15").await;
        user.until(&pod("a"), |pod| has(pod, "16") && !waits(pod)).await;
        user.until(&pod("c"), is_ready).await;
        let seen = events(&user, "a").await;
        for event in
            ["ResizeDeferred: Pod resize Deferred: {", "ResizeCompleted: Pod resize completed: {"]
        {
            assert!(seen.iter().any(|seen| seen.starts_with(event)), "{seen:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_finite_command_ends_with_its_code() {
    with_user(ControlPlane::builder().nodes(1), async |user| {
        for (name, command, phase, code) in
            [("good", "sleep 5", "Succeeded", 0), ("bad", "sleep 2; exit 7", "Failed", 7)]
        {
            let spec = json!({"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "busybox", "command": ["sh", "-c", command]},
            ]});
            user.pod(name, spec).await;
            let ended = user.until(&pod(name), |pod| pod["status"]["phase"] == phase).await;
            let state = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
            assert_eq!(state["exitCode"], code);
            assert!(!is_ready(&ended));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_with_a_reason_until_a_change_helps() {
    let nodes = SimulatedNodes::new(2).capacity("cpu", "2");
    with_user(ControlPlane::builder().nodes(nodes), async |user| {
        user.until(&format!("{NODES}/node-1"), is_ready).await;
        user.pod("a", needs("1500m")).await;
        user.pod("b", needs("1500m")).await;
        user.until(&pod("a"), is_ready).await;
        user.until(&pod("b"), is_ready).await;
        user.pod("late", needs("1")).await;
        let is_refused = |pod: &Value| condition(pod, "PodScheduled")["reason"] == "Unschedulable";
        let late = user.until(&pod("late"), is_refused).await;
        let message = condition(&late, "PodScheduled")["message"].as_str().unwrap();
        assert_eq!(
            message,
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
        );
        let seen = events(&user, "late").await;
        assert!(seen.contains(&format!("FailedScheduling: {message}")), "{seen:?}");
        // As kube-scheduler writes it.
        let all = user.get("/api/v1/namespaces/default/events").await;
        let of_scheduler = |event: &&Value| event["reason"] == "FailedScheduling";
        let event = all["items"].as_array().unwrap().iter().find(of_scheduler).unwrap();
        assert_eq!(event["metadata"]["managedFields"][0]["manager"], "kube-scheduler");
        assert_eq!(event["metadata"]["managedFields"][0]["apiVersion"], "events.k8s.io/v1");
        assert_eq!((&event["action"], &event["source"]), (&json!("Scheduling"), &json!({})));
        assert_eq!(event["reportingComponent"], "default-scheduler");
        user.delete(&pod("a")).await;
        user.until(&pod("late"), is_ready).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn cordons_taints_gates_and_selectors_hold_pods_back() {
    with_user(ControlPlane::builder().nodes(2), async |user| {
        user.until(&format!("{NODES}/node-1"), is_ready).await;
        user.patch(&format!("{NODES}/node-0"), json!({"spec": {"unschedulable": true}})).await;
        let taint = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
        user.patch(&format!("{NODES}/node-1"), json!({"spec": {"taints": taint}})).await;
        // The scheduler learns of both before it sees the pods.
        tokio::time::sleep(Duration::from_secs(1)).await;
        user.pod("plain", server()).await;
        let mut tolerant = server();
        tolerant["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
        user.pod("tolerant", tolerant).await;
        let mut gated = server();
        gated["schedulingGates"] = json!([{"name": "example.com/wait"}]);
        user.pod("gated", gated).await;
        let placed = user.until(&pod("tolerant"), is_ready).await;
        assert_eq!(placed["spec"]["nodeName"], "node-1");
        let is_refused = |pod: &Value| condition(pod, "PodScheduled")["reason"] == "Unschedulable";
        let plain = user.until(&pod("plain"), is_refused).await;
        let message = condition(&plain, "PodScheduled")["message"].as_str().unwrap();
        assert!(message.starts_with("0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."), "{message}");
        assert!(user.get(&pod("gated")).await["spec"]["nodeName"].is_null());
        user.patch(&format!("{NODES}/node-0"), json!({"spec": {"unschedulable": null}})).await;
        let plain = user.until(&pod("plain"), is_ready).await;
        assert_eq!(plain["spec"]["nodeName"], "node-0");
        user.patch(&pod("gated"), json!({"spec": {"schedulingGates": null}})).await;
        user.until(&pod("gated"), is_ready).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_important_pod_takes_the_place_of_another() {
    let nodes = SimulatedNodes::new(1).capacity("cpu", "2");
    with_user(ControlPlane::builder().nodes(nodes), async |user| {
        user.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "high"}, "value": 1000,
            }),
        )
        .await;
        user.until(&format!("{NODES}/node-0"), is_ready).await;
        user.pod("low", needs("2")).await;
        user.until(&pod("low"), is_ready).await;
        let mut high = needs("2");
        high["priorityClassName"] = "high".into();
        user.pod("high", high).await;
        user.until(&pod("high"), is_ready).await;
        assert!(user.get(&pod("low")).await.is_null());
        let seen = events(&user, "low").await;
        assert!(
            seen.iter().any(|event| event.starts_with("Preempted: Preempted by pod ")),
            "{seen:?}"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn many_pods_never_overcommit_a_node() {
    let nodes = SimulatedNodes::new(4).capacity("cpu", "5").capacity("pods", "12");
    with_user(ControlPlane::builder().nodes(nodes), async |user| {
        for n in 0..40 {
            user.pod(&format!("p{n}"), needs(if n % 3 == 0 { "900m" } else { "200m" })).await;
        }
        let all = |list: &Value| {
            let items = list["items"].as_array().into_iter().flatten();
            items.filter(|pod| is_ready(pod)).count() == 40
        };
        let list = user.until(PODS, all).await;
        let mut used: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        let mut ips = BTreeSet::new();
        for pod in list["items"].as_array().unwrap() {
            let cpu =
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap();
            let (sum, n) = used.entry(pod["spec"]["nodeName"].as_str().unwrap()).or_default();
            *sum += cpu.trim_end_matches('m').parse::<u32>().unwrap();
            *n += 1;
            assert!(
                ips.insert(pod["status"]["podIP"].as_str().unwrap()),
                "two pods have one address"
            );
        }
        assert!(used.values().all(|(cpu, n)| *cpu <= 5000 && *n <= 12), "{used:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stage_moves_objects_of_any_kind() {
    let stages = Stages::parse(
        r#"
apiVersion: nodes.setpoint.dev/v1alpha1
kind: Stage
metadata: {name: load-balancer}
spec:
  resourceRef: {kind: Service}
  selector:
    matchExpressions:
    - {key: .spec.type, operator: In, values: [LoadBalancer]}
    - {key: .status.loadBalancer.ingress, operator: DoesNotExist}
  delay: {durationMilliseconds: 2000}
  next:
    status:
      loadBalancer: {ingress: [{ip: 192.0.2.7}]}
    event: {type: Normal, reason: EnsuredLoadBalancer, message: 'Ensured ${.metadata.name}'}
---
apiVersion: nodes.setpoint.dev/v1alpha1
kind: Stage
metadata: {name: broken}
spec:
  resourceRef: {kind: Pod}
  weight: 1
  selector:
    matchAnnotations: {break: "yes"}
    matchExpressions:
    - {key: .status.phase, operator: In, values: [Pending]}
  next:
    status: {phase: Failed, reason: Broken}
"#,
    )
    .unwrap();
    with_user(ControlPlane::builder().nodes(SimulatedNodes::new(1).stages(stages)), async |user| {
        user.create(
            "/api/v1/namespaces/default/services",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb"},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            }),
        )
        .await;
        let path = "/api/v1/namespaces/default/services/lb";
        user.until(path, |lb| lb["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.7")
            .await;
        let has_event = |list: &Value| list.to_string().contains("Ensured lb");
        user.until("/api/v1/namespaces/default/events", has_event).await;
        user.pod("broken", server()).await;
        user.patch(&pod("broken"), json!({"metadata": {"annotations": {"break": "yes"}}})).await;
        user.pod("whole", server()).await;
        user.until(&pod("whole"), is_ready).await;
        let broken = user.until(&pod("broken"), |pod| pod["status"]["phase"] != "Pending").await;
        assert!(["Failed", "Running"].contains(&broken["status"]["phase"].as_str().unwrap()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_loses_its_pods() {
    let builder = ControlPlane::builder().controllers("*".parse::<Selection>().unwrap()).nodes(1);
    with_user(builder, async |user| {
        user.until(&format!("{NODES}/node-0"), is_ready).await;
        // A node that nobody moves: it is declared ready once, and never again.
        let labels = json!({"kubernetes.io/hostname": "lost"});
        user.create(
            NODES,
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost", "labels": labels},
            }),
        )
        .await;
        let ready =
            json!({"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"conditions": [ready]}});
        user.patch(&format!("{NODES}/lost/status"), status).await;
        let mut spec = server();
        spec["nodeName"] = "lost".into();
        spec["tolerations"] = json!([{
            "key": "node.kubernetes.io/unreachable", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 30,
        }]);
        user.pod("away", spec).await;
        let lost = format!("{NODES}/lost");
        let node = user.until(&lost, |node| condition(node, "Ready")["status"] == "Unknown").await;
        assert_eq!(condition(&node, "Ready")["reason"], "NodeStatusUnknown");
        let memory = condition(&node, "MemoryPressure");
        assert_eq!(memory["reason"], "NodeStatusNeverUpdated");
        assert_eq!(memory["lastHeartbeatTime"], node["metadata"]["creationTimestamp"]);
        let has_taint = |node: &Value| {
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            taints.filter(|taint| taint["key"] == "node.kubernetes.io/unreachable").count() == 2
        };
        user.until(&lost, has_taint).await;
        let away =
            user.until(&pod("away"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
        assert_eq!(condition(&away, "DisruptionTarget")["reason"], "DeletionByTaintManager");
        // The node of ours stays.
        assert!(is_ready(&user.get(&format!("{NODES}/node-0")).await));
        assert!(user.get(&format!("{NODES}/node-0")).await["spec"]["taints"].is_null());
        user.delete(&lost).await;
        let is_told = |events: &Value| {
            let events = events.to_string();
            events.contains("Node lost event: Registered Node lost in Controller")
                && events.contains("Node lost status is now: NodeNotReady")
                && events.contains("Node lost event: Removing Node lost from Controller")
        };
        user.until("/api/v1/namespaces/default/events", is_told).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_gets_the_local_volume_of_its_pods_node() {
    let builder = ControlPlane::builder().controllers("*".parse::<Selection>().unwrap()).nodes(3);
    with_user(builder, async |user| {
        user.until(&format!("{NODES}/node-2"), is_ready).await;
        user.create(
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }),
        )
        .await;
        let volume = |name: &str, node: &str| {
            let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "local", "local": {"path": "/data"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [
                        {"matchExpressions": [host]},
                    ]}},
                },
            })
        };
        for (name, node) in [("one", "node-1"), ("two", "node-2")] {
            user.create("/api/v1/persistentvolumes", volume(name, node)).await;
        }
        let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
        for name in ["a", "b", "c"] {
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            });
            user.create(claims, claim).await;
        }
        for name in ["a", "b", "c"] {
            let mut spec = server();
            spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
            user.pod(name, spec).await;
        }
        let is_refused = |pod: &Value| condition(pod, "PodScheduled")["reason"] == "Unschedulable";
        let mut nodes = BTreeSet::new();
        let mut waiting = Vec::new();
        for name in ["a", "b", "c"] {
            let found = user.until(&pod(name), |pod| is_ready(pod) || is_refused(pod)).await;
            if !is_ready(&found) {
                waiting.push(name);
                continue;
            }
            let node = found["spec"]["nodeName"].as_str().unwrap().to_owned();
            let claim = user.get(&format!("{claims}/{name}")).await;
            assert_eq!(claim["status"]["phase"], "Bound");
            let volume = if node == "node-1" { "one" } else { "two" };
            assert_eq!(claim["spec"]["volumeName"], volume);
            nodes.insert(node);
        }
        assert_eq!(nodes, BTreeSet::from(["node-1".to_owned(), "node-2".to_owned()]));
        let [waiting] = waiting[..] else { panic!("{waiting:?}") };
        let message = condition(&user.get(&pod(waiting)).await, "PodScheduled")["message"].clone();
        let why = "3 node(s) didn't find available persistent volumes to bind";
        assert!(message.as_str().unwrap().contains(why), "{message}");
        user.create("/api/v1/persistentvolumes", volume("three", "node-0")).await;
        let late = user.until(&pod(waiting), is_ready).await;
        assert_eq!(late["spec"]["nodeName"], "node-0");
    })
    .await;
}

/// Refuses updates of a resource until the returned path is deleted.
async fn refuse_updates(user: &User, group: &str, resource: &str) -> String {
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({
        "apiGroups": [group], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": [resource],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no"},
        "spec": {"policyName": "no", "validationActions": ["Deny"]},
    });
    user.create(&format!("{policies}/validatingadmissionpolicies"), policy).await;
    let bindings = format!("{policies}/validatingadmissionpolicybindings");
    user.create(&bindings, binding).await;
    format!("{bindings}/no")
}

/// The pause grew with each failure: a node stayed silent for as long again as the server had been,
/// and lost its pods.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_goes_on_soon_after_the_server_answers_again() {
    with_user(ControlPlane::builder().nodes(1), async |user| {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";
        user.until(lease, |lease| lease["spec"]["renewTime"].is_string()).await;
        let refusal = refuse_updates(&user, "coordination.k8s.io", "leases").await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let silent = user.get(lease).await["spec"]["renewTime"].clone();
        user.delete(&refusal).await;
        let since = tokio::time::Instant::now();
        user.until(lease, |lease| lease["spec"]["renewTime"] != silent).await;
        assert!(since.elapsed() < Duration::from_secs(20), "after {:?}", since.elapsed());
    })
    .await;
}

/// The delay of a stage began again when its write failed.
#[tokio::test(start_paused = true)]
async fn a_stage_that_fails_stays_due() {
    let stages = Stages::parse(
        r#"
apiVersion: nodes.setpoint.dev/v1alpha1
kind: Stage
metadata: {name: late}
spec:
  resourceRef: {kind: ConfigMap}
  selector:
    matchLabels: {stage: late}
    matchExpressions: [{key: .data.done, operator: DoesNotExist}]
  delay: {durationMilliseconds: 400000}
  next: {patch: {data: {done: "yes"}}}
"#,
    )
    .unwrap();
    with_user(ControlPlane::builder().nodes(SimulatedNodes::new(1).stages(stages)), async |user| {
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "m", "labels": {"stage": "late"}},
        });
        user.create(maps, map).await;
        let began = tokio::time::Instant::now();
        let refusal = refuse_updates(&user, "", "configmaps").await;
        tokio::time::sleep(Duration::from_secs(405)).await;
        assert!(user.get(&format!("{maps}/m")).await["data"].is_null());
        user.delete(&refusal).await;
        user.until(&format!("{maps}/m"), |map| map["data"]["done"] == "yes").await;
        assert!(began.elapsed() < Duration::from_secs(500), "after {:?}", began.elapsed());
    })
    .await;
}
