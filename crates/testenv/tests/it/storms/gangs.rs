//! Gangs, and the scheduler.

use super::observer::{Objects, at_every_change, of};
use crate::cluster::{Cluster, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::BoxError;
use setpoint_runtime::events::EventApi;
use setpoint_scheduler::{PodGroups, Scheduler};
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};

const NODES: &str = "/api/v1/nodes";
const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Two gangs of three, each with a claim that its pods share, and a node for one of them.
struct Gangs;

fn is_placed(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

fn group_of(pod: &Value) -> &str {
    pod["spec"]["schedulingGroup"]["podGroupName"].as_str().unwrap_or_default()
}

/// Whether the claim of a pod's group has a device, and is reserved for the pod.
fn has_device(objects: &Objects, pod: &Value) -> bool {
    of(objects, "resourceclaims").any(|claim| {
        let users = claim["status"]["reservedFor"].as_array().into_iter().flatten();
        let device = &claim["status"]["allocation"]["devices"]["results"][0]["device"];
        claim["metadata"]["name"] == group_of(pod)
            && device.is_string()
            && users.into_iter().any(|user| user["uid"] == pod["metadata"]["uid"])
    })
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

impl Scenario for Gangs {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        let gates = [Feature::GenericWorkload, Feature::GangScheduling];
        let config = RuntimeConfig::with_gates("api/alpha", gates).expect("a valid text");
        builder.controllers(false).runtime_config(config)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let mut manager = life.manager().events(EventApi::Core).build();
        Scheduler::new(life.seed).pod_groups(PodGroups::Gangs).add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let watch = at_every_change(env, "/registry/", |objects, change| {
            if !change.is_of("pods") || !is_placed(&change.new) {
                return;
            }
            let placed: Vec<&str> =
                of(objects, "pods").filter(|pod| is_placed(pod)).map(group_of).collect();
            assert!(placed.len() <= 3, "{change}: {placed:?} have three cores");
            let first = placed.first();
            assert!(placed.iter().all(|group| Some(group) == first), "{change}: {placed:?}");
            let is_new = !is_placed(&change.old);
            assert!(!is_new || has_device(objects, &change.new), "{change}: it has no device");
        });
        let user = async {
            let cores = json!({"cpu": "3", "pods": "10"});
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
                "status": {"allocatable": cores, "capacity": cores},
            });
            cluster.create(NODES, &node).await;
            cluster.patch(&format!("{NODES}/n"), &json!({"spec": {"taints": null}})).await;
            let slice = json!({
                "driver": "gpu.example.com", "nodeName": "n",
                "devices": [{"name": "one"}, {"name": "two"}],
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            });
            cluster.create(SLICES, &object("ResourceSlice", "n", &slice)).await;
            cluster.create(CLASSES, &object("DeviceClass", "gpu", &json!({}))).await;
            let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
            let spec = json!({"devices": {"requests": [request]}});
            for group in ["g", "h"] {
                cluster.create(CLAIMS, &object("ResourceClaim", group, &spec)).await;
                let object = json!({
                    "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
                    "metadata": {"name": group},
                    "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
                });
                cluster.create(GROUPS, &object).await;
            }
            for n in 0..3 {
                for group in ["g", "h"] {
                    let container = json!({
                        "name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}},
                    });
                    let pod = json!({
                        "apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": format!("{group}{n}")},
                        "spec": {
                            "containers": [container],
                            "schedulingGroup": {"podGroupName": group},
                            "resourceClaims": [{"name": "gpu", "resourceClaimName": group}],
                        },
                    });
                    cluster.create(PODS, &pod).await;
                }
            }
            let is_full = |pods: &[Value]| pods.iter().filter(|pod| is_placed(pod)).count() == 3;
            // Which one is first differs between plays.
            for _ in 0..2 {
                cluster.until_all(PODS, is_full).await;
                let pods = cluster.list(PODS).await;
                let placed: Vec<&Value> = pods.iter().filter(|pod| is_placed(pod)).collect();
                // A scheduler that was killed after the bindings says nothing, as kube-scheduler.
                let at_once = json!({"gracePeriodSeconds": 0});
                for pod in placed {
                    let name = pod["metadata"]["name"].as_str().unwrap();
                    cluster.delete(&format!("{PODS}/{name}"), &at_once).await;
                }
            }
            cluster.until_all(PODS, <[Value]>::is_empty).await;
            for group in ["g", "h"] {
                let free = json!({"metadata": {"finalizers": null}});
                cluster.patch(&format!("{GROUPS}/{group}"), &free).await;
                cluster.delete(&format!("{GROUPS}/{group}"), &json!({})).await;
                cluster.until(&format!("{GROUPS}/{group}"), Value::is_null).await;
                // Nothing takes the devices back here.
                cluster.patch(&format!("{CLAIMS}/{group}"), &free).await;
                cluster.delete(&format!("{CLAIMS}/{group}"), &json!({})).await;
                cluster.until(&format!("{CLAIMS}/{group}"), Value::is_null).await;
            }
        };
        until_either(watch, user).await;
    }
}

#[test]
fn gangs_are_placed_whole_one_after_the_other_with_any_plan() {
    check(&Gangs, &Plans::new().storms(8));
}
