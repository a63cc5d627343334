//! Pods of PodGroups, and the scheduler.

use crate::user::{User, with_server, with_user};
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder, SimulatedNodes};
use setpoint_registry::{Feature, Identity, RuntimeConfig};
use setpoint_runtime::Manager;
use setpoint_scheduler::{PodGroups, Scheduler};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub(crate) const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) fn gated(gates: &[Feature]) -> ControlPlaneBuilder {
    let config = RuntimeConfig::with_gates("scheduling.k8s.io/v1alpha2", gates).unwrap();
    ControlPlane::builder().runtime_config(config)
}

/// One node with three cores.
fn small(gates: &[Feature]) -> ControlPlaneBuilder {
    gated(gates).nodes(SimulatedNodes::new(1).capacity("cpu", "3"))
}

async fn group(user: &User, name: &str, policy: Value) {
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy},
    });
    user.create(GROUPS, group).await;
}

/// Pods that need a core each.
async fn pods(user: &User, group: &str, names: &[&str]) {
    for name in names {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 0});
        if !group.is_empty() {
            spec["schedulingGroup"] = json!({"podGroupName": group});
        }
        user.pod(name, spec).await;
    }
}

pub(crate) fn is_placed(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

pub(crate) async fn until_placed(user: &User, names: &[&str]) {
    for name in names {
        user.until(&format!("{PODS}/{name}"), is_placed).await;
    }
}

async fn are_not_placed(user: &User, names: &[&str]) {
    tokio::time::sleep(Duration::from_secs(60)).await;
    for name in names {
        let pod = user.get(&format!("{PODS}/{name}")).await;
        assert!(pod.is_object() && !is_placed(&pod), "{pod:#}");
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

pub(crate) async fn until_said(user: &User, group: &str, [status, reason]: [&str; 2]) -> Value {
    let is_said = |group: &Value| {
        let said = condition(group, "PodGroupScheduled");
        (&said["status"], &said["reason"]) == (&json!(status), &json!(reason))
    };
    user.until(&format!("{GROUPS}/{group}"), is_said).await
}

#[tokio::test(start_paused = true)]
async fn gang_of_three_with_room_for_two_waits_for_room_for_all() {
    with_user(small(&[Feature::GenericWorkload, Feature::GangScheduling]), async |user| {
        pods(&user, "", &["blocker"]).await;
        until_placed(&user, &["blocker"]).await;
        group(&user, "g", json!({"gang": {"minCount": 3}})).await;
        pods(&user, "g", &["a", "b"]).await;
        are_not_placed(&user, &["a", "b"]).await;
        let pod = user.get(&format!("{PODS}/a")).await;
        assert!(condition(&pod, "PodScheduled").is_null(), "a pod is missing: {pod:#}");
        pods(&user, "g", &["c"]).await;
        are_not_placed(&user, &["a", "b", "c"]).await;
        let said = until_said(&user, "g", ["False", "Unschedulable"]).await;
        let said = condition(&said, "PodGroupScheduled");
        assert_eq!(said["message"], "pod group is unschedulable");
        let mut messages = Vec::new();
        for name in ["a", "b", "c"] {
            let pod = user.get(&format!("{PODS}/{name}")).await;
            let said = condition(&pod, "PodScheduled").clone();
            assert_eq!(said["reason"], "Unschedulable");
            messages.push(said["message"].as_str().unwrap().to_owned());
        }
        let waits = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, one or more plugins asked to wait and no plugin rejected pod";
        assert_eq!(messages[..2], [waits, waits]);
        assert!(messages[2].starts_with("0/1 nodes are available: 1 Insufficient cpu."));
        user.delete(&format!("{PODS}/blocker")).await;
        until_placed(&user, &["a", "b", "c"]).await;
        until_said(&user, "g", ["True", "Scheduled"]).await;
        // One that comes later changes nothing about that.
        pods(&user, "g", &["d"]).await;
        are_not_placed(&user, &["d"]).await;
        until_said(&user, "g", ["True", "Scheduled"]).await;
        // The place of a member is the next one's.
        user.delete(&format!("{PODS}/b")).await;
        until_placed(&user, &["d"]).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn gang_that_lost_a_member_waits_for_another_one() {
    with_user(small(&[Feature::GenericWorkload, Feature::GangScheduling]), async |user| {
        // The group comes last.
        pods(&user, "g", &["a", "b", "c"]).await;
        are_not_placed(&user, &["a", "b", "c"]).await;
        user.delete(&format!("{PODS}/b")).await;
        user.until(&format!("{PODS}/b"), Value::is_null).await;
        group(&user, "g", json!({"gang": {"minCount": 3}})).await;
        are_not_placed(&user, &["a", "c"]).await;
        pods(&user, "other", &["x"]).await;
        pods(&user, "g", &["d"]).await;
        until_placed(&user, &["a", "c", "d"]).await;
        are_not_placed(&user, &["x"]).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn more_important_gang_gets_its_room_once_all_of_it_fits() {
    with_user(small(&[Feature::GenericWorkload, Feature::GangScheduling]), async |user| {
        let class = json!({"metadata": {"name": "high"}, "value": 1000});
        user.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
        pods(&user, "", &["low"]).await;
        until_placed(&user, &["low"]).await;
        for (name, n) in [("large", 4), ("fits", 3)] {
            group(&user, name, json!({"gang": {"minCount": n}})).await;
            for idx in 0..n {
                let container =
                    json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
                let spec = json!({
                    "containers": [container], "priorityClassName": "high",
                    "schedulingGroup": {"podGroupName": name},
                });
                user.pod(&format!("{name}-{idx}"), spec).await;
            }
            if name == "large" {
                until_said(&user, name, ["False", "Unschedulable"]).await;
                are_not_placed(&user, &["large-0", "large-3"]).await;
                assert!(
                    user.get(&format!("{PODS}/low")).await["metadata"]["deletionTimestamp"]
                        .is_null()
                );
            }
        }
        until_placed(&user, &["fits-0", "fits-1", "fits-2"]).await;
        user.until(&format!("{PODS}/low"), Value::is_null).await;
        until_said(&user, "fits", ["True", "Scheduled"]).await;
        are_not_placed(&user, &["large-0", "large-1", "large-2", "large-3"]).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn other_groups_are_placed_as_far_as_they_fit() {
    for (gates, policy) in [
        (&[Feature::GenericWorkload, Feature::GangScheduling][..], json!({"basic": {}})),
        (&[Feature::GenericWorkload][..], json!({"gang": {"minCount": 4}})),
    ] {
        with_user(small(gates), async |user| {
            group(&user, "g", policy).await;
            pods(&user, "g", &["a", "b", "c", "d"]).await;
            until_placed(&user, &["a", "b", "c"]).await;
            are_not_placed(&user, &["d"]).await;
            until_said(&user, "g", ["True", "Scheduled"]).await;
        })
        .await;
    }
}

/// All of them use one claim, whose device is chosen with the first of them.
#[tokio::test(start_paused = true)]
async fn gang_whose_pods_share_a_claim_is_placed_with_its_devices() {
    let plane = gated(&[Feature::GenericWorkload, Feature::GangScheduling]);
    let plane = plane.nodes(SimulatedNodes::new(2).capacity("cpu", "3"));
    with_user(plane, async |user| {
        let dra = "/apis/resource.k8s.io/v1";
        let claims = format!("{dra}/namespaces/default/resourceclaims");
        let nodes = user.until("/api/v1/nodes", |list| list["items"][1].is_object()).await;
        let node = nodes["items"][1]["metadata"]["name"].clone();
        let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
        user.create(&format!("{dra}/deviceclasses"), class).await;
        let slice = json!({
            "metadata": {"name": "slice"},
            "spec": {
                "driver": "gpu.example.com", "nodeName": node, "devices": [{"name": "one"}],
                "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
            },
        });
        user.create(&format!("{dra}/resourceslices"), slice).await;
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
        let spec = json!({"devices": {"requests": [request]}});
        user.create(&claims, json!({"metadata": {"name": "shared"}, "spec": spec})).await;
        group(&user, "g", json!({"gang": {"minCount": 3}})).await;
        for name in ["a", "b", "c"] {
            let container = json!({
                "name": "c", "image": "i",
                "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
            });
            let spec = json!({
                "containers": [container], "schedulingGroup": {"podGroupName": "g"},
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}],
            });
            user.pod(name, spec).await;
        }
        for name in ["a", "b", "c"] {
            let pod = user.until(&format!("{PODS}/{name}"), is_placed).await;
            assert_eq!(pod["spec"]["nodeName"], node, "{pod:#}");
        }
        let claim = user.get(&format!("{claims}/shared")).await;
        assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["device"], "one");
        assert_eq!(claim["status"]["reservedFor"].as_array().map(Vec::len), Some(3));
        until_said(&user, "g", ["True", "Scheduled"]).await;
    })
    .await;
}

/// With the rights of kube-scheduler.
#[tokio::test(start_paused = true)]
async fn scheduler_of_gangs_needs_no_more_than_its_role() {
    let plane = gated(&[Feature::GenericWorkload, Feature::GangScheduling]).rbac();
    with_server(plane, async |user, server| {
        let groups = ["system:authenticated"];
        let client = server.client_as(Identity::new("system:kube-scheduler", groups));
        let mut manager =
            Manager::builder(client).clock(server.registry().clock().clone()).seed(1).build();
        Scheduler::new(1).pod_groups(PodGroups::Gangs).add_to(&mut manager).unwrap();
        let stop = CancellationToken::new();
        let acting = async {
            let node = json!({
                "metadata": {"name": "n"},
                "status": {"allocatable": {"cpu": "2", "pods": "10"}},
            });
            user.create("/api/v1/nodes", node).await;
            user.patch("/api/v1/nodes/n", json!({"spec": {"taints": null}})).await;
            group(&user, "g", json!({"gang": {"minCount": 2}})).await;
            pods(&user, "g", &["a", "b"]).await;
            until_placed(&user, &["a", "b"]).await;
            let said = until_said(&user, "g", ["True", "Scheduled"]).await;
            let managers = said["metadata"]["managedFields"].as_array().unwrap();
            assert!(managers.iter().any(|held| held["manager"] == "kube-scheduler"), "{said:#}");
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(manager.run(stop.clone()), acting);
        ended.unwrap();
    })
    .await;
}
