//! Workloads and PodGroups of Jobs.

use crate::gangs::{GROUPS, PODS, gated, is_placed, until_placed, until_said};
use crate::user::{User, as_account, with_user};
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_control_plane::SimulatedNodes;
use setpoint_controllers::workload::job::JobController;
use setpoint_controllers::{Selection, Setup};
use setpoint_registry::Feature;
use setpoint_runtime::Manager;
use std::time::Duration;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const WORKLOADS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads";
const ALL: [Feature; 3] =
    [Feature::GenericWorkload, Feature::GangScheduling, Feature::WorkloadWithJob];

/// A Job whose pods need a core each, changed by `spec`.
async fn job(user: &User, name: &str, spec: Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "parallelism": 3, "completions": 3, "completionMode": "Indexed",
            "template": {"spec": {
                "containers": [container], "restartPolicy": "Never",
                "automountServiceAccountToken": false,
            }},
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        match key.as_str() {
            "schedulingGroup" => job["spec"]["template"]["spec"][key] = value.clone(),
            _ => job["spec"][key] = value.clone(),
        }
    }
    user.create(JOBS, job).await
}

async fn items(user: &User, path: &str) -> Vec<Value> {
    user.get(path).await["items"].as_array().cloned().unwrap_or_default()
}

async fn pods_of(user: &User, job: &str) -> Vec<Value> {
    let selected = format!("{PODS}?labelSelector=job-name%3D{job}");
    let is_there = |list: &Value| list["items"].as_array().is_some_and(|all| !all.is_empty());
    user.until(&selected, is_there).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    items(user, &selected).await
}

#[tokio::test(start_paused = true)]
async fn gang_of_a_job_gets_a_workload_and_a_group_and_is_placed_whole() {
    let plane = gated(&ALL).controllers(Selection::all());
    let plane = plane.nodes(SimulatedNodes::new(1).capacity("cpu", "4"));
    with_user(plane, async |user| {
        let first = job(&user, "train", json!({})).await;
        let pods = pods_of(&user, "train").await;
        assert_eq!(pods.len(), 3);
        let workloads = items(&user, WORKLOADS).await;
        let [workload] = &workloads[..] else { panic!("{workloads:#?}") };
        let uid = &first["metadata"]["uid"];
        let owner = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        });
        assert_eq!(workload["metadata"]["ownerReferences"], json!([owner]));
        assert_eq!(
            workload["spec"],
            json!({
                "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"},
                "podGroupTemplates": [{
                    "name": "train-pgt-0", "schedulingConstraints": null,
                    "schedulingPolicy": {"gang": {"minCount": 3}},
                }],
            })
        );
        let groups = items(&user, GROUPS).await;
        let [group] = &groups[..] else { panic!("{groups:#?}") };
        let of_workload = json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload",
            "name": workload["metadata"]["name"], "uid": workload["metadata"]["uid"],
        });
        assert_eq!(group["metadata"]["ownerReferences"], json!([owner, of_workload]));
        let name = group["metadata"]["name"].as_str().unwrap();
        let workload_name = workload["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with(&format!("{workload_name}-train-pgt-0-")), "{name}");
        assert_eq!(group["spec"]["schedulingPolicy"], json!({"gang": {"minCount": 3}}));
        for pod in &pods {
            assert_eq!(pod["spec"]["schedulingGroup"], json!({"podGroupName": name}));
            assert_eq!(pod["metadata"]["ownerReferences"], json!([owner]));
        }
        let names: Vec<&str> =
            pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
        until_placed(&user, &names).await;
        until_said(&user, name, ["True", "Scheduled"]).await;
        // There is a core for one of the next one's pods.
        job(&user, "next", json!({})).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let next = pods_of(&user, "next").await;
        assert_eq!(next.iter().filter(|pod| is_placed(pod)).count(), 0);
        // All goes with the Job.
        let background = json!({"propagationPolicy": "Background"});
        user.request("DELETE", &format!("{JOBS}/train"), &background).await.unwrap();
        user.until(&format!("{WORKLOADS}/{workload_name}"), Value::is_null).await;
        user.until(&format!("{GROUPS}/{name}"), Value::is_null).await;
        let names: Vec<&str> =
            next.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
        until_placed(&user, &names).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn other_jobs_get_none() {
    let plane = gated(&ALL).controllers(Selection::all());
    with_user(plane, async |user| {
        job(&user, "one", json!({"parallelism": 1, "completions": 1})).await;
        job(&user, "fewer", json!({"parallelism": 2})).await;
        job(&user, "loose", json!({"completionMode": "NonIndexed"})).await;
        job(&user, "own", json!({"schedulingGroup": {"podGroupName": "mine"}})).await;
        for name in ["one", "fewer", "loose"] {
            let pods = pods_of(&user, name).await;
            assert!(pods.iter().all(|pod| pod["spec"]["schedulingGroup"].is_null()));
        }
        let pods = pods_of(&user, "own").await;
        assert!(pods.iter().all(|pod| pod["spec"]["schedulingGroup"]["podGroupName"] == "mine"));
        assert!(items(&user, WORKLOADS).await.is_empty());
    })
    .await;
    let plane = gated(&[Feature::GenericWorkload]).controllers(Selection::all());
    with_user(plane, async |user| {
        job(&user, "train", json!({})).await;
        let pods = pods_of(&user, "train").await;
        assert!(pods.iter().all(|pod| pod["spec"]["schedulingGroup"].is_null()));
        assert!(items(&user, WORKLOADS).await.is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn job_with_a_workload_of_somebody_else_has_pods_without_group() {
    let plane = gated(&ALL).controllers(Selection::all());
    with_user(plane, async |user| {
        let workload = json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload",
            "metadata": {"name": "theirs"},
            "spec": {
                "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"},
                "podGroupTemplates": [
                    {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}},
                ],
            },
        });
        user.create(WORKLOADS, workload).await;
        // A moment for the cache of the controller.
        tokio::time::sleep(Duration::from_secs(5)).await;
        job(&user, "train", json!({})).await;
        let pods = pods_of(&user, "train").await;
        assert_eq!(pods.len(), 3);
        assert!(pods.iter().all(|pod| pod["spec"]["schedulingGroup"].is_null()));
        assert!(items(&user, GROUPS).await.is_empty());
        assert_eq!(items(&user, WORKLOADS).await.len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn workloads_are_made_with_the_controllers_own_account_and_role() {
    as_account(
        gated(&[Feature::GenericWorkload, Feature::WorkloadWithJob]),
        "job-controller",
        |setup, stop| {
            let add = |setup: &Setup, manager: &mut Manager| {
                JobController::new(setup.clone()).add_to(manager)
            };
            async move { setup.workloads_of_jobs(true).run(stop, add).await }.boxed()
        },
        async |user| {
            job(&user, "train", json!({})).await;
            let pods = pods_of(&user, "train").await;
            assert_eq!(pods.len(), 3);
            assert!(pods.iter().all(|pod| pod["spec"]["schedulingGroup"].is_object()));
        },
    )
    .await;
}
