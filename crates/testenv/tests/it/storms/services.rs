//! Endpoints and EndpointSlices of Services.

use super::observer::{at_every_change, of};
use crate::cluster::{Cluster, Fate, controllers, pod_spec, until_either};
use serde_json::{Value, json};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::collections::BTreeSet;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A Service whose pods come and go, and one whose Endpoints a user writes.
struct Backends;

fn pod(name: &str, app: &str) -> Value {
    let mut spec = pod_spec();
    spec["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 8080}]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": spec,
    })
}

fn endpoints(slice: &Value) -> impl Iterator<Item = &Value> {
    slice["endpoints"].as_array().into_iter().flatten()
}

/// The addresses in the slices of a Service, and whether they are ready.
fn addresses(slices: &[Value], service: &str) -> Vec<(String, bool)> {
    let of_service =
        |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service;
    let mut found: Vec<(String, bool)> = slices
        .iter()
        .filter(of_service)
        .flat_map(endpoints)
        .map(|endpoint| {
            let address = endpoint["addresses"][0].as_str().unwrap().to_owned();
            (address, endpoint["conditions"]["ready"] == true)
        })
        .collect();
    found.sort();
    found
}

fn ready(addresses: &[&str]) -> Vec<(String, bool)> {
    addresses.iter().map(|address| ((*address).to_owned(), true)).collect()
}

impl Scenario for Backends {
    type World = ();

    fn world(&self) {}

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let names = "endpoint,endpointslice,endpointslicemirroring";
        let manager = controllers(life.manager(), &life.client, &life.clock, names)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    /// Five watches that begin anew, and keys that back off while the cache is behind.
    fn requests_afterwards_max(&self) -> usize {
        60
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if !change.is_of("endpointslices") {
                return;
            }
            let mut seen = BTreeSet::new();
            for slice in of(objects, "endpointslices") {
                // Slices of an earlier Service of the name may still be there.
                let service = &slice["metadata"]["ownerReferences"][0]["uid"];
                for endpoint in endpoints(slice) {
                    let key = (service.to_string(), endpoint["addresses"].to_string());
                    assert!(!seen.contains(&key), "{change}: {key:?} is in two slices");
                    seen.insert(key);
                }
            }
        });
        until_either(watch, cluster.with_kubelets(|_| Fate::Run, users(&cluster))).await;
    }
}

async fn users(cluster: &Cluster) {
    let labels = json!({"topology.kubernetes.io/zone": "z1"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels},
    });
    cluster.create("/api/v1/nodes", &node).await;
    // Addresses of the server's choice differ between plays.
    let service = |name: &str, selector: Value| {
        let address = if name == "web" { "10.0.0.51" } else { "10.0.0.52" };
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"clusterIP": address, "selector": selector, "ports": [{"port": 80, "targetPort": 8080}]},
        })
    };
    let shows = async |name: &str, expected: &[&str]| {
        let expected = ready(expected);
        cluster.until_all(SLICES, |slices| addresses(slices, name) == expected).await;
        let legacy = |object: &Value| {
            let subsets = object["subsets"].as_array().into_iter().flatten();
            let addresses = subsets.flat_map(|subset| subset["addresses"].as_array());
            let mut found: Vec<(String, bool)> = addresses
                .flatten()
                .map(|address| (address["ip"].as_str().unwrap().to_owned(), true))
                .collect();
            found.sort();
            found == expected
        };
        cluster.until(&format!("{ENDPOINTS}/{name}"), legacy).await;
    };
    cluster.create(SERVICES, &service("web", json!({"app": "web"}))).await;
    for name in ["p1", "p2", "p3"] {
        cluster.create(PODS, &pod(name, "web")).await;
    }
    cluster.create(PODS, &pod("p4", "other")).await;
    shows("web", &["10.1.1.1", "10.1.1.2", "10.1.1.3"]).await;

    // A user writes the Endpoints of a Service without selector.
    let by_hand = |ips: &[&str]| {
        let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "hand"},
            "subsets": [{"addresses": addresses, "ports": [{"port": 9000}]}],
        })
    };
    cluster.create(SERVICES, &service("hand", Value::Null)).await;
    cluster.create(ENDPOINTS, &by_hand(&["192.0.2.1", "192.0.2.2"])).await;
    shows("hand", &["192.0.2.1", "192.0.2.2"]).await;

    // Pods go, come, and change their labels.
    cluster.delete(&format!("{PODS}/p2"), &json!({})).await;
    let patch = json!({"metadata": {"labels": {"app": "web"}}});
    cluster.patch(&format!("{PODS}/p4"), &patch).await;
    shows("web", &["10.1.1.1", "10.1.1.3", "10.1.1.4"]).await;
    let two = by_hand(&["192.0.2.2", "192.0.2.3"]);
    cluster.patch(&format!("{ENDPOINTS}/hand"), &json!({"subsets": two["subsets"]})).await;
    shows("hand", &["192.0.2.2", "192.0.2.3"]).await;

    // Other ports: all slices change.
    let ports = json!({"spec": {"ports": [{"port": 80, "targetPort": 8081}]}});
    cluster.patch(&format!("{SERVICES}/web"), &ports).await;
    let has_ports = |slices: &[Value]| {
        addresses(slices, "web").len() == 3
            && slices
                .iter()
                .filter(|slice| slice["metadata"]["generateName"] == "web-")
                .all(|slice| slice["ports"][0]["port"] == 8081 || endpoints(slice).count() == 0)
    };
    cluster.until_all(SLICES, has_ports).await;

    // Services end, and one comes back with another selector.
    for name in ["web", "hand"] {
        cluster.delete(&format!("{SERVICES}/{name}"), &json!({})).await;
    }
    cluster.create(SERVICES, &service("web", json!({"app": "none"}))).await;
    cluster.patch(&format!("{PODS}/p1"), &json!({"metadata": {"labels": {"app": "none"}}})).await;
    shows("web", &["10.1.1.1"]).await;
    let hand = |slices: &[Value]| addresses(slices, "hand").is_empty();
    cluster.until_all(SLICES, hand).await;
    // Whether the last write names the change that led to it depends on the faults.
    cluster.delete(&format!("{SERVICES}/web"), &json!({})).await;
    cluster.until_all(SLICES, |slices| addresses(slices, "web").is_empty()).await;
    cluster.until(&format!("{ENDPOINTS}/web"), Value::is_null).await;
}

#[test]
fn services_have_each_endpoint_once_with_every_plan() {
    check(&Backends, &Plans::new().storms(10));
}
