//! Endpoints of Services, disruption budgets and the collection of pods, as a user sees them.

use crate::cluster::{Cluster, Fate, condition, pod_spec};
use serde_json::{Value, json};
use setpoint_testenv::TestEnv;
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn pod(name: &str, app: &str) -> Value {
    let mut spec = pod_spec();
    spec["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 8080}]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": spec,
    })
}

fn service(name: &str, app: Option<&str>) -> Value {
    let ports = json!([{"port": 80, "targetPort": "web"}]);
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "labels": {"team": "a"}}, "spec": {"ports": ports},
    });
    match app {
        Some(app) => service["spec"]["selector"] = json!({"app": app}),
        None => service["spec"]["ports"] = json!([{"port": 80, "targetPort": 9000}]),
    }
    service
}

async fn node(cluster: &Cluster) {
    let labels = json!({"topology.kubernetes.io/zone": "z1"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels},
    });
    cluster.create("/api/v1/nodes", &node).await;
}

/// The slices of a Service.
fn slices(service: &str) -> String {
    format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3D{service}")
}

/// All endpoints of slices.
fn endpoints(slices: &[Value]) -> Vec<Value> {
    let of = |slice: &Value| slice["endpoints"].as_array().cloned().unwrap_or_default();
    slices.iter().flat_map(of).collect()
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn service_has_the_endpoints_of_its_pods(env: &TestEnv) {
    let cluster = Cluster::start(env, "endpoint,endpointslice,endpointslicemirroring");
    node(&cluster).await;
    let user = async {
        cluster.create(SERVICES, &service("web", Some("web"))).await;
        // Without pods it has one slice without endpoints.
        let empty = cluster.until_all(&slices("web"), |slices| slices.len() == 1).await;
        // As the original stores an empty list.
        assert_eq!(empty[0]["endpoints"], Value::Null);
        cluster.create(PODS, &pod("a", "web")).await;
        cluster.create(PODS, &pod("b", "web")).await;
        cluster.create(PODS, &pod("c", "other")).await;
        let is_full = |slices: &[Value]| {
            endpoints(slices).iter().filter(|e| e["conditions"]["ready"] == true).count() == 2
        };
        let held = cluster.until_all(&slices("web"), is_full).await;
        assert_eq!(held.len(), 1);
        let (slice, meta) = (&held[0], &held[0]["metadata"]);
        assert_eq!(meta["labels"]["team"], "a");
        let by = "endpointslice.kubernetes.io/managed-by";
        assert_eq!(meta["labels"][by], "endpointslice-controller.k8s.io");
        assert_eq!(meta["generateName"], "web-");
        assert_eq!(meta["ownerReferences"][0]["kind"], "Service");
        assert!(
            meta["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"].is_string()
        );
        assert_eq!(slice["addressType"], "IPv4");
        assert_eq!(slice["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
        let endpoint = &slice["endpoints"][0];
        let all = json!({"ready": true, "serving": true, "terminating": false});
        assert_eq!(endpoint["conditions"], all);
        assert_eq!((&endpoint["nodeName"], &endpoint["zone"]), (&json!("n1"), &json!("z1")));
        assert_eq!(endpoint["targetRef"]["kind"], "Pod");

        let path = format!("{ENDPOINTS}/web");
        let old = cluster.until(&path, |e| {
            e["subsets"][0]["addresses"].as_array().is_some_and(|all| all.len() == 2)
        });
        let old = old.await;
        let labels = &old["metadata"]["labels"];
        assert_eq!(labels["endpoints.kubernetes.io/managed-by"], "endpoint-controller");
        assert_eq!(old["subsets"][0]["ports"], json!([{"port": 8080, "protocol": "TCP"}]));
        // Not mirrored: it has a selector.
        assert_eq!(cluster.list(&slices("web")).await.len(), 1);

        cluster.delete(&format!("{PODS}/a"), &json!({})).await;
        cluster.until_all(&slices("web"), |slices| endpoints(slices).len() == 1).await;
        cluster.delete(&format!("{SERVICES}/web"), &json!({})).await;
        cluster.until(&path, Value::is_null).await;
        cluster.until_all(&slices("web"), <[Value]>::is_empty).await;
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn ports_with_the_same_addresses_share_a_subset(env: &TestEnv) {
    let cluster = Cluster::start(env, "endpoint");
    node(&cluster).await;
    let user = async {
        let mut two = service("web", Some("web"));
        two["spec"]["ports"] = json!([
            {"name": "http", "port": 80, "targetPort": "web"}, {"name": "dns", "port": 53},
        ]);
        cluster.create(SERVICES, &two).await;
        let mut unnamed = pod("unnamed", "web");
        unnamed["spec"]["containers"][0].as_object_mut().unwrap().remove("ports");
        cluster.create(PODS, &pod("a", "web")).await;
        cluster.create(PODS, &unnamed).await;
        let n_addresses = |subset: &Value| subset["addresses"].as_array().map_or(0, Vec::len);
        let path = format!("{ENDPOINTS}/web");
        let is_full = |e: &Value| {
            let subsets = e["subsets"].as_array();
            subsets.is_some_and(|all| all.iter().map(n_addresses).sum::<usize>() == 3)
        };
        let held = cluster.until(&path, is_full).await;
        let (dns, http) = (&held["subsets"][0], &held["subsets"][1]);
        assert_eq!(dns["ports"], json!([{"name": "dns", "port": 53, "protocol": "TCP"}]));
        assert_eq!(n_addresses(dns), 2);
        assert_eq!(http["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
        assert_eq!(http["addresses"][0]["targetRef"]["name"], "a");
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn slices_have_at_most_a_hundred_endpoints(env: &TestEnv) {
    let cluster = Cluster::start(env, "endpointslice");
    node(&cluster).await;
    let user = async {
        cluster.create(SERVICES, &service("big", Some("big"))).await;
        for n in 0..130 {
            cluster.create(PODS, &pod(&format!("p{n}"), "big")).await;
        }
        let held = cluster.until_all(&slices("big"), |slices| endpoints(slices).len() == 130).await;
        for slice in &held {
            assert!(slice["endpoints"].as_array().unwrap().len() <= 100);
        }
        cluster.delete(&format!("{PODS}/p7"), &json!({})).await;
        cluster.until_all(&slices("big"), |slices| endpoints(slices).len() == 129).await;
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn slices_leave_out_pods_of_nodes_that_do_not_exist(env: &TestEnv) {
    let cluster = Cluster::start(env, "endpointslice");
    node(&cluster).await;
    cluster.create(SERVICES, &service("web", Some("web"))).await;
    for (name, node, address) in [("a", "n1", "10.1.0.1"), ("b", "missing", "10.1.0.2")] {
        let mut pod = pod(name, "web");
        pod["spec"]["nodeName"] = node.into();
        cluster.create(PODS, &pod).await;
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        cluster.patch(&format!("{PODS}/{name}/status"), &status).await;
    }
    let held = cluster.until_all(&slices("web"), |slices| endpoints(slices).len() == 1).await;
    assert_eq!(endpoints(&held)[0]["addresses"], json!(["10.1.0.1"]));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let events = cluster.events("Service").await;
    assert!(
        events.contains(&"Warning FailedToUpdateEndpointSlices Error updating Endpoint Slices for Service default/web: skipping Pod b for Service default/web: Node missing Not Found".to_owned()),
        "{events:?}"
    );
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "missing"}});
    cluster.create("/api/v1/nodes", &node).await;
    cluster.until_all(&slices("web"), |slices| endpoints(slices).len() == 2).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn mirrored_slices_are_used_again_and_too_many_addresses_are_told(env: &TestEnv) {
    let cluster = Cluster::start(env, "endpointslicemirroring");
    cluster.create(SERVICES, &service("ext", None)).await;
    let mirrored = |n: usize, port: u16| {
        let addresses: Vec<Value> =
            (0..n).map(|n| json!({"ip": format!("192.0.{}.{}", n / 250, n % 250)})).collect();
        let time = "endpoints.kubernetes.io/last-change-trigger-time";
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "ext", "annotations": {time: "2026-01-01T00:00:00Z", "a": "b"}},
            "subsets": [{"addresses": addresses, "ports": [{"port": port}]}],
        })
    };
    cluster.create(ENDPOINTS, &mirrored(2, 9000)).await;
    let held = cluster.until_all(&slices("ext"), |slices| endpoints(slices).len() == 2).await;
    assert_eq!(held[0]["metadata"]["annotations"], json!({"a": "b"}));
    let path = format!("{ENDPOINTS}/ext");
    cluster.patch(&path, &mirrored(2, 9001)).await;
    let is_changed = |slices: &[Value]| slices.len() == 1 && slices[0]["ports"][0]["port"] == 9001;
    let again = cluster.until_all(&slices("ext"), is_changed).await;
    assert_eq!(again[0]["metadata"]["uid"], held[0]["metadata"]["uid"]);
    cluster.patch(&path, &mirrored(1003, 9001)).await;
    cluster.until_all(&slices("ext"), |slices| endpoints(slices).len() == 1000).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        cluster.events("Endpoints").await,
        [
            "Warning TooManyAddressesToMirror A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 3 addresses were skipped"
        ]
    );
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn endpoints_of_users_are_mirrored(env: &TestEnv) {
    let cluster = Cluster::start(env, "endpoint,endpointslice,endpointslicemirroring");
    let spec = service("ext", None);
    cluster.create(SERVICES, &spec).await;
    let subsets = json!([{
        "addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}],
        "notReadyAddresses": [{"ip": "192.0.2.2"}], "ports": [{"name": "p", "port": 9000}],
    }]);
    let own = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "ext", "labels": {"l": "1"}},
        "subsets": subsets,
    });
    cluster.create(ENDPOINTS, &own).await;
    let held = cluster.until_all(&slices("ext"), |slices| slices.len() == 2).await;
    for slice in &held {
        let labels = &slice["metadata"]["labels"];
        assert_eq!(labels["l"], "1");
        let by = "endpointslice.kubernetes.io/managed-by";
        assert_eq!(labels[by], "endpointslicemirroring-controller.k8s.io");
        assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Endpoints");
        let n = if slice["addressType"] == "IPv4" { 2 } else { 1 };
        assert_eq!(slice["endpoints"].as_array().unwrap().len(), n, "{slice:#}");
    }
    let skip = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    cluster.patch(&format!("{ENDPOINTS}/ext"), &skip).await;
    cluster.until_all(&slices("ext"), <[Value]>::is_empty).await;
}

fn budget(name: &str, spec: Value) -> Value {
    let mut budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
    });
    for (member, value) in spec.as_object().unwrap() {
        budget["spec"][member] = value.clone();
    }
    budget
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn budget_allows_evictions_while_enough_pods_are_healthy(env: &TestEnv) {
    let cluster = Cluster::start(env, "disruption,replicaset");
    let path = format!("{BUDGETS}/b");
    let evict = async |pod: &str| {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod},
        });
        let path = format!("{PODS}/{pod}/eviction");
        cluster.send("POST", &path, "application/json", &eviction).await.is_ok()
    };
    let user = async {
        cluster.create(BUDGETS, &budget("b", json!({"minAvailable": 2}))).await;
        let held = cluster.until(&path, |b| b["status"]["observedGeneration"] == 1).await;
        assert_eq!(condition(&held, "DisruptionAllowed")["reason"], "InsufficientPods");
        for name in ["a", "b", "c"] {
            cluster.create(PODS, &pod(name, "db")).await;
        }
        let held = cluster.until(&path, |b| b["status"]["disruptionsAllowed"] == 1).await;
        let status = &held["status"];
        assert_eq!((&status["expectedPods"], &status["currentHealthy"]), (&json!(3), &json!(3)));
        let allowed = condition(&held, "DisruptionAllowed");
        assert_eq!(
            (&allowed["status"], &allowed["reason"]),
            (&json!("True"), &json!("SufficientPods"))
        );
        assert!(evict("a").await && !evict("b").await, "one of three");
        let held = cluster.until(&path, |b| b["status"]["expectedPods"] == 2).await;
        assert_eq!(held["status"]["disruptionsAllowed"], 0);
        assert!(held["status"]["disruptedPods"].is_null(), "{held:#}");
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn pod_in_the_place_of_an_evicted_one_counts(env: &TestEnv) {
    let cluster = Cluster::start(env, "disruption");
    let path = format!("{BUDGETS}/b");
    let user = async {
        cluster.create(PODS, &pod("a", "db")).await;
        cluster.create(BUDGETS, &budget("b", json!({"minAvailable": 0}))).await;
        cluster.until(&path, |b| b["status"]["currentHealthy"] == 1).await;
        // Another `a` was evicted, and was gone before the controller looked again.
        let begin = env.clock().now();
        let first = cluster.get(&format!("{PODS}/a")).await.unwrap();
        let created = &first["metadata"]["creationTimestamp"];
        let evicted = json!({"status": {"disruptedPods": {"a": created}, "disruptionsAllowed": 0}});
        let kind = "application/merge-patch+json";
        cluster.send("PATCH", &format!("{path}/status"), kind, &evicted).await.unwrap();
        let held = cluster.until(&path, |b| b["status"]["disruptionsAllowed"] == 1).await;
        assert!(held["status"]["disruptedPods"].is_null(), "{held:#}");
        let took = env.clock().now().since(begin).as_secs();
        assert!(took < 10, "{took} s");
        let events = cluster.list("/api/v1/namespaces/default/events").await;
        assert!(events.iter().all(|event| event["reason"] != "NotDeleted"), "{events:#?}");
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn budget_counts_the_replicas_of_owners(env: &TestEnv) {
    let cluster = Cluster::start(env, "disruption,replicaset");
    let user = async {
        let mut template = pod("x", "db");
        template["metadata"] = json!({"labels": {"app": "db"}});
        template["spec"]["restartPolicy"] = "Always".into();
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "db"},
            "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "db"}},
                     "template": {"metadata": template["metadata"], "spec": template["spec"]}},
        });
        cluster.create("/apis/apps/v1/namespaces/default/replicasets", &set).await;
        cluster.create(BUDGETS, &budget("m", json!({"maxUnavailable": "30%"}))).await;
        let path = format!("{BUDGETS}/m");
        let held = cluster.until(&path, |b| b["status"]["disruptionsAllowed"] == 2).await;
        assert_eq!(
            (&held["status"]["expectedPods"], &held["status"]["desiredHealthy"]),
            (&json!(5), &json!(3))
        );
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn orphaned_pods_are_collected(env: &TestEnv) {
    let cluster = Cluster::start(env, "podgc");
    node(&cluster).await;
    cluster.create(PODS, &pod("here", "a")).await;
    let mut lost = pod("lost", "a");
    lost["spec"]["nodeName"] = "missing".into();
    lost["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(PODS, &lost).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.list(PODS).await.len(), 2, "the node may still come");
    let path = format!("{PODS}/lost");
    let held = cluster.until(&path, |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(held["status"]["phase"], "Failed");
    let target = condition(&held, "DisruptionTarget");
    assert_eq!(target["reason"], "DeletionByPodGC");
    assert_eq!(target["message"], "PodGC: node no longer exists");
    assert_eq!(target["observedGeneration"], 1);
    assert_eq!(held["status"]["observedGeneration"], 1);
    cluster.patch(&path, &json!({"metadata": {"finalizers": null}})).await;
    cluster.until(&path, Value::is_null).await;
    assert_eq!(cluster.list(PODS).await.len(), 1);
}

/// Refuses the deletion of pods whose name begins with `stuck`.
async fn keep_stuck_pods(cluster: &Cluster) {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let deletes = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "stuck"},
        "spec": {
            "matchConstraints": {"resourceRules": [deletes]},
            "validations": [{"expression": "!oldObject.metadata.name.startsWith('stuck')"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "stuck"},
        "spec": {"policyName": "stuck", "validationActions": ["Deny"]},
    });
    cluster.create(&format!("{group}/validatingadmissionpolicies"), &policy).await;
    cluster.create(&format!("{group}/validatingadmissionpolicybindings"), &binding).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_pod_that_cannot_be_deleted_does_not_keep_others(env: &TestEnv) {
    let cluster = Cluster::start(env, "podgc");
    keep_stuck_pods(&cluster).await;
    for (name, missing) in [("stuck", "missing"), ("lost", "missing"), ("other", "zzz")] {
        let mut lost = pod(name, "a");
        lost["spec"]["nodeName"] = missing.into();
        cluster.create(PODS, &lost).await;
    }
    for name in ["lost", "other"] {
        cluster.until(&format!("{PODS}/{name}"), Value::is_null).await;
    }
    let stuck = cluster.get(&format!("{PODS}/stuck")).await.unwrap();
    assert_eq!(stuck["status"]["phase"], "Failed");
    assert!(stuck["metadata"]["deletionTimestamp"].is_null());
}
