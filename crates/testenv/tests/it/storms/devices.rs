//! The scheduler, and claims of devices.

use super::observer::{Objects, at_every_change, of};
use crate::cluster::{Cluster, Fate, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::Selection;
use setpoint_runtime::BoxError;
use setpoint_runtime::events::EventApi;
use setpoint_scheduler::Scheduler;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::collections::BTreeMap;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const DRIVER: &str = "gpu.example.com";

/// Two nodes with two devices each, and more claims than that.
struct Devices;

fn pod(name: &str, claim: Value) -> Value {
    let mut claim = claim;
    claim["name"] = "gpu".into();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]},
            }],
            "resourceClaims": [claim],
        },
    })
}

fn made() -> Value {
    json!({"resourceClaimTemplateName": "one"})
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

fn slice(node: &str) -> Value {
    let device = |name: &str| json!({"name": name, "attributes": {"model": {"string": "x"}}});
    let spec = json!({
        "driver": DRIVER, "nodeName": node, "devices": [device("one"), device("two")],
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
    });
    object("ResourceSlice", node, &spec)
}

fn is_placed(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

fn is_refused(pod: &Value) -> bool {
    let condition = crate::cluster::condition(pod, "PodScheduled");
    let message = condition["message"].as_str().unwrap_or_default();
    condition["reason"] == "Unschedulable" && message.contains("2 cannot allocate all claims")
}

/// The claims of each device.
fn owners(objects: &Objects) -> BTreeMap<String, Vec<&str>> {
    let mut owners = BTreeMap::<_, Vec<&str>>::new();
    for claim in of(objects, "resourceclaims") {
        let results = claim["status"]["allocation"]["devices"]["results"].as_array();
        for result in results.into_iter().flatten() {
            let device = format!("{}/{}", result["pool"], result["device"]);
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            owners.entry(device).or_default().push(name);
        }
    }
    owners
}

/// Whether the claim of a pod is there for it, on its node.
fn has_devices(objects: &Objects, pod: &Value) -> bool {
    let own = &pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"];
    let named = &pod["spec"]["resourceClaims"][0]["resourceClaimName"];
    let name = if named.is_string() { named } else { own };
    let mut claims = of(objects, "resourceclaims");
    claims.any(|claim| {
        let users = claim["status"]["reservedFor"].as_array().into_iter().flatten();
        let pool = &claim["status"]["allocation"]["devices"]["results"][0]["pool"];
        claim["metadata"]["name"] == *name
            && *pool == pod["spec"]["nodeName"]
            && users.into_iter().any(|user| user["uid"] == pod["metadata"]["uid"])
    })
}

impl Scenario for Devices {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        let names = "resourceclaim-controller,garbagecollector";
        builder.controllers(names.parse::<Selection>().unwrap())
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let mut manager = life.manager().events(EventApi::Core).build();
        Scheduler::new(life.seed).add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if change.is_of("resourceclaims") {
                for (device, claims) in owners(objects) {
                    assert!(claims.len() < 2, "{change}: {device} is given to {claims:?}");
                }
            }
            if change.is_of("pods") && is_placed(&change.new) && !is_placed(&change.old) {
                assert!(has_devices(objects, &change.new), "{change}: it has no devices");
            }
        });
        let user = async {
            for name in ["n1", "n2"] {
                let resources = json!({"cpu": "8", "pods": "10"});
                let node = json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                    "status": {"allocatable": resources, "capacity": resources},
                });
                cluster.create(NODES, &node).await;
                let path = format!("{NODES}/{name}");
                cluster.patch(&path, &json!({"spec": {"taints": null}})).await;
                cluster.create(SLICES, &slice(name)).await;
            }
            let selector = json!({"cel": {"expression": format!("device.driver == '{DRIVER}'")}});
            let class = object("DeviceClass", "gpu", &json!({"selectors": [selector]}));
            cluster.create(CLASSES, &class).await;
            let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
            let spec = json!({"devices": {"requests": [request]}});
            let template = object("ResourceClaimTemplate", "one", &json!({"spec": spec}));
            cluster.create(TEMPLATES, &template).await;

            // Two pods with one claim, which comes after them, and more pods with their own.
            for name in ["s1", "s2"] {
                cluster.create(PODS, &pod(name, json!({"resourceClaimName": "shared"}))).await;
            }
            let is_told = |pod: &Value| {
                let condition = crate::cluster::condition(pod, "PodScheduled");
                let message = condition["message"].as_str().unwrap_or_default().to_owned();
                message.contains("could not find ResourceClaim \"default/shared\"")
            };
            cluster.until(&format!("{PODS}/s1"), is_told).await;
            cluster.create(CLAIMS, &object("ResourceClaim", "shared", &spec)).await;
            cluster.until_all(PODS, |pods| pods.iter().all(is_placed)).await;
            for n in 0..5 {
                cluster.create(PODS, &pod(&format!("p{n}"), made())).await;
            }
            let full = async |n_placed: usize, n_waiting: usize| {
                let is_full = |pods: &[Value]| {
                    pods.iter().filter(|pod| is_placed(pod)).count() == n_placed
                        && pods.iter().filter(|pod| !is_placed(pod) && is_refused(pod)).count()
                            == n_waiting
                };
                cluster.until_all(PODS, is_full).await
            };
            let pods = full(5, 2).await;
            // A pod ends: its device is another's.
            let is_own = |pod: &&Value| {
                is_placed(pod) && pod["metadata"]["name"].as_str().unwrap().starts_with('p')
            };
            let first = pods.iter().find(is_own).unwrap()["metadata"]["name"].clone();
            let first = format!("{PODS}/{}", first.as_str().unwrap());
            cluster.delete(&first, &json!({})).await;
            cluster.until(&first, Value::is_null).await;
            full(5, 1).await;
            // The claim of both is free only without both.
            cluster.delete(&format!("{PODS}/s1"), &json!({})).await;
            cluster.until(&format!("{PODS}/s1"), Value::is_null).await;
            full(4, 1).await;
            cluster.delete(&format!("{PODS}/s2"), &json!({})).await;
            full(4, 0).await;
            for pod in cluster.list(PODS).await {
                let name = pod["metadata"]["name"].as_str().unwrap();
                cluster.delete(&format!("{PODS}/{name}"), &json!({})).await;
            }
            cluster.until_all(PODS, <[Value]>::is_empty).await;
            cluster.delete(&format!("{CLAIMS}/shared"), &json!({})).await;
            cluster.until_all(CLAIMS, <[Value]>::is_empty).await;
        };
        until_either(watch, cluster.with_kubelets(|_| Fate::Run, user)).await;
    }
}

#[test]
fn devices_are_given_once_with_any_plan() {
    check(&Devices, &Plans::new().storms(10));
}
