//! PodGroups, and the pods that belong to them.
//!
//! # Theory
//!
//! | a member is | because | it counts as |
//! |---|---|---|
//! | waiting | it has no node, and may be given one | there |
//! | absent | it has no node, and gates hold it back, or it is being deleted | there |
//! | held | a cycle gave it a node, and not enough others have one | there, placed |
//! | placed | it is on a node, or its binding is being written | there, placed |
//!
//! A gang is placed once as many of its pods are there as it needs at least, and bound once as many
//! are placed. The pods of a group are tried together, under one key of the queue.

use crate::labels::text;
use serde_json::Value;
use setpoint_runtime::Request;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a pod keeps its place while others of its gang have none: five minutes, as in
/// kube-scheduler.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(300);
/// What the key of a group begins with. No name of a pod has a slash.
const PREFIX: &str = "podgroup/";

/// What becomes of pods that belong to a PodGroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PodGroups {
    /// They are placed as all others.
    #[default]
    Ignored,
    /// The waiting pods of a group are tried together, each goes where it fits, and the group's
    /// status says whether one does: kube-scheduler's feature gate `GenericWorkload`. The server
    /// has to serve `scheduling.k8s.io/v1alpha2`: without that, no pod is placed.
    Together,
    /// Besides, they wait until their group exists, and those of a group with the policy `gang`
    /// go to nodes only when at least `minCount` of them can: kube-scheduler's feature gate
    /// `GangScheduling`. The server has to serve the same.
    Gangs,
}

/// The key of a group in the queue, by namespace and name.
pub(crate) fn key_of(namespace: &Arc<str>, name: &str) -> Request {
    Request::new(namespace.clone(), format!("{PREFIX}{name}"))
}

/// The group that a key of the queue is for, if it is for one.
pub(crate) fn group_of(key: &Request) -> Option<Request> {
    let name = key.name.strip_prefix(PREFIX)?;
    Some(Request::new(key.namespace.clone(), name))
}

/// The spec of a PodGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodGroup {
    uid: Arc<str>,
    /// The number of pods that a gang needs at least; zero if it is none.
    n_min: usize,
}

impl PodGroup {
    /// Reads a PodGroup.
    pub(crate) fn read(group: &Value) -> Self {
        let n_min = group["spec"]["schedulingPolicy"]["gang"]["minCount"].as_u64().unwrap_or(0);
        Self { uid: text(&group["metadata"]["uid"]).into(), n_min: n_min as usize }
    }
}

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Member {
    /// It waits, with its priority.
    Waiting(i32),
    /// It counts, and is not placed now.
    Absent,
    /// It has a place until then.
    Held(Instant),
    /// It has a node.
    Placed,
}

/// A group and its members.
#[derive(Debug, Default)]
struct Group {
    object: Option<PodGroup>,
    /// By the key of the pod, with the order in which they came.
    members: BTreeMap<Request, (u64, Member)>,
    /// Those that wait: the most important first, then those that came first.
    waiting: BTreeSet<(Reverse<i32>, u64, Request)>,
    held: BTreeMap<Request, Instant>,
    /// Number of pods that have a node.
    n_placed: usize,
    n_refusals: u32,
    /// End of the back-off.
    not_before: Option<Instant>,
}

impl Group {
    /// Sets what a member is, or forgets it.
    fn set(&mut self, pod: &Request, member: Option<(u64, Member)>) {
        match self.members.remove(pod) {
            Some((arrival, Member::Waiting(priority))) => {
                self.waiting.remove(&(Reverse(priority), arrival, pod.clone()));
            }
            Some((_, Member::Held(_))) => _ = self.held.remove(pod),
            Some((_, Member::Placed)) => self.n_placed -= 1,
            Some((_, Member::Absent)) | None => {}
        }
        let Some((arrival, member)) = member else { return };
        self.members.insert(pod.clone(), (arrival, member));
        match member {
            Member::Waiting(priority) => {
                self.waiting.insert((Reverse(priority), arrival, pod.clone()));
            }
            Member::Held(until) => _ = self.held.insert(pod.clone(), until),
            Member::Placed => self.n_placed += 1,
            Member::Absent => {}
        }
    }
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    policy: PodGroups,
    /// By the key of the queue.
    groups: BTreeMap<Request, Group>,
    /// The groups of pods.
    of_pods: BTreeMap<Request, Request>,
    /// Those that should be tried.
    woken: BTreeSet<Request>,
    n_arrivals: u64,
}

impl Groups {
    /// No groups yet.
    pub(crate) fn new(policy: PodGroups) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Whether pods are placed with their groups.
    pub(crate) fn are_heeded(&self) -> bool {
        self.policy != PodGroups::Ignored
    }

    /// Takes in a PodGroup, or its absence.
    pub(crate) fn put(&mut self, key: &Request, object: Option<PodGroup>) {
        let key = key_of(&key.namespace, &key.name);
        let group = self.groups.entry(key.clone()).or_default();
        if group.object == object {
            self.drop_empty(&key);
            return;
        }
        group.object = object;
        self.drop_empty(&key);
        self.wake(&key);
    }

    /// Takes in a member. A group with one that is new, or waits again, is tried at once.
    pub(crate) fn put_member(&mut self, key: &Request, pod: &Request, member: Member) {
        let before = self.set_member(key, pod, member);
        let was_waiting = matches!(before, Some(Member::Waiting(_)));
        if before.is_none() || matches!(member, Member::Waiting(_)) && !was_waiting {
            self.hurry(key);
        }
    }

