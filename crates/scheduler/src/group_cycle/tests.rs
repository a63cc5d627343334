//! Groups of pods: a small cluster in, and who is bound or what is said out.

use super::*;
use crate::group::{PodGroup, PodGroups, key_of};
use crate::node::Node;
use crate::state::{Job, Kept, State};
use rand::SeedableRng;
use serde_json::{Value, json};
use setpoint_runtime::Request;
use std::time::Duration;
use tokio::time::Instant;

const WAITS: &str = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, one or more plugins asked to wait and no plugin rejected pod";

mod claims;

struct Cluster {
    state: State,
    generation: i64,
}

impl Cluster {
    fn new(policy: PodGroups, nodes: &[(&str, &str)]) -> Self {
        let state = State::with(SmallRng::seed_from_u64(1), policy);
        let mut cluster = Self { state, generation: 0 };
        nodes.iter().for_each(|(name, cpu)| cluster.node(name, cpu));
        cluster
    }

    fn node(&mut self, name: &str, cpu: &str) {
        let node = json!({
            "metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "100"}},
        });
        self.state.put_node(&name.into(), Some(Node::read(&node)));
    }

    fn group(&mut self, name: &str, policy: Value) {
        let group = json!({"metadata": {"uid": name}, "spec": {"schedulingPolicy": policy}});
        let group = Some(PodGroup::read(&group));
        self.state.put_group(&Request::new("default", name), group);
    }

    fn gang(&mut self, name: &str, n: u32) {
        self.group(name, json!({"gang": {"minCount": n}}));
    }

    /// Pods of a group that need a core; with a node, they are on it.
    fn pods(&mut self, group: &str, names: &[&str], spec: Value) {
        for name in names {
            self.generation += 1;
            let mut pod = json!({
                "metadata": {
                    "name": name, "namespace": "default", "uid": name,
                    "generation": self.generation,
                },
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            });
            for (key, value) in spec.as_object().unwrap() {
                match key.as_str() {
                    "deletionTimestamp" => pod["metadata"][key] = value.clone(),
                    _ => pod["spec"][key] = value.clone(),
                }
            }
            if !group.is_empty() {
                pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
            }
            self.state.put_pod(Pod::read(&pod, None), "default-scheduler");
        }
    }

    /// The groups that are handed out.
    fn woken(&mut self) -> Vec<String> {
        let woken = self.state.take_woken(10, Instant::now());
        woken.iter().map(|retry| retry.key.name.to_string()).collect()
    }

    fn decide(&mut self, group: &str) -> Option<GroupDecision> {
        let begun = self.state.begin_group(&key_of(&"default".into(), group), Instant::now())?;
        let mut rng = SmallRng::seed_from_u64(7);
        let mut decision =
            GroupDecision::new(self.state.view.clone(), begun, self.state.first.clone());
        while !decision.step(&mut rng) {}
        Some(decision)
    }

    fn end(&mut self, group: &str, decision: GroupDecision) -> Kept {
        let (key, now) = (key_of(&"default".into(), group), Instant::now());
        let ended = decision.end();
        if !self.state.hold_all(&ended.places, now) {
            self.state.take_back_all(&ended.places);
            return Kept::None;
        }
        let kept = self.state.kept(&key);
        if kept == Kept::All && !ended.places.is_empty() {
            while !self.state.release_some(&key, 2, now).is_empty() {}
        }
        self.state.refuse_members(&ended.refused);
        self.state.end_group(&key, ended, now);
        kept
    }

    /// What is to be written after a cycle; empty without one.
    fn cycle(&mut self, group: &str) -> Vec<String> {
        let Some(decision) = self.decide(group) else { return Vec::new() };
        self.end(group, decision);
        let group = key_of(&"default".into(), group);
        let names: Vec<Request> = self.state.job_keys();
        let mut said: Vec<String> = Vec::new();
        for key in names {
            said.push(match self.state.job(&key) {
                Some(Job::Bind { pod, .. }) => format!("{} on {}", key.name, pod.node),
                Some(Job::Refuse { message, preempted, .. }) => match preempted {
                    Some(candidate) => format!(
                        "{} waits for {} ({} leave): {message}",
                        key.name,
                        candidate.node,
                        candidate.victims.len()
                    ),
                    None => format!("{}: {message}", key.name),
                },
                Some(Job::Say(condition)) if key == group => {
                    format!("{} {}", condition.reason, condition.message)
                }
                Some(Job::Say(_)) | None => continue,
            });
        }
        self.state.forget_jobs();
        said
    }
}

