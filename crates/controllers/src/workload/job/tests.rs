//! Decisions about Jobs.

use super::backoff::Backoff;
use super::object::Job;
use super::state::{FINALIZER, INDEX, Plan, State};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn job(spec: Value, status: Value) -> Job {
    let job = json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": spec, "status": status});
    serde_json::from_value(job).unwrap()
}

/// Pods as words: a phase's first letter, `+` if ready, `x` if being deleted, `-` if counted, and
/// an index.
fn pods(text: &str) -> Vec<Pod> {
    let pod = |(n, word): (usize, &str)| {
        let phase = match word.chars().next() {
            Some('R') => "Running",
            Some('S') => "Succeeded",
            Some('F') => "Failed",
            _ => "Pending",
        };
        let index: String = word.chars().filter(char::is_ascii_digit).collect();
        let mut pod = json!({
            "metadata": {"name": format!("p{n}"), "uid": n.to_string(), "annotations": {}},
            "status": {"phase": phase},
        });
        let meta = &mut pod["metadata"];
        if !word.contains('-') {
            meta["finalizers"] = json!([FINALIZER]);
        }
        if word.contains('x') {
            meta["deletionTimestamp"] = NOW.rfc3339().into();
        }
        if !index.is_empty() {
            meta["annotations"][INDEX] = index.into();
        }
        if word.contains('+') {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        }
        serde_json::from_value(pod).unwrap()
    };
    text.split_whitespace().enumerate().map(pod).collect()
}

/// The plan for pods, as text.
fn plan(spec: Value, status: Value, text: &str) -> String {
    let (job, pods) = (job(spec, status), pods(text));
    let state = State::new(&job, pods.iter().collect(), Backoff::default());
    match state.plan(NOW) {
        Plan::Keep => "keep".to_owned(),
        Plan::Wait(wait) => format!("wait {}", wait.as_secs()),
        Plan::Delete(pods) => {
            let names = pods.iter().map(|pod| pod.metadata.name.clone().unwrap());
            format!("delete {}", names.collect::<Vec<_>>().join(" "))
        }
        Plan::Create(indexes) => {
            let index =
                |index: &Option<i32>| index.map_or("-".to_owned(), |index| index.to_string());
            format!("create {}", indexes.iter().map(index).collect::<Vec<_>>().join(" "))
        }
    }
}

#[test]
fn number_of_pods_follows_parallelism_and_what_is_left() {
    let spec = json!({"parallelism": 3, "completions": 5});
    for (status, pods, expected) in [
        (json!({}), "", "create - - -"),
        (json!({}), "R P", "create -"),
        (json!({}), "R R R", "keep"),
        (json!({"succeeded": 3}), "", "create - -"),
        (json!({"succeeded": 3}), "S S", "keep"),
        (json!({"succeeded": 3}), "S- S-", "create - -"),
        (json!({"succeeded": 4}), "R+ R P", "delete p2 p1"),
        // Pods that are being deleted have failed, and new ones wait for the delay.
        (json!({}), "Rx Rx R", "wait 20"),
    ] {
        assert_eq!(plan(spec.clone(), status.clone(), pods), expected, "{pods} {status}");
    }
    // One success is enough.
    let spec = json!({"parallelism": 3});
    assert_eq!(plan(spec.clone(), json!({}), "R S"), "keep");
    assert_eq!(plan(spec, json!({}), "R"), "create - -");
    let spec = json!({"parallelism": 2, "completions": 2, "suspend": true});
    assert_eq!(plan(spec, json!({}), "R+ P"), "delete p1 p0");
    let spec = json!({"parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed"});
    assert_eq!(plan(spec, json!({}), "Rx R"), "keep");
}