    /// Sets what a member is; returns what it was.
    pub(crate) fn set_member(
        &mut self,
        key: &Request,
        pod: &Request,
        member: Member,
    ) -> Option<Member> {
        if self.of_pods.get(pod).is_some_and(|of| of != key) {
            self.remove_member(pod);
        }
        self.of_pods.insert(pod.clone(), key.clone());
        let group = self.groups.entry(key.clone()).or_default();
        let before = group.members.get(pod).copied();
        self.n_arrivals += u64::from(before.is_none());
        let arrival = before.map_or(self.n_arrivals, |(arrival, _)| arrival);
        group.set(pod, Some((arrival, member)));
        before.map(|(_, member)| member)
    }

    /// Forgets a pod, if it is a member.
    pub(crate) fn remove_member(&mut self, pod: &Request) {
        let Some(key) = self.of_pods.remove(pod) else { return };
        if let Some(group) = self.groups.get_mut(&key) {
            group.set(pod, None);
        }
        self.drop_empty(&key);
    }

    /// Lets a group be tried without back-off.
    pub(crate) fn hurry(&mut self, key: &Request) {
        if let Some(group) = self.groups.get_mut(key) {
            group.not_before = None;
        }
        self.wake(key);
    }

    fn drop_empty(&mut self, key: &Request) {
        let is_empty = |group: &Group| group.object.is_none() && group.members.is_empty();
        if self.groups.get(key).is_some_and(is_empty) {
            self.groups.remove(key);
            self.woken.remove(key);
        }
    }

    fn wake(&mut self, key: &Request) {
        if self.quorum(key).is_some() {
            self.woken.insert(key.clone());
        }
    }

    /// Whether groups should be tried.
    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// A group that should be tried.
    pub(crate) fn pop_woken(&mut self) -> Option<Request> {
        self.woken.pop_first()
    }

    /// How many pods of a group have to be placed; `None`: it is not to be tried, because it does
    /// not exist, or has too few pods.
    pub(crate) fn quorum(&self, key: &Request) -> Option<usize> {
        let group = self.groups.get(key)?;
        if self.policy != PodGroups::Gangs {
            return Some(0);
        }
        let n_min = group.object.as_ref()?.n_min;
        (group.members.len() >= n_min).then_some(n_min)
    }

    /// Whether there is the PodGroup, if that matters.
    pub(crate) fn exists(&self, key: &Request) -> bool {
        self.policy != PodGroups::Gangs
            || self.groups.get(key).is_some_and(|group| group.object.is_some())
    }

    /// The highest priority of the pods that wait; `None`: none does.
    pub(crate) fn priority(&self, key: &Request) -> Option<i32> {
        self.groups.get(key)?.waiting.first().map(|(Reverse(priority), ..)| *priority)
    }

    /// The pods that wait, the most important first, then those that came first.
    pub(crate) fn waiting(&self, key: &Request) -> Vec<Request> {
        let waiting = self.groups.get(key).into_iter().flat_map(|group| &group.waiting);
        waiting.map(|(_, _, pod)| pod.clone()).collect()
    }

    /// The number of pods that have a place.
    pub(crate) fn n_placed(&self, key: &Request) -> usize {
        self.groups.get(key).map_or(0, |group| group.n_placed + group.held.len())
    }

    /// At most `n_max` pods that have a place and are not bound, of those whose wait ends when
    /// `is_so` says.
    pub(crate) fn held(
        &self,
        key: &Request,
        is_so: impl Fn(Instant) -> bool,
        n_max: usize,
    ) -> Vec<Request> {
        let held = self.groups.get(key).into_iter().flat_map(|group| &group.held);
        let held = held.filter(|(_, until)| is_so(**until)).take(n_max);
        held.map(|(pod, _)| pod.clone()).collect()
    }

    /// When the first of such waits ends.
    pub(crate) fn first_end(&self, key: &Request) -> Option<Instant> {
        self.groups.get(key)?.held.values().min().copied()
    }

    /// The end of a group's back-off.
    pub(crate) fn not_before(&self, key: &Request) -> Option<Instant> {
        self.groups.get(key)?.not_before
    }

    /// Counts a cycle after which pods still wait, and starts the back-off that `after` says for
    /// that number of such cycles.
    pub(crate) fn back_off(
        &mut self,
        key: &Request,
        now: Instant,
        after: impl Fn(u32) -> Duration,
    ) {
        if let Some(group) = self.groups.get_mut(key) {
            group.n_refusals = group.n_refusals.saturating_add(1);
            group.not_before = Some(now + after(group.n_refusals));
        }
    }

    /// A group is not tried before then.
    pub(crate) fn pause(&mut self, key: &Request, until: Instant) {
        if let Some(group) = self.groups.get_mut(key) {
            group.not_before = Some(until);
        }
    }

    /// No pod of a group waits: the next ones begin without back-off.
    pub(crate) fn settle(&mut self, key: &Request) {
        if let Some(group) = self.groups.get_mut(key) {
            (group.n_refusals, group.not_before) = (0, None);
        }
    }
}

/// The condition `PodGroupScheduled` of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupCondition {
    pub(crate) is_true: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}
