//! Pods of groups: which are tried together, and which are bound.

use super::{Assumed, BACKOFF_MIN, Job, Retry, State, backoff};
use crate::cycle::Refused;
use crate::group::{self, GroupCondition, HELD_MAX, Member, PodGroup};
use crate::group_cycle::{Begun, Ended, Place};
use crate::plugins::claims;
use crate::pod::Pod;
use setpoint_runtime::Request;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What follows from what the pods of a group got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Enough have a place: all that are held are to be bound.
    All,
    /// Some are gone: the others keep their places until a deadline.
    Waiting,
    /// Nodes have changed: the places were taken back.
    None,
}

impl State {
    /// The key of the group that a pod is placed with.
    pub(super) fn group_key(&self, pod: &Pod) -> Option<Request> {
        let name = pod.spec.group.as_ref().filter(|_| self.groups.are_heeded())?;
        Some(group::key_of(&pod.key.namespace, name))
    }

    /// Takes in a PodGroup, or its absence.
    pub(crate) fn put_group(&mut self, key: &Request, object: Option<PodGroup>) {
        self.groups.put(key, object);
    }

    /// Takes in what has become of a member. `is_absent`: it counts although it is not known.
    pub(super) fn update_member(
        &mut self,
        group: &Request,
        key: &Request,
        is_absent: bool,
        must_try: bool,
    ) {
        let member = match self.pods.get(key) {
            Some(entry) if entry.held.is_some() => return,
            Some(entry) if !entry.pod.node.is_empty() => Member::Placed,
            Some(entry) if entry.pod.spec.is_gated => Member::Absent,
            Some(entry) => Member::Waiting(entry.pod.spec.priority),
            None if is_absent => Member::Absent,
            None => {
                self.groups.remove_member(key);
                return;
            }
        };
        self.groups.put_member(group, key, member);
        if must_try {
            self.groups.hurry(group);
        }
    }

    /// When to hand a group out again.
    pub(super) fn retry_group(&self, key: &Request, now: Instant) -> Option<Retry> {
        let priority = self.groups.priority(key)?;
        let until = self.groups.not_before(key);
        let after = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        Some(Retry { key: key.clone(), priority, after })
    }

    /// How long to wait for a group that is not ready: until the end of its back-off, or until its
    /// pods have kept their places long enough. `None`: nothing is waited for.
    pub(crate) fn group_waits(&self, key: &Request, now: Instant) -> Option<Duration> {
        let held = self.groups.first_end(key);
        let retry = self.groups.quorum(key).and_then(|_| self.retry_group(key, now));
        let held = held.map(|until| until.saturating_duration_since(now));
        held.into_iter().chain(retry.map(|retry| retry.after)).min()
    }

    /// Takes back at most `n_max` places that were kept long enough. Returns the pods, which have
    /// to be told, with their priorities.
    pub(crate) fn expire_held(
        &mut self,
        key: &Request,
        n_max: usize,
        now: Instant,
    ) -> Vec<(Request, i32)> {
        let mut told = Vec::new();
        for pod in self.groups.held(key, |until| until <= now, n_max) {
            self.take_back_held(&pod);
            let Some(waiting) = self.pod(&pod) else { continue };
            told.push((pod, waiting.spec.priority));
            let seconds = HELD_MAX.as_secs();
            let time = format!("{}m{}s", seconds / 60, seconds % 60);
            let message = format!(
                "0/1 nodes are available: 1 rejected due to timeout after waiting {time} at plugin GangScheduling."
            );
            self.say(Pod::clone(&waiting), Refused { message, ..Refused::default() });
        }
        if !told.is_empty() {
            self.groups.back_off(key, now, backoff);
        }
        told
    }

    fn take_back_held(&mut self, key: &Request) {
        let Some(pod) = self.pod(key) else { return };
        self.forget_devices(&pod);
        self.take_back(key);
    }

