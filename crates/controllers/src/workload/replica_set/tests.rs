//! The order of deletion.

use super::Pod;
use super::rank::{compare, sort};
use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

const NOW: Timestamp = Timestamp(Duration::from_secs(1_800_000_000));

/// A pod that has been ready, and created, `age` seconds ago.
fn pod(uid: &str, node: &str, phase: &str, ready: Option<u64>, age: u64) -> Value {
    let at = |age: u64| Timestamp(NOW.0 - Duration::from_secs(age)).rfc3339();
    let conditions = match ready {
        Some(ready) => {
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(ready)}])
        }
        None => json!([{"type": "Ready", "status": "False", "lastTransitionTime": at(age)}]),
    };
    json!({
        "metadata": {"name": uid, "uid": uid, "creationTimestamp": at(age)},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": conditions},
    })
}

fn order(pods: &[Value], by_node: &[(&str, usize)]) -> Vec<String> {
    let pods: Vec<Pod> =
        pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect();
    let mut sorted: Vec<&Pod> = pods.iter().collect();
    let by_node = by_node.iter().map(|(node, n)| ((*node).to_owned(), *n)).collect();
    sort(&mut sorted, &by_node, NOW);
    sorted.iter().map(|pod| pod.name().to_owned()).collect()
}

#[test]
fn criteria_count_in_the_order_of_the_reference() {
    let mut cheap = pod("cheap", "n", "Running", Some(5), 10);
    cheap["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "-1"});
    let mut restarted = pod("restarted", "n", "Running", Some(5000), 100_000);
    restarted["status"]["containerStatuses"] = json!([{"restartCount": 2}, {"restartCount": 7}]);
    let pods = [
        pod("old", "n", "Running", Some(5000), 100_000),
        restarted,
        pod("crowded", "m", "Running", Some(5000), 100_000),
        pod("just-ready", "n", "Running", Some(5), 100_000),
        cheap,
        pod("unready", "n", "Running", None, 100_000),
        pod("unknown", "n", "Unknown", None, 100_000),
        pod("pending", "n", "Pending", None, 100_000),
        pod("unassigned", "", "Pending", None, 100_000),
    ];
    let expected = [
        "unassigned",
        "pending",
        "unknown",
        "unready",
        "cheap",
        "crowded",
        "just-ready",
        "restarted",
        "old",
    ];
    assert_eq!(order(&pods, &[("n", 1), ("m", 2)]), expected);
}

#[test]
fn ages_of_the_same_magnitude_are_decided_by_uid() {
    // 70,000 and 60,000 s have the same logarithm in nanoseconds; 20,000 s has not.
    let pods = [
        pod("c", "n", "Running", Some(65_000), 70_000),
        pod("b", "n", "Running", Some(60_000), 70_000),
        pod("z", "n", "Running", Some(20_000), 70_000),
    ];
    assert_eq!(order(&pods, &[]), ["z", "b", "c"]);
}

fn any_pod() -> impl Strategy<Value = Value> {
    let phase = prop::sample::select(vec!["Pending", "Running", "Unknown", ""]);
    let node = prop::sample::select(vec!["", "n", "m"]);
    let ready = prop::option::of(0_u64..200_000);
    ("[a-f]{1,2}", node, phase, ready, 0_u64..200_000)
        .prop_map(|(uid, node, phase, ready, age)| pod(&uid, node, phase, ready, age))
}

proptest! {
    /// Sorting needs a total order.
    #[test]
    fn order_is_total(pods in prop::collection::vec(any_pod(), 3)) {
        let pods: Vec<Pod> =
            pods.into_iter().map(|pod| serde_json::from_value(pod).unwrap()).collect();
        let by_node = HashMap::from([("n".to_owned(), 1)]);
        let cmp = |a: usize, b: usize| compare(&pods[a], &pods[b], &by_node, NOW);
        prop_assert_eq!(cmp(0, 1), cmp(1, 0).reverse());
        if cmp(0, 1).is_le() && cmp(1, 2).is_le() {
            prop_assert_ne!(cmp(0, 2), Ordering::Greater);
        }
    }
}
