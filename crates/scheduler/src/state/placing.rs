//! Giving nodes to pods, and taking them back.

use super::{Job, Retry, State, backoff};
use crate::cycle::Cycle;
use crate::group::Member;
use crate::placing::{Binding, place_in};
use crate::pod::Pod;
use setpoint_runtime::Request;
use std::sync::Arc;
use tokio::time::Instant;

/// The result of [`State::assume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assumed {
    /// The pod is on the node.
    Yes,
    /// The node has changed since the snapshot.
    NoLongerFits,
    /// The pod has changed or gone since the snapshot.
    Obsolete,
}

impl Binding {
    fn job(self, since: Instant) -> Job {
        let Self { pod, placed, grants } = self;
        Job::Bind { pod, since, placed, grants }
    }
}

impl State {
    /// Places the pod of a cycle, if it still fits. Its binding becomes a job.
    pub(crate) fn assume(&mut self, cycle: &Cycle, node: &Arc<str>, now: Instant) -> Assumed {
        match self.occupy(cycle, node, false) {
            Ok(binding) => {
                self.jobs.insert(cycle.pod.key.clone(), binding.job(now));
                Assumed::Yes
            }
            Err(why) => why,
        }
    }

    /// The same for a pod of a group, whose binding waits for [`release`](Self::release) until
    /// then.
    pub(super) fn hold(&mut self, cycle: &Cycle, node: &Arc<str>, until: Instant) -> Assumed {
        let binding = match self.occupy(cycle, node, true) {
            Ok(binding) => binding,
            Err(why) => return why,
        };
        let key = &cycle.pod.key;
        if let Some(group) = self.group_key(&cycle.pod) {
            self.groups.set_member(&group, key, Member::Held(until));
        }
        if let Some(entry) = self.pods.get_mut(key) {
            entry.held = Some(binding);
        }
        Assumed::Yes
    }

    /// Lets a pod that is held be bound. Returns its priority if it was.
    pub(super) fn release(&mut self, key: &Request, now: Instant) -> Option<i32> {
        let binding = self.pods.get_mut(key)?.held.take()?;
        let priority = binding.pod.spec.priority;
        if let Some(group) = self.group_key(&binding.pod) {
            self.groups.set_member(&group, key, Member::Placed);
        }
        self.jobs.insert(key.clone(), binding.job(now));
        Some(priority)
    }

    fn occupy(
        &mut self,
        cycle: &Cycle,
        node: &Arc<str>,
        is_again: bool,
    ) -> Result<Binding, Assumed> {
        if !self.is_current(&cycle.pod) {
            return Err(Assumed::Obsolete);
        }
        let binding = place_in(&mut self.view, cycle, node, is_again);
        let Some(binding) = binding else { return Err(Assumed::NoLongerFits) };
        let key = &cycle.pod.key;
        self.forget_nomination(key);
        if let Some(entry) = self.pods.get_mut(key) {
            (entry.pod, entry.is_assumed) = (binding.pod.clone(), true);
        }
        Ok(binding)
    }

    /// The server has not assigned an assumed pod: it waits again.
    pub(crate) fn forget(&mut self, pod: &Pod, now: Instant) -> Option<Retry> {
        self.forget_devices(pod);
        let entry = self.pods.get_mut(&pod.key)?;
        if !entry.is_assumed || entry.pod.uid != pod.uid {
            return None;
        }
        entry.n_refusals += 1;
        entry.not_before = Some(now + backoff(entry.n_refusals));
        self.take_back(&pod.key);
        match self.group_key(pod) {
            Some(group) => {
                self.groups.back_off(&group, now, backoff);
                self.retry_group(&group, now)
            }
            None => self.retry(&pod.key, now),
        }
    }

    /// Takes the place of an assumed pod: it waits.
    pub(super) fn take_back(&mut self, key: &Request) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        (entry.is_assumed, entry.held) = (false, None);
        let assumed = entry.pod.clone();
        let waiting = Arc::new(assumed.on(&Arc::default()));
        entry.pod = waiting.clone();
        if let Some(group) = self.group_key(&waiting) {
            self.groups.set_member(&group, key, Member::Waiting(waiting.spec.priority));
        }
        self.jobs.remove(key);
        self.view.break_promises_of(&assumed);
        self.leave(&assumed);
        // Room was made for it.
        self.nominate(&waiting);
    }
}