    /// The pods of a group for a cycle that begins now, if it is ready.
    pub(crate) fn begin_group(&self, key: &Request, now: Instant) -> Option<Begun> {
        let quorum = self.groups.quorum(key)?;
        if self.groups.not_before(key).is_some_and(|until| until > now) {
            return None;
        }
        let waiting = self.groups.waiting(key);
        let waiting = waiting.iter().filter(|pod| self.waits(pod));
        let pods: Vec<Pod> =
            waiting.filter_map(|pod| Some(Pod::clone(&self.pods.get(pod)?.pod))).collect();
        let n_placed = self.groups.n_placed(key);
        let held = self.groups.held(key, |_| true, usize::MAX);
        let held = held.iter().filter_map(|pod| self.pods.get(pod));
        let claims = held.flat_map(|entry| claims::keys(&entry.pod)).collect();
        (!pods.is_empty()).then_some(Begun { pods, n_placed, quorum, claims })
    }

    /// Gives some pods of a group the places that a cycle chose. They keep them until all are
    /// placed. False: a node has changed meanwhile.
    pub(crate) fn hold_all(&mut self, places: &[Place], now: Instant) -> bool {
        let until = now + HELD_MAX;
        places
            .iter()
            .all(|place| self.hold(&place.cycle, &place.node, until) != Assumed::NoLongerFits)
    }

    /// Takes the places back that a cycle has chosen.
    pub(crate) fn take_back_all(&mut self, places: &[Place]) {
        for place in places {
            let key = &place.cycle.pod.key;
            let entry = self.pods.get(key);
            if entry
                .is_some_and(|entry| entry.held.is_some() && entry.pod.uid == place.cycle.pod.uid)
            {
                self.take_back_held(key);
            }
        }
    }

    /// What follows once all places of a cycle are held.
    pub(crate) fn kept(&self, key: &Request) -> Kept {
        match self.groups.quorum(key) {
            Some(quorum) if self.groups.n_placed(key) >= quorum => Kept::All,
            Some(_) => Kept::Waiting,
            None if self.groups.exists(key) => Kept::Waiting,
            None => Kept::None,
        }
    }

    /// Lets at most `n_max` held pods of a group be bound. Returns them, with their priorities.
    pub(crate) fn release_some(
        &mut self,
        key: &Request,
        n_max: usize,
        now: Instant,
    ) -> Vec<(Request, i32)> {
        let held = self.groups.held(key, |_| true, n_max).into_iter();
        let released = held.filter_map(|pod| {
            let priority = self.release(&pod, now)?;
            Some((pod, priority))
        });
        released.collect()
    }

    /// Notes why pods of a group go on waiting. Returns those that have to be told, with their
    /// priorities.
    pub(crate) fn refuse_members(&mut self, refused: &[(Pod, Refused)]) -> Vec<(Request, i32)> {
        let mut told = Vec::new();
        for (pod, refused) in refused {
            if self.is_current(pod) {
                told.push((pod.key.clone(), pod.spec.priority));
                self.say(pod.clone(), refused.clone());
            }
        }
        told
    }

    /// Takes in how a cycle about a group has ended.
    pub(crate) fn end_group(&mut self, key: &Request, ended: Ended, now: Instant) {
        let Ended { refused, condition, .. } = ended;
        let is_early = refused.iter().any(|(_, refused)| refused.is_early);
        match (refused.is_empty(), is_early) {
            (true, _) => self.groups.settle(key),
            // Claims that are on their way are waited for without a longer back-off.
            (false, true) => self.groups.pause(key, now + BACKOFF_MIN),
            (false, false) => self.groups.back_off(key, now, backoff),
        }
        self.jobs.insert(key.clone(), Job::Say(Arc::new(condition)));
    }

    /// Removes a condition that was written, unless another one has replaced it.
    pub(crate) fn finish_group(&mut self, key: &Request, written: &Arc<GroupCondition>) {
        let is_it = |job: &Job| matches!(job, Job::Say(said) if Arc::ptr_eq(said, written));
        if self.jobs.get(key).is_some_and(is_it) {
            self.jobs.remove(key);
        }
    }
}
