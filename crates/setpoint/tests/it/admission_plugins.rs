//! Kubernetes' own admission plugins, as a client sees them (spec: admission §2).

use crate::admission::{PODS, pod, with_admission, with_plane};
use http::Method;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::registry::AdmissionOptions;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn options() -> AdmissionOptions {
    AdmissionOptions::default()
}
fn limit_range(limits: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}})
}
fn containers(resources: Value) -> Value {
    json!({"containers": [{"name": "c", "image": "i:1", "resources": resources}]})
}

#[tokio::test(start_paused = true)]
async fn limit_ranges_set_and_bound_amounts() {
    with_admission(options(), async |admin| {
        let limits = json!([
            {"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}, "min": {"cpu": "100m"},
             "defaultRequest": {"cpu": "500m"}},
            {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
        ]);
        admin.create("/api/v1/namespaces/default/limitranges", &limit_range(limits)).await;

        let made = admin.create(PODS, &pod("a", json!({}))).await;
        assert_eq!(
            made["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}})
        );
        assert_eq!(
            made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
            "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
        );
        let much = pod("b", containers(json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "2"}})));
        assert_eq!(
            admin.post(PODS, &much).await.refusal(),
            (403, r#"pods "b" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 1, but limit is 2]"#)
        );
        let resized = json!({"spec": {"containers": [{"name": "c", "image": "i:1",
            "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}}]}});
        let answer = admin.patch(&format!("{PODS}/a/resize"), &resized).await;
        assert_eq!(
            answer.refusal(),
            (403, r#"pods "a" is forbidden: maximum cpu usage per Container is 1, but limit is 2"#)
        );
        // A change of a label is not checked.
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(admin.patch(&format!("{PODS}/a"), &labelled).await.code, 200);

        let answer = admin.post(CLAIMS, &claim("big", "2Gi", Value::Null)).await;
        assert_eq!(
            answer.refusal(),
            (403, r#"persistentvolumeclaims "big" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"#)
        );
    })
    .await;
}

fn claim(name: &str, storage: &str, class: Value) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
    });
    if !class.is_null() {
        claim["spec"]["storageClassName"] = class;
    }
    claim
}

#[tokio::test(start_paused = true)]
async fn claims_grow_if_their_class_permits_it() {
    with_admission(options(), async |admin| {
        for (name, expands) in [("fixed", false), ("elastic", true)] {
            let class = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": "p", "allowVolumeExpansion": expands,
            });
            admin.create("/apis/storage.k8s.io/v1/storageclasses", &class).await;
            admin.create(CLAIMS, &claim(name, "1Gi", name.into())).await;
            let path = format!("{CLAIMS}/{name}");
            let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
            assert_eq!(admin.patch(&format!("{path}/status"), &bound).await.code, 200);
            let grown = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
            let answer = admin.patch(&path, &grown).await;
            match expands {
                true => assert_eq!(answer.code, 200, "{}", answer.message()),
                false => assert_eq!(
                    answer.refusal(),
                    (403, r#"persistentvolumeclaims "fixed" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"#)
                ),
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn runtime_classes_add_overhead_and_scheduling() {
    with_admission(options(), async |admin| {
        let class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}, "handler": "vm",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
        });
        admin.create("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
        let made = admin.create(PODS, &pod("a", json!({"runtimeClassName": "vm"}))).await;
        assert_eq!(made["spec"]["overhead"], json!({"cpu": "250m"}));
        assert_eq!(made["spec"]["nodeSelector"], json!({"a": "b"}));
        let tolerations = made["spec"]["tolerations"].as_array().unwrap();
        assert!(tolerations.iter().any(|t| t["key"] == "vm"), "{tolerations:?}");
        for (spec, why) in [
            (json!({"runtimeClassName": "x"}), r#"pod rejected: RuntimeClass "x" not found"#),
            (
                json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}}),
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            (
                json!({"overhead": {"cpu": "1"}}),
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
            (
                json!({"runtimeClassName": "vm", "nodeSelector": {"a": "c"}}),
                "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c",
            ),
        ] {
            let answer = admin.post(PODS, &pod("b", spec)).await;
            assert_eq!(answer.refusal(), (403, &*format!(r#"pods "b" is forbidden: {why}"#)));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn signers_are_approved_and_signed_by_those_who_may() {
    let plane = ControlPlane::builder().simulated(0).rbac();
    with_plane(plane, async |admin| {
        const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let request = |organization: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, "u");
            params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
            let pem = params.serialize_request(&key).unwrap().pem().unwrap();
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(pem)
        };
        let named = |name: &str, signer: &str, organization: &str| {
            json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
                "spec": {"request": request(organization), "signerName": signer, "usages": ["client auth"]},
            })
        };
        admin.create(REQUESTS, &named("a", "d.io/n", "o")).await;
        let masters = named("m", "kubernetes.io/kube-apiserver-client", "system:masters");
        assert_eq!(
            admin.post(REQUESTS, &masters).await.refusal(),
            (403, r#"certificatesigningrequests.certificates.k8s.io "m" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"#)
        );

        let rules = |verbs: Value, names: Value| json!([
            {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"], "verbs": ["get", "update", "patch"]},
            {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": verbs, "resourceNames": names},
        ]);
        for (user, verbs, names) in [
            ("stranger", json!(["approve"]), json!(["other.io/*"])),
            ("approver", json!(["approve"]), json!(["d.io/n"])),
            ("signer", json!(["sign"]), json!(["d.io/*"])),
        ] {
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules(verbs, names)});
            admin.create(&format!("{RBAC}/clusterroles"), &role).await;
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            });
            admin.create(&format!("{RBAC}/clusterrolebindings"), &binding).await;
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let person = |name: &str| admin.as_user(name, ["system:authenticated"]);
        let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]}});
        let approval = format!("{REQUESTS}/a/approval");
        for user in ["stranger", "signer"] {
            assert_eq!(
                person(user).patch(&approval, &approved).await.refusal(),
                (403, r#"certificatesigningrequests.certificates.k8s.io "a" is forbidden: user not permitted to approve requests with signerName "d.io/n""#)
            );
        }
        let answer = person("approver").patch(&approval, &approved).await;
        assert_eq!(answer.code, 200, "{}", answer.message());
        let status = format!("{REQUESTS}/a/status");
        let failed = json!({"status": {"conditions": [
            approved["status"]["conditions"][0], {"type": "Failed", "status": "True", "reason": "r", "message": "m"},
        ]}});
        assert_eq!(
            person("approver").patch(&status, &failed).await.refusal(),
            (403, r#"certificatesigningrequests.certificates.k8s.io "a" is forbidden: user not permitted to sign requests with signerName "d.io/n""#)
        );
        let answer = person("signer").patch(&status, &failed).await;
        assert_eq!(answer.code, 200, "{}", answer.message());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn priorities_and_their_policy_come_from_the_class() {
    with_admission(options(), async |admin| {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
            "value": 1000, "preemptionPolicy": "Never",
        });
        admin.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
        let made = admin.create(PODS, &pod("a", json!({"priorityClassName": "high"}))).await;
        assert_eq!((&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]), (&json!(1000), &json!("Never")));
        for (spec, why) in [
            (json!({"priorityClassName": "x"}), "no PriorityClass with name x was found"),
            (
                json!({"priorityClassName": "high", "priority": 5}),
                "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name",
            ),
            (
                json!({"preemptionPolicy": "Never"}),
                "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
            ),
        ] {
            let answer = admin.post(PODS, &pod("b", spec)).await;
            assert_eq!(answer.refusal(), (403, &*format!(r#"pods "b" is forbidden: {why}"#)));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn plugins_that_are_off_by_default_can_be_enabled() {
    let options = options()
        .enable("AlwaysPullImages")
        .enable("DenyServiceExternalIPs")
        .enable("PodNodeSelector")
        .enable("PodTolerationRestriction")
        .enable("ExtendedResourceToleration")
        .enable("NamespaceAutoProvision")
        .enable("NamespaceExists")
        .enable("EventRateLimit")
        .configure(
            "EventRateLimit",
            json!({"limits": [{"type": "Namespace", "qps": 1, "burst": 1}]}),
        );
    with_admission(options, async |admin| {
        let annotations = json!({"metadata": {"annotations": {
            "scheduler.alpha.kubernetes.io/node-selector": "env=x",
            "scheduler.alpha.kubernetes.io/defaultTolerations": r#"[{"key": "k", "operator": "Exists"}]"#,
            "scheduler.alpha.kubernetes.io/tolerationsWhitelist": r#"[{"key": "k", "operator": "Exists"}, {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]"#,
        }}});
        assert_eq!(admin.patch("/api/v1/namespaces/default", &annotations).await.code, 200);
        let own = json!({"containers": [{"name": "c", "image": "i:1", "imagePullPolicy": "Never"}]});
        let made = admin.create(PODS, &pod("a", own)).await;
        assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(made["spec"]["nodeSelector"], json!({"env": "x"}));
        let tolerations = made["spec"]["tolerations"].as_array().unwrap();
        assert!(tolerations.contains(&json!({"key": "k", "operator": "Exists"})), "{tolerations:?}");
        for (spec, code, why) in [
            (
                json!({"nodeSelector": {"env": "y"}}),
                403,
                r#"pods "b" is forbidden: pod node label selector conflicts with its namespace node label selector"#,
            ),
            (
                json!({"tolerations": [{"key": "other", "operator": "Exists"}]}),
                500,
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist",
            ),
        ] {
            let answer = admin.post(PODS, &pod("b", spec)).await;
            assert_eq!(answer.refusal(), (code, why));
        }
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]},
        });
        assert_eq!(
            admin.post("/api/v1/namespaces/default/services", &service).await.refusal(),
            (403, r#"services "s" is forbidden: Use of external IPs is denied by admission control"#)
        );

        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        admin.create("/api/v1/namespaces/new/configmaps", &map).await;
        let namespace = admin.get("/api/v1/namespaces/new").await;
        assert_eq!(namespace["status"]["phase"], "Active");
        let gpu = json!({"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"example.com/gpu": "1"}}}]});
        let made = admin.create("/api/v1/namespaces/new/pods", &pod("g", gpu)).await;
        let tolerations = made["spec"]["tolerations"].as_array().unwrap();
        assert!(tolerations.iter().any(|t| t["key"] == "example.com/gpu"), "{tolerations:?}");

        let event = |name: &str, namespace: &str| json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
            "involvedObject": {"namespace": namespace},
        });
        let events = |namespace: &str| format!("/api/v1/namespaces/{namespace}/events");
        admin.create(&events("default"), &event("a", "default")).await;
        admin.create(&events("new"), &event("a", "new")).await;
        let answer = admin.post(&events("default"), &event("b", "default")).await;
        assert_eq!(answer.refusal(), (429, "Too many requests: limit reached on type Namespace for key default"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn always_deny_denies_and_disabled_plugins_do_nothing() {
    with_admission(options().enable("AlwaysDeny"), async |admin| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        assert_eq!(
            admin.post("/api/v1/namespaces/default/configmaps", &map).await.refusal(),
            (403, r#"configmaps "m" is forbidden: admission control is denying all modifications"#)
        );
    })
    .await;
    with_admission(options().disable("DefaultTolerationSeconds"), async |admin| {
        let made = admin.create(PODS, &pod("a", json!({}))).await;
        assert!(made["spec"]["tolerations"].is_null());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn owner_references_need_rights() {
    let plane = ControlPlane::builder().simulated(0).rbac();
    let plugins = options().enable("OwnerReferencesPermissionEnforcement").build().unwrap();
    with_plane(plane.admission_plugins(plugins), async |admin| {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        const MAPS: &str = "/api/v1/namespaces/default/configmaps";
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "editor"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "update", "patch"]}],
        });
        admin.create(&format!("{RBAC}/clusterroles"), &role).await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "editor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "editor"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
        });
        admin.create(&format!("{RBAC}/clusterrolebindings"), &binding).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let bob = admin.as_user("bob", ["system:authenticated"]);
        let map = |name: &str, owners: Value| json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners},
        });
        let owner = bob.create(MAPS, &map("owner", json!([]))).await;
        let reference = |kind: &str, version: &str, blocks: bool| json!([{
            "apiVersion": version, "kind": kind, "name": "owner", "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }]);
        // On create, only blocking needs a right.
        bob.create(MAPS, &map("a", reference("ConfigMap", "v1", false))).await;
        let answer = bob.post(MAPS, &map("b", reference("ConfigMap", "v1", true))).await;
        let (code, message) = answer.refusal();
        assert_eq!(code, 403);
        let why = r#"configmaps "b" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "#;
        assert!(message.starts_with(why) && message.ends_with(", <nil>"), "{message}");
        let answer = bob.post(MAPS, &map("b", reference("Zed", "a.b/v1", true))).await;
        assert_eq!(
            answer.refusal(),
            (403, r#"configmaps "b" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion a.b/v1 Kind Zed: no matches for kind "Zed" in version "a.b/v1""#)
        );
        let none = json!({"metadata": {"ownerReferences": null}});
        let answer = bob.patch(&format!("{MAPS}/a"), &none).await;
        let why = r#"configmaps "a" is forbidden: cannot set an ownerRef on a resource you can't delete: "#;
        assert!(answer.code == 403 && answer.message().starts_with(why), "{}", answer.message());
        assert_eq!(admin.patch(&format!("{MAPS}/a"), &none).await.code, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn agents_write_what_belongs_to_their_node() {
    with_admission(options().enable("NodeRestriction"), async |admin| {
        let agent = admin.as_user("system:node:n1", ["system:nodes", "system:authenticated"]);
        let node = |name: &str, labels: Value| json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        });
        const NODES: &str = "/api/v1/nodes";
        agent.create(NODES, &node("n1", json!({"kubernetes.io/hostname": "n1"}))).await;
        admin.create(NODES, &node("n2", json!({}))).await;
        let labels = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}});
        let taints = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
        for (path, patch, why) in [
            ("nodes/n2", &taints, r#"nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2""#),
            ("nodes/n1", &labels, r#"nodes "n1" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/a"#),
            ("nodes/n1", &taints, r#"nodes "n1" is forbidden: node "n1" is not allowed to modify taints"#),
        ] {
            let answer = agent.patch(&format!("/api/v1/{path}"), patch).await;
            assert_eq!(answer.refusal(), (403, why));
        }
        let mut mirror = pod("m", json!({"nodeName": "n2"}));
        assert_eq!(
            agent.post(PODS, &mirror).await.refusal(),
            (403, r#"pods "m" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods"#)
        );
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        assert_eq!(
            agent.post(PODS, &mirror).await.refusal(),
            (403, r#"pods "m" is forbidden: node "n1" can only create pods with spec.nodeName set to itself"#)
        );
        admin.create(PODS, &pod("other", json!({"nodeName": "n2"}))).await;
        let other = format!("{PODS}/other");
        let running = json!({"status": {"phase": "Running"}});
        assert_eq!(
            agent.patch(&format!("{other}/status"), &running).await.refusal(),
            (403, r#"pods "other" is forbidden: node "n1" can only update pod status for pods with spec.nodeName set to itself"#)
        );
        assert_eq!(
            agent.delete(&other).await.refusal(),
            (403, r#"pods "other" is forbidden: node "n1" can only delete pods with spec.nodeName set to itself"#)
        );
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n2"}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        assert_eq!(
            agent.post(leases, &lease).await.refusal(),
            (403, r#"leases.coordination.k8s.io "n2" is forbidden: can only access node lease with the same name as the requesting node"#)
        );
        // Others are not restricted.
        assert_eq!(admin.ask(Method::PATCH, "/api/v1/nodes/n2", &taints).await.code, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn whole_pods_have_ranges_in_their_order_and_without_overhead() {
    with_admission(options(), async |admin| {
        let class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}, "handler": "vm",
            "overhead": {"podFixed": {"cpu": "250m"}},
        });
        admin.create("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
        let limits = json!([
            {"type": "Pod", "max": {"cpu": "1"}},
            {"type": "Container", "min": {"cpu": "100m"}},
        ]);
        admin.create("/api/v1/namespaces/default/limitranges", &limit_range(limits)).await;
        let all = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
        let mut spec = containers(all);
        spec["runtimeClassName"] = "vm".into();
        admin.create(PODS, &pod("a", spec)).await;
        let much = json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "2"}});
        assert_eq!(
            admin.post(PODS, &pod("b", containers(much))).await.refusal(),
            (403, r#"pods "b" is forbidden: [maximum cpu usage per Pod is 1, but limit is 2, minimum cpu usage per Container is 100m, but request is 50m]"#)
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_toleration_of_all_taints_does_not_replace_that_of_a_resource() {
    with_admission(options().enable("ExtendedResourceToleration"), async |admin| {
        let gpu = json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}});
        let mut spec = containers(gpu);
        let own = json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
        spec["tolerations"] = json!([{"operator": "Exists"}]);
        let made = admin.create(PODS, &pod("a", spec.clone())).await;
        assert_eq!(made["spec"]["tolerations"], json!([{"operator": "Exists"}, own]));
        spec["tolerations"] = json!([own]);
        let made = admin.create(PODS, &pod("b", spec)).await;
        let tolerations = made["spec"]["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.iter().filter(|one| **one == own).count(), 1);
    })
    .await;
}
