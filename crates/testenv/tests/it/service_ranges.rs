//! ServiceCIDRs: their condition, and how they end.

use crate::cluster::{Cluster, condition, has};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{ServiceCidrs, Setup};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::time::Duration;

const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

fn range(name: &str, networks: &[&str]) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": name}, "spec": {"cidrs": networks},
    })
}

fn service(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": address, "ports": [{"port": 80}]},
    })
}

fn of_range(name: &str) -> String {
    format!("{RANGES}/{name}")
}

fn is_ready(range: &Value) -> bool {
    has(range, "Ready") && range["metadata"]["finalizers"] == json!([FINALIZER])
}

fn is_blocked(range: &Value) -> bool {
    condition(range, "Ready")["reason"] == "Terminating"
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_range_stays_while_an_address_needs_it(env: &TestEnv) {
    let cluster = Cluster::of(env);
    let first = cluster.get(&of_range("kubernetes")).await.unwrap();
    assert!(is_ready(&first), "{first:#}");
    cluster.create(RANGES, &range("more", &["10.1.0.0/24", "fd00:10::/112"])).await;
    let made = cluster.until(&of_range("more"), is_ready).await;
    let ready = condition(&made, "Ready");
    assert_eq!(ready["message"], "Kubernetes Service CIDR is ready");
    assert_eq!(ready["reason"], "");
    let managers = made["metadata"]["managedFields"].as_array().unwrap();
    let by = |manager: &str, operation: &str| {
        let is_by = |held: &Value| held["manager"] == manager && held["operation"] == operation;
        managers.iter().any(is_by)
    };
    assert!(by("service-cidr-controller", "Apply") && by("kube-controller-manager", "Update"));
    // What a user takes away comes back.
    cluster.patch(&of_range("more"), &json!({"metadata": {"finalizers": null}})).await;
    cluster.until(&of_range("more"), is_ready).await;

    cluster.create(SERVICES, &service("a", "10.1.0.5")).await;
    cluster.delete(&of_range("more"), &json!({})).await;
    let held = cluster.until(&of_range("more"), is_blocked).await;
    assert_eq!(
        condition(&held, "Ready")["message"],
        "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(cluster.get(&of_range("more")).await.is_some());
    // The Service keeps its address in another range.
    cluster.create(RANGES, &range("twin", &["10.1.0.0/16"])).await;
    cluster.until(&of_range("more"), Value::is_null).await;
    assert!(cluster.get(&format!("{SERVICES}/a")).await.is_some());

    // The first range is needed by the Service kubernetes.
    cluster.delete(&of_range("kubernetes"), &json!({})).await;
    cluster.until(&of_range("kubernetes"), is_blocked).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_range_without_addresses_ends_after_ten_seconds(env: &TestEnv) {
    let cluster = Cluster::of(env);
    cluster.create(RANGES, &range("more", &["10.1.0.0/24"])).await;
    cluster.until(&of_range("more"), is_ready).await;
    cluster.create(SERVICES, &service("a", "10.1.0.5")).await;
    cluster.delete(&format!("{SERVICES}/a"), &json!({})).await;
    cluster.delete(&of_range("more"), &json!({})).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(cluster.get(&of_range("more")).await.is_some(), "allocators may not know it yet");
    cluster.until(&of_range("more"), Value::is_null).await;
}

/// Ranges that come and go while Services have addresses of them.
struct Ranges;

impl Scenario for Ranges {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        let networks = "10.0.0.0/24,fd00:10::/112".parse();
        builder.controllers(false).service_networks(networks.expect("two networks"))
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let mut manager = life.manager().build();
        let setup = Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed);
        ServiceCidrs::new(setup).add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        for (name, network) in [
            ("a", "10.1.0.0/24"),
            ("b", "10.2.0.0/24"),
            ("c", "10.1.0.0/20"),
            ("six", "fd00:11::/112"),
        ] {
            cluster.create(RANGES, &range(name, &[network])).await;
        }
        cluster.create(SERVICES, &service("in-a", "10.1.0.5")).await;
        cluster.create(SERVICES, &service("in-b", "10.2.0.5")).await;
        cluster.create(SERVICES, &service("in-six", "fd00:11::5")).await;
        for name in ["a", "b", "c", "six"] {
            cluster.until(&of_range(name), is_ready).await;
        }
        for name in ["a", "b", "six"] {
            cluster.delete(&of_range(name), &json!({})).await;
        }
        // The addresses of a are also in c.
        cluster.until(&of_range("a"), Value::is_null).await;
        cluster.until(&of_range("b"), is_blocked).await;
        cluster.until(&of_range("six"), is_blocked).await;
        cluster.delete(&of_range("c"), &json!({})).await;
        cluster.until(&of_range("c"), is_blocked).await;
        let addresses = cluster.list("/apis/networking.k8s.io/v1/ipaddresses").await;
        assert_eq!(addresses.len(), 4, "{addresses:#?}");
        for name in ["b", "six"] {
            cluster.delete(&format!("{SERVICES}/in-{name}"), &json!({})).await;
            cluster.until(&of_range(name), Value::is_null).await;
        }
        assert!(cluster.get(&of_range("c")).await.is_some(), "an address needs it");
    }
}

#[test]
fn ranges_stay_while_they_are_needed_with_every_plan() {
    check(&Ranges, &Plans::new().crashes().storms(8));
}
