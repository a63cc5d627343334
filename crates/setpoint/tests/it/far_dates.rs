//! Dates that Kubernetes has, and the types of its objects in Rust cannot hold.

use crate::plane::with_person_of;
use serde_json::{Value, json};
use setpoint::{ControlPlane, Selection};

const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn job(suspend: bool) -> Value {
    let containers = json!([{"name": "work", "image": "work"}]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
        "spec": {"suspend": suspend, "template": template}})
}

/// `9999-12-31T23:59:59Z` often stands for "never". A pod with it must not keep its controller
/// from its pods.
#[tokio::test(start_paused = true)]
async fn pods_with_dates_at_the_end_of_time_are_pods() {
    let plane = ControlPlane::builder().simulated(0).controllers(Selection::all()).build();
    with_person_of(plane, async |person| {
        person.create(JOBS, &job(false)).await;
        let work = format!("{JOBS}/work");
        let has = |member: &'static str| {
            move |job: &Option<Value>| job.as_ref().is_some_and(|job| job["status"][member] == 1)
        };
        person.until(&work, "it has a pod", has("active")).await;
        let pods = person.get(PODS).await.unwrap();
        let name = pods["items"][0]["metadata"]["name"].as_str().unwrap();
        let never = "9999-12-31T23:59:59Z";
        let ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": never});
        let status = json!({"status": {"phase": "Succeeded", "conditions": [ready]}});
        person.patch(&format!("{PODS}/{name}/status"), &status).await;
        person.until(&work, "the pod counts", has("succeeded")).await;
        let pod = person.get(&format!("{PODS}/{name}")).await.unwrap();
        assert_eq!(pod["status"]["conditions"][0]["lastTransitionTime"], never);
        assert!(pod["metadata"]["finalizers"].is_null(), "the controller has written to the pod");
    })
    .await;
}

/// Controllers read some objects from the server, and the answers to what they write.
#[tokio::test(start_paused = true)]
async fn jobs_with_dates_at_the_end_of_time_run() {
    let plane = ControlPlane::builder().simulated(0).controllers(Selection::all()).build();
    with_person_of(plane, async |person| {
        person.create(JOBS, &job(true)).await;
        let work = format!("{JOBS}/work");
        let is_suspended = |job: &Option<Value>| {
            job.as_ref().is_some_and(|job| job["status"]["conditions"][0]["type"] == "Suspended")
        };
        person.until(&work, "it is suspended", is_suspended).await;
        let job = person.get(&work).await.unwrap();
        let mut conditions = job["status"]["conditions"].clone();
        let odd = json!({"type": "Odd", "status": "True", "lastProbeTime": "9999-12-31T23:59:59Z"});
        conditions.as_array_mut().unwrap().push(odd);
        let status = json!({"status": {"conditions": conditions}});
        person.patch(&format!("{work}/status"), &status).await;
        person.patch(&work, &json!({"spec": {"suspend": false}})).await;
        let is_active =
            |job: &Option<Value>| job.as_ref().is_some_and(|job| job["status"]["active"] == 1);
        person.until(&work, "it has a pod", is_active).await;
    })
    .await;
}
