//! Taints of devices, and questions about pools and servers that are gone, through crashes.

use crate::cluster::{Cluster, condition, pod_spec};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::workload::device_taint_eviction::DeviceTaintEviction;
use setpoint_controllers::{PoolStatusController, Setup, StorageVersionCollector};
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::BoxError;
use setpoint_runtime::events::EventApi;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plan, Plans, Scenario, TestEnv};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const RULES: &str = "/apis/resource.k8s.io/v1beta2/devicetaintrules";
const REQUESTS: &str = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests";
const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const DRIVER: &str = "gpu.example.com";

fn gated(builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
    let gates =
        [Feature::DRADeviceTaintRules, Feature::DRAResourcePoolStatus, Feature::StorageVersionAPI];
    let config = RuntimeConfig::with_gates("api/beta,api/alpha", gates).expect("a valid text");
    builder.controllers(false).runtime_config(config)
}

fn setup(life: &Life) -> Setup {
    Setup::new(life.client.clone(), life.clock.clone()).seed(life.seed)
}

/// A slice with a device for each name.
fn slice(names: &[&str], tainted: bool) -> Value {
    let taints = match tainted {
        true => json!([{"key": "broken", "effect": "NoExecute"}]),
        false => Value::Null,
    };
    let devices: Vec<_> =
        names.iter().map(|name| json!({"name": name, "taints": taints})).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {
            "driver": DRIVER, "nodeName": "n1", "devices": devices,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        },
    })
}

/// A pod that stands taints of its device for a while.
async fn pod(cluster: &Cluster, name: &str, device: &str, seconds: u64) {
    let mut spec = pod_spec();
    spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": name}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "finalizers": ["example.com/hold"]}, "spec": spec,
    });
    let pod = cluster.create(PODS, &pod).await;
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    });
    cluster.create(CLAIMS, &claim).await;
    let toleration = json!({
        "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
    });
    let result = json!({
        "request": "r", "driver": DRIVER, "pool": "p", "device": device,
        "tolerations": [toleration],
    });
    let status = json!({
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}],
    });
    cluster.patch(&format!("{CLAIMS}/{name}/status"), &json!({"status": status})).await;
}

/// Waits until a pod leaves, and lets it go.
async fn until_left(cluster: &Cluster, name: &str) {
    let path = format!("{PODS}/{name}");
    let is_leaving = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    let pod = cluster.until(&path, is_leaving).await;
    assert_eq!(condition(&pod, "DisruptionTarget")["reason"], "DeletionByDeviceTaintManager");
    let released = json!({"metadata": {"finalizers": null}});
    cluster.patch(&path, &released).await;
    cluster.delete(&path, &json!({"gracePeriodSeconds": 0})).await;
    cluster.until(&path, Value::is_null).await;
    cluster.delete(&format!("{CLAIMS}/{name}"), &json!({})).await;
}

/// Devices that a slice and a rule taint.
struct Tainted;

impl Scenario for Tainted {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        gated(builder)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let mut manager = life.manager().events(EventApi::Core).build();
        DeviceTaintEviction::new(setup(&life).device_taint_rules(true)).add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        cluster.create(SLICES, &slice(&["one", "two"], false)).await;
        pod(&cluster, "a", "one", 0).await;
        pod(&cluster, "b", "two", 30).await;
        let rule = json!({
            "apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule",
            "metadata": {"name": "r"},
            "spec": {
                "deviceSelector": {"driver": DRIVER, "device": "one"},
                "taint": {"key": "broken", "effect": "NoExecute"},
            },
        });
        cluster.create(RULES, &rule).await;
        until_left(&cluster, "a").await;
        // What it says depends on whether the controller was started again.
        let path = format!("{RULES}/r");
        let is_over = |rule: &Value| {
            let reason = &condition(rule, "EvictionInProgress")["reason"];
            ["Completed", "NotStarted"].contains(&reason.as_str().unwrap_or_default())
        };
        cluster.until(&path, is_over).await;
        let pod = cluster.get(&format!("{PODS}/b")).await.unwrap();
        assert!(pod["metadata"]["deletionTimestamp"].is_null(), "its device is not tainted");
        cluster.delete(&path, &json!({})).await;
        let spec = slice(&["one", "two"], true)["spec"].clone();
        cluster.patch(&format!("{SLICES}/s"), &json!({"spec": spec})).await;
        until_left(&cluster, "b").await;
        // Its taints are dated.
        cluster.delete(&format!("{SLICES}/s"), &json!({})).await;
    }
}

#[test]
fn pods_leave_tainted_devices_with_every_plan() {
    check(&Tainted, &Plans::new().crashes().storms(8).plan(Plan::storm(279)));
}

/// A question about pools, which is answered once, and a server that is gone.
struct Answered;

impl Scenario for Answered {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        gated(builder)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let mut manager = life.manager().build();
        PoolStatusController::new(setup(&life)).add_to(&mut manager)?;
        let collector = StorageVersionCollector::new(setup(&life)).run(life.stop.clone());
        let (answering, collecting) = tokio::join!(manager.run(life.stop.clone()), collector);
        answering?;
        collecting
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        cluster.create(SLICES, &slice(&["one", "two"], false)).await;
        let request = json!({
            "apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
            "metadata": {"name": "q"}, "spec": {"driver": DRIVER},
        });
        cluster.create(REQUESTS, &request).await;
        let path = format!("{REQUESTS}/q");
        let answered = cluster.until(&path, |found| found["status"].is_object()).await;
        assert_eq!(answered["status"]["pools"][0]["totalDevices"], 2);
        // In an hour.
        cluster.until(&path, Value::is_null).await;

        let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "one", "labels": labels}, "spec": {"holderIdentity": "one"},
        });
        cluster.create(LEASES, &lease).await;
        let version = json!({
            "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
            "metadata": {"name": "apps.x"}, "spec": {},
        });
        cluster.create(VERSIONS, &version).await;
        let server = |id: &str| {
            let mut server = json!({"apiServerID": id, "encodingVersion": "v1"});
            server["decodableVersions"] = json!(["v1"]);
            server
        };
        let servers = [server("one"), server("gone")];
        let status = json!({"storageVersions": servers, "commonEncodingVersion": "v1"});
        let status = json!({"status": status});
        cluster.patch(&format!("{VERSIONS}/apps.x/status"), &status).await;
        let path = format!("{VERSIONS}/apps.x");
        let n_servers = |found: &Value| found["status"]["storageVersions"].as_array().map(Vec::len);
        cluster.until(&path, |found| n_servers(found) == Some(1)).await;
        cluster.delete(&format!("{LEASES}/one"), &json!({})).await;
        cluster.until(&path, Value::is_null).await;
    }
}

#[test]
fn questions_are_answered_and_servers_forgotten_with_every_plan() {
    check(&Answered, &Plans::new().crashes().storms(8));
}