#[test]
fn each_index_has_one_pod() {
    let spec = json!({"parallelism": 3, "completions": 5, "completionMode": "Indexed"});
    for (status, pods, expected) in [
        (json!({}), "", "create 0 1 2"),
        (json!({}), "R1", "create 0 2"),
        (json!({"completedIndexes": "0-2", "succeeded": 3}), "", "create 3 4"),
        (json!({}), "S0 R2", "create 1 3"),
        // A second pod of an index, one out of range, one without an index.
        (json!({}), "R+1 R1 R2", "delete p1"),
        (json!({}), "R7 R0 R1", "delete p0"),
        (json!({}), "R R0 R1", "delete p0"),
    ] {
        assert_eq!(plan(spec.clone(), status.clone(), pods), expected, "{pods} {status}");
    }
    let spec = json!({
        "parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
    });
    assert_eq!(plan(spec, json!({"failedIndexes": "1"}), "R0"), "create 2 3");
}

#[test]
fn failed_pods_delay_the_next_ones() {
    let job = job(json!({"parallelism": 1, "completions": 1}), json!({}));
    let mut pods = pods("F");
    let ready = json!([{
        "type": "Ready", "status": "False", "lastTransitionTime": Timestamp::from_secs(999_997).rfc3339(),
    }]);
    pods[0].status.as_mut().unwrap().conditions = serde_json::from_value(ready).unwrap();
    let state = State::new(&job, pods.iter().collect(), Backoff::default());
    assert_eq!(state.plan(NOW), Plan::Wait(Duration::from_secs(7)));
}

/// The reason of the verdict, or nothing.
fn verdict(spec: Value, status: Value, text: &str) -> String {
    let (job, pods) = (job(spec, status), pods(text));
    let state = State::new(&job, pods.iter().collect(), Backoff::default());
    let end = state.verdict(NOW);
    end.map_or(String::new(), |end| format!("{} {}", end.type_, end.reason.unwrap_or_default()))
}

#[test]
fn limits_and_earlier_verdicts_end_a_job() {
    let limit = json!({"backoffLimit": 1, "completions": 1});
    assert_eq!(verdict(limit.clone(), json!({}), "F"), "");
    assert_eq!(verdict(limit.clone(), json!({}), "F F"), "FailureTarget BackoffLimitExceeded");
    // A pod that was counted does not count again.
    assert_eq!(verdict(limit.clone(), json!({"failed": 1}), "F-"), "");
    let uncounted = json!({"failed": 0, "uncountedTerminatedPods": {"failed": ["0", "9"]}});
    assert_eq!(verdict(limit.clone(), uncounted, "F"), "FailureTarget BackoffLimitExceeded");
    let target = json!({"conditions": [{"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}]});
    assert_eq!(verdict(limit, target, ""), "Failed DeadlineExceeded");
    let deadline = json!({"activeDeadlineSeconds": 10, "completions": 1});
    let started = |ago: u64| json!({"startTime": Timestamp::from_secs(1_000_000 - ago).rfc3339()});
    assert_eq!(verdict(deadline.clone(), started(9), "R"), "");
    assert_eq!(verdict(deadline, started(10), "R"), "FailureTarget DeadlineExceeded");
}

#[test]
fn pods_are_counted_in_three_steps() {
    let job = job(json!({"completions": 3, "parallelism": 3}), json!({"succeeded": 1}));
    let pods = pods("S F R S-");
    let state = State::new(&job, pods.iter().collect(), Backoff::default());
    let tracked = state.track(job.status.clone(), None, NOW);
    let uncounted = tracked.status.uncounted_terminated_pods.clone().unwrap();
    assert_eq!(uncounted.succeeded, Some(vec!["0".to_owned()]));
    assert_eq!(uncounted.failed, Some(vec!["1".to_owned()]));
    assert_eq!(tracked.status.succeeded, Some(1));
    assert_eq!(tracked.release.len(), 2);
    // Only one finalizer could be removed.
    let mut status = tracked.status.clone();
    assert_eq!(tracked.count(&mut status, &["0".to_owned()].into(), NOW), None);
    assert_eq!((status.succeeded, status.failed), (Some(2), None));
    let uncounted = status.uncounted_terminated_pods.unwrap();
    assert_eq!((uncounted.succeeded, uncounted.failed), (None, Some(vec!["1".to_owned()])));
}