#[tokio::test(start_paused = true)]
async fn gang_is_bound_as_soon_as_all_fit_and_not_before() {
    let mut cluster = Cluster::new(PodGroups::Gangs, &[("a", "2")]);
    cluster.pods("g", &["p", "q"], json!({}));
    assert!(cluster.woken().is_empty() && cluster.cycle("g").is_empty(), "there is no group");
    cluster.gang("g", 3);
    assert!(cluster.woken().is_empty() && cluster.cycle("g").is_empty(), "a pod is missing");
    cluster.pods("g", &["r"], json!({}));
    assert_eq!(cluster.woken(), ["podgroup/g"]);
    let full = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    let none = [
        format!("p: {WAITS}"),
        "Unschedulable pod group is unschedulable".to_owned(),
        format!("q: {WAITS}"),
        format!("r: {full}"),
    ];
    assert_eq!(cluster.cycle("g"), none);
    assert_eq!(cluster.state.view.nodes["a"].n_pods(), 0, "no place is kept");
    // Again only after the back-off, which doubles.
    cluster.node("b", "1");
    assert!(cluster.cycle("g").is_empty());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(cluster.cycle("g"), ["p on a", "Scheduled ", "q on a", "r on b"]);
    assert!(cluster.cycle("g").is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_beyond_the_minimum_wait_alone() {
    let mut cluster = Cluster::new(PodGroups::Gangs, &[("a", "3")]);
    cluster.gang("g", 3);
    cluster.pods("g", &["p1", "p2", "p3"], json!({}));
    cluster.pods("g", &["first"], json!({"priority": 1}));
    let said = cluster.cycle("g");
    assert_eq!(said[..3], ["first on a", "p1 on a", "p2 on a"]);
    assert!(said[3].starts_with("p3: 0/1 nodes are available: 1 Insufficient cpu."), "{said:?}");
    assert_eq!(said[4], "Scheduled ");
    // Two that are placed count for one that comes in place of another.
    cluster.state.remove_pod(&Request::new("default", "p1"));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(cluster.cycle("g"), ["p3 on a", "Scheduled "]);
}

#[tokio::test(start_paused = true)]
async fn two_gangs_that_fit_one_by_one_do_not_block_each_other() {
    let mut cluster = Cluster::new(PodGroups::Gangs, &[("a", "2"), ("b", "2")]);
    for name in ["g", "h"] {
        cluster.gang(name, 3);
    }
    for n in 0..3 {
        for group in ["g", "h"] {
            cluster.pods(group, &[&format!("{group}{n}")], json!({}));
        }
    }
    assert_eq!(cluster.woken(), ["podgroup/g", "podgroup/h"]);
    assert_eq!(cluster.cycle("g").len(), 4);
    let said = cluster.cycle("h");
    assert!(said.iter().all(|line| !line.contains(" on ")), "{said:?}");
    assert_eq!(cluster.state.view.nodes.values().map(|node| node.n_pods()).sum::<i64>(), 3);
    cluster.state.remove_pod(&Request::new("default", "g1"));
    cluster.state.remove_pod(&Request::new("default", "g2"));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(cluster.cycle("h").iter().filter(|line| line.contains(" on ")).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn nobody_leaves_for_a_gang_that_does_not_fit_even_then() {
    let mut cluster = Cluster::new(PodGroups::Gangs, &[("a", "2")]);
    cluster.pods("", &["low"], json!({"nodeName": "a", "priority": 0}));
    cluster.pods("", &["even"], json!({"nodeName": "a", "priority": 5}));
    cluster.gang("g", 2);
    cluster.pods("g", &["p", "q"], json!({"priority": 5}));
    let said = cluster.cycle("g");
    assert_eq!(said[0], format!("p: {WAITS}"));
    assert!(said[2].starts_with("q: 0/1 nodes are available"), "{said:?}");
    cluster.state.remove_pod(&Request::new("default", "even"));
    tokio::time::advance(Duration::from_secs(1)).await;
    let said = cluster.cycle("g");
    assert_eq!(
        said[..2],
        [
            "p waits for a (0 leave): pod group is unschedulable, pod group is waiting for preemption to complete",
            "Unschedulable pod group is unschedulable, pod group is waiting for preemption to complete",
        ]
    );
    assert!(said[2].starts_with("q waits for a (1 leave): 0/1 nodes are available"), "{said:?}");
    // Others do not get the room meanwhile.
    cluster.state.remove_pod(&Request::new("default", "low"));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(cluster.cycle("g"), ["p on a", "Scheduled ", "q on a"]);
}

#[tokio::test(start_paused = true)]
async fn members_behind_gates_and_members_that_leave_count_and_are_not_placed() {
    let mut cluster = Cluster::new(PodGroups::Gangs, &[("a", "8")]);
    cluster.gang("g", 3);
    cluster.pods("g", &["p", "q"], json!({}));
    cluster.pods("g", &["gated"], json!({"schedulingGates": [{"name": "x"}]}));
    assert_eq!(cluster.woken(), ["podgroup/g"]);
    let said = cluster.cycle("g");
    assert_eq!(said[0], format!("p: {WAITS}"));
    assert_eq!(said.len(), 3, "{said:?}");
    // Without its gates it is tried with the others at once.
    cluster.pods("g", &["gated"], json!({}));
    assert_eq!(cluster.woken(), ["podgroup/g"]);
    cluster.pods("g", &["q"], json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}));
    assert_eq!(cluster.cycle("g").len(), 3);
    cluster.state.remove_pod(&Request::new("default", "q"));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(cluster.cycle("g").is_empty(), "two are left");
    cluster.pods("g", &["r"], json!({}));
    assert_eq!(cluster.cycle("g").iter().filter(|line| line.contains(" on ")).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn others_keep_their_places_for_five_minutes_when_a_member_is_gone_before_they_are_bound() {
    let mut cluster = Cluster::new(PodGroups::Gangs, &[("a", "3")]);
    cluster.gang("g", 3);
    for comes in [true, false] {
        cluster.pods("g", &["p", "q", "r"], json!({}));
        let decision = cluster.decide("g").unwrap();
        cluster.state.remove_pod(&Request::new("default", "r"));
        assert_eq!(cluster.end("g", decision), Kept::Waiting);
        assert_eq!(cluster.state.view.nodes["a"].n_pods(), 2);
        cluster.state.forget_jobs();
        if comes {
            cluster.pods("g", &["r"], json!({}));
            assert_eq!(cluster.cycle("g"), ["p on a", "Scheduled ", "q on a", "r on a"]);
            for name in ["p", "q", "r"] {
                cluster.state.remove_pod(&Request::new("default", name));
            }
        }
    }
    let key = key_of(&"default".into(), "g");
    let wait = Duration::from_secs(300);
    assert_eq!(cluster.state.group_waits(&key, Instant::now()), Some(wait));
    // One of them leaves, too.
    cluster.pods("g", &["q"], json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}));
    assert_eq!(cluster.state.view.nodes["a"].n_pods(), 1);
    tokio::time::advance(wait).await;
    let pod = Request::new("default", "p");
    assert_eq!(cluster.state.expire_held(&key, 10, Instant::now()), [(pod.clone(), 0)]);
    let Some(Job::Refuse { message, .. }) = cluster.state.job(&pod) else { panic!("it is told") };
    assert_eq!(
        message,
        "0/1 nodes are available: 1 rejected due to timeout after waiting 5m0s at plugin GangScheduling."
    );
    assert!(
        !cluster.state.view.nodes.contains_key("a") || cluster.state.view.nodes["a"].n_pods() == 0
    );
}

#[tokio::test(start_paused = true)]
async fn places_are_taken_back_if_a_node_has_filled_meanwhile() {
    let mut cluster = Cluster::new(PodGroups::Gangs, &[("a", "3")]);
    cluster.gang("g", 3);
    cluster.pods("g", &["p", "q", "r"], json!({}));
    let decision = cluster.decide("g").unwrap();
    cluster.pods("", &["other"], json!({"nodeName": "a"}));
    assert_eq!(cluster.end("g", decision), Kept::None);
    assert_eq!(cluster.state.view.nodes["a"].n_pods(), 1);
    cluster.state.remove_pod(&Request::new("default", "other"));
    assert_eq!(cluster.cycle("g").iter().filter(|line| line.contains(" on ")).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_policies_go_where_they_fit() {
    // Of a basic group, and with the gate of groups only also of a gang.
    for policy in [PodGroups::Gangs, PodGroups::Together] {
        let mut cluster = Cluster::new(policy, &[("a", "1")]);
        cluster.pods("g", &["p", "q"], json!({}));
        match policy {
            PodGroups::Gangs => {
                assert!(cluster.cycle("g").is_empty(), "there is no group");
                cluster.group("g", json!({"basic": {}}));
            }
            _ => cluster.gang("g", 2),
        }
        assert_eq!(cluster.woken(), ["podgroup/g"]);
        let said = cluster.cycle("g");
        assert_eq!(said[..2], ["p on a", "Scheduled "].map(str::to_owned));
        assert!(said[2].starts_with("q: 0/1 nodes are available"), "{said:?}");
        tokio::time::advance(Duration::from_secs(1)).await;
        let said = cluster.cycle("g");
        assert_eq!(said[0], "Unschedulable pod group is unschedulable");
    }
    let mut cluster = Cluster::new(PodGroups::Ignored, &[("a", "1")]);
    cluster.gang("g", 2);
    cluster.pods("g", &["p"], json!({}));
    assert!(cluster.woken().is_empty());
    assert!(cluster.state.begin(&Request::new("default", "p")).is_some());
}

#[tokio::test(start_paused = true)]
async fn binding_that_fails_lets_its_pod_be_tried_with_the_placed_ones_counted() {
    let mut cluster = Cluster::new(PodGroups::Gangs, &[("a", "2")]);
    cluster.gang("g", 2);
    cluster.pods("g", &["p", "q"], json!({}));
    assert_eq!(cluster.cycle("g").len(), 3);
    let pod = cluster.state.pod(&Request::new("default", "q")).unwrap();
    let retry = cluster.state.forget(&pod, Instant::now()).unwrap();
    assert_eq!((&*retry.key.name, retry.after), ("podgroup/g", Duration::from_secs(1)));
    tokio::time::advance(retry.after).await;
    assert_eq!(cluster.cycle("g"), ["Scheduled ", "q on a"]);
}
