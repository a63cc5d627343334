//! What the pod printer prints, from the first list to the last deletion.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

use k8s_openapi::api::core::v1::Pod;
use pod_printer::bare::{self, Endpoint};
use pod_printer::by_hand;
use pod_printer::controller::{self, Job};
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::apiserver::listen::Listener;
use setpoint::kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::kube_client::{Api, Client};
use setpoint::prelude::*;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Runs a test beside a control plane in this process, in virtual time.
fn with_control_plane(test: impl AsyncFnOnce(Client, CancellationToken)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let plane = ControlPlane::builder().simulated(1).build();
        let client = plane.client();
        let stop = CancellationToken::new();
        let (ended, ()) = tokio::join!(plane.run(stop.clone()), async {
            test(client, stop.clone()).await;
            stop.cancel();
        });
        ended.unwrap();
    });
}

/// The two ways to write the controller.
#[derive(Debug, Clone, Copy)]
enum Way {
    Runtime,
    ByHand,
}

const WAYS: [Way; 2] = [Way::Runtime, Way::ByHand];

impl Way {
    async fn run(self, client: Client, job: impl Job, stop: CancellationToken) {
        match self {
            Self::Runtime => {
                let mut manager = Manager::builder(client).seed(1).build();
                manager.add(controller::controller(2, job).unwrap()).unwrap();
                manager.run(stop).await.unwrap();
            }
            Self::ByHand => {
                by_hand::run(ClientSource::all::<Pod>(client), 2, job, stop).await.unwrap();
            }
        }
    }
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )
    .unwrap()
}

#[test]
fn every_change_is_seen_and_a_deletion_is_an_absence() {
    WAYS.into_iter().for_each(every_change_is_seen);
}

fn every_change_is_seen(way: Way) {
    with_control_plane(async |client, stop| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        pods.create(&PostParams::default(), &pod("first")).await.unwrap();
        let (sender, mut lines) = mpsc::unbounded_channel();
        let job = move |key: &Key, pod: Option<Arc<Pod>>| {
            Ok(sender.send(pod.map_or(format!("{key} is gone"), |pod| pod_printer::line(&pod)))?)
        };
        let running = way.run(client, job, stop.clone());
        let story = async {
            assert_eq!(lines.recv().await.unwrap(), "default/first Pending");
            let running = json!({"status": {"phase": "Running"}});
            pods.patch_status("first", &PatchParams::default(), &Patch::Merge(running))
                .await
                .unwrap();
            assert_eq!(lines.recv().await.unwrap(), "default/first Running");
            pods.delete("first", &DeleteParams::default()).await.unwrap();
            assert_eq!(lines.recv().await.unwrap(), "default/first is gone");
            stop.cancel();
        };
        tokio::join!(running, story);
    });
}

#[test]
fn failing_job_is_tried_five_times_then_given_up_until_the_pod_changes() {
    WAYS.into_iter().for_each(failing_job_is_given_up);
}

fn failing_job_is_given_up(way: Way) {
    with_control_plane(async |client, stop| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        pods.create(&PostParams::default(), &pod("bad")).await.unwrap();
        let (sender, mut attempts) = mpsc::unbounded_channel();
        let job = move |_: &Key, _: Option<Arc<Pod>>| {
            sender.send(tokio::time::Instant::now())?;
            anyhow::bail!("no printer")
        };
        let running = way.run(client, job, stop.clone());
        let story = async {
            let mut at = Vec::new();
            for _ in 0..controller::ATTEMPTS_MAX {
                at.push(attempts.recv().await.unwrap());
            }
            let pauses: Vec<_> =
                at.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
            assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "pauses grow: {pauses:?} ms");
            // Paused time moves only when nothing else can happen: an hour of it is long enough to
            // see that there is no sixth.
            let more =
                tokio::time::timeout(std::time::Duration::from_secs(3600), attempts.recv()).await;
            assert!(more.is_err(), "it was given up");
            let label = json!({"metadata": {"labels": {"a": "b"}}});
            pods.patch("bad", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
            attempts.recv().await.unwrap();
            stop.cancel();
        };
        tokio::join!(running, story);
    });
}

#[tokio::test]
async fn bare_http_tells_the_same_story_as_the_controller() {
    let plane = ControlPlane::builder().simulated(1).build();
    let (server, client) = (plane.server().clone(), plane.client());
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let listener = Listener::insecure(server, ([127, 0, 0, 1], 0).into()).await.unwrap();
    let endpoint = Endpoint { url: format!("http://{}", listener.address()), token: None };
    tasks.spawn(listener.run(stop.clone()));
    tasks.spawn({
        let stop = stop.clone();
        async move { plane.run(stop).await.unwrap() }
    });
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("first")).await.unwrap();
    let (sender, mut lines) = mpsc::unbounded_channel();
    tasks.spawn({
        let stop = stop.clone();
        async move { bare::run(&endpoint, |line| sender.send(line).unwrap(), stop).await }
    });
    assert_eq!(lines.recv().await.unwrap(), "default/first Pending");
    let running = json!({"status": {"phase": "Running"}});
    pods.patch_status("first", &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
    assert_eq!(lines.recv().await.unwrap(), "default/first Running");
    pods.delete("first", &DeleteParams::default()).await.unwrap();
    // Nothing merges what comes close together: the mark is seen, and then the deletion.
    assert_eq!(lines.recv().await.unwrap(), "default/first Terminating");
    assert_eq!(lines.recv().await.unwrap(), "default/first is gone");
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}
