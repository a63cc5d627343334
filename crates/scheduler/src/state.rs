//! What the scheduler knows: the cluster, the pods that it has placed but not seen placed, and the
//! pods that wait.
//!
//! # Theory
//!
//! | a pod is | because | it occupies its node |
//! |---|---|---|
//! | waiting | it has no node | no |
//! | held | a cycle chose a node; others of its gang have none | yes |
//! | assumed | a cycle chose a node; the binding is being written | yes |
//! | assigned | the watch shows its node | yes |
//!
//! An assumed pod stays on its node until the watch shows it assigned, or the server has said that
//! it is not: a binding whose outcome is unknown keeps its place. Cycles run one at a time, each on
//! a snapshot, and the chosen node is checked again when the pod is assumed. So the pods that this
//! scheduler places never exceed what it knows a node to have.
//!
//! A waiting pod that no node fits remembers which changes may help. Such a change hands it out
//! again, after its back-off; changes during its own cycle count too. A change of a claim of
//! devices hands out the pods that name it.

use crate::cycle::Refused;
use crate::group::{GroupCondition, Groups, PodGroups};
use crate::labels::Labels;
use crate::node::Node;
use crate::placing::Binding;
use crate::plugins::claims::{self, Claim, Grant};
use crate::plugins::{Placement, change};
use crate::pod::Pod;
use crate::preemption::Candidate;
use crate::view::View;
use rand::rngs::SmallRng;
use setpoint_runtime::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The time before a refused pod is tried again, at first and at most: 1 s and 10 s, as in
/// kube-scheduler.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// The state of a scheduler.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) view: View,
    pods: BTreeMap<Request, Entry>,
    /// Refused pods, with the changes that they wait for.
    refused: BTreeMap<Request, u8>,
    /// The waiting pods that name a claim of devices.
    claimants: BTreeSet<(Request, Request)>,
    /// Refused pods whose claims of devices have changed.
    woken: BTreeSet<Request>,
    pub(crate) groups: Groups,
    /// What is to be written about pods and groups.
    jobs: BTreeMap<Request, Job>,
    /// Changes since the cycle in progress took its snapshot.
    during_cycle: u8,
    /// Changes that refused pods have not been compared with.
    changed: u8,
    /// Where the next cycle begins among the nodes.
    pub(crate) first: Arc<str>,
    pub(crate) rng: SmallRng,
}

/// A pod that is assigned, assumed or waiting.
#[derive(Debug)]
struct Entry {
    pod: Arc<Pod>,
    is_assumed: bool,
    n_refusals: u32,
    /// End of the back-off.
    not_before: Option<Instant>,
    /// It was held back before its claims were there, and nothing was said.
    is_held: bool,
    /// The nomination that is being written, which events from before do not have; empty: none.
    nomination: Option<Arc<str>>,
    /// What it is to be bound to once enough of its group have a place.
    held: Option<Binding>,
}

impl Entry {
    fn new(pod: Arc<Pod>) -> Self {
        Self {
            pod,
            is_assumed: false,
            n_refusals: 0,
            not_before: None,
            is_held: false,
            nomination: None,
            held: None,
        }
    }
}

/// What is to be written about a pod, or a group.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    /// It goes to a node.
    Bind {
        /// The pod, on its node.
        pod: Arc<Pod>,
        /// When the node was chosen.
        since: Instant,
        /// What its claims get that wait for it.
        placed: Arc<[Placement]>,
        /// What its claims of devices get.
        grants: Arc<[Grant]>,
    },
    /// No node fits.
    Refuse {
        /// The pod.
        pod: Arc<Pod>,
        /// The message of its condition.
        message: String,
        /// Pods that should leave a node.
        preempted: Option<Candidate>,
        /// Its nomination no longer helps.
        clears_nomination: bool,
        /// Something is wrong: it is not merely unschedulable.
        is_fault: bool,
        /// A claim that should lose its devices.
        deallocates: Option<Request>,
    },
    /// A condition of a group.
    Say(Arc<GroupCondition>),
}

/// A key to hand out again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) key: Request,
    pub(crate) priority: i32,
    pub(crate) after: Duration,
}

impl State {
    /// A state without objects, for pods that are placed one by one.
    #[cfg(test)]
    pub(crate) fn new(rng: SmallRng) -> Self {
        Self::with(rng, PodGroups::Ignored)
    }

    /// A state without objects.
    pub(crate) fn with(rng: SmallRng, policy: PodGroups) -> Self {
        Self {
            view: View::default(),
            pods: BTreeMap::new(),
            refused: BTreeMap::new(),
            claimants: BTreeSet::new(),
            woken: BTreeSet::new(),
            groups: Groups::new(policy),
            jobs: BTreeMap::new(),
            during_cycle: 0,
            changed: 0,
            first: Arc::default(),
            rng,
        }
    }

    /// The pod as it was read last.
    pub(crate) fn pod(&self, key: &Request) -> Option<Arc<Pod>> {
        self.pods.get(key).map(|entry| entry.pod.clone())
    }

    /// Takes in the new state of a pod. Returns its priority if a cycle should look at it alone.
    pub(crate) fn put_pod(&mut self, pod: Pod, scheduler: &str) -> Option<i32> {
        let Some(group) = self.group_key(&pod) else { return self.take_in(pod, scheduler) };
        let key = pod.key.clone();
        // Its place was not given to it yet.
        let is_leaving = pod.is_deleting && pod.node.is_empty();
        if is_leaving && self.pods.get(&key).is_some_and(|entry| entry.held.is_some()) {
            self.remove_pod(&key);
        }
        let is_absent = is_leaving && !pod.is_over && pod.spec.scheduler == scheduler;
        let must_try = self.take_in(pod, scheduler).is_some();
        self.update_member(&group, &key, is_absent, must_try);
        None
    }

    fn take_in(&mut self, mut pod: Pod, scheduler: &str) -> Option<i32> {
        let key = pod.key.clone();
        let earlier = self.pods.get(&key);
        let is_same = earlier.is_some_and(|earlier| earlier.pod.uid == pod.uid);
        if !is_same && earlier.is_some() {
            // Deleted and created again between two lists.
            self.remove_pod(&key);
        }
        let earlier = self.pods.get(&key);
        let is_assumed = earlier.is_some_and(|earlier| earlier.is_assumed);
        if is_assumed && pod.node.is_empty() && !pod.is_over {
            // An event from before the binding.
            return None;
        }
        let has_changed = earlier.is_none_or(|earlier| {
            earlier.pod.labels != pod.labels
                || !Arc::ptr_eq(&earlier.pod.spec, &pod.spec)
                || earlier.pod.node != pod.node
                || earlier.pod.generated != pod.generated
        });
        let was_there = earlier.is_some_and(|earlier| !earlier.pod.node.is_empty());
        // Resized.
        let has_shrunk = was_there
            && earlier.is_some_and(|earlier| earlier.pod.spec.requests.exceeds(&pod.spec.requests));
        let nomination = earlier.and_then(|earlier| earlier.nomination.clone());
        let nomination = nomination.filter(|written| pod.nominated != *written);
        if let Some(written) = &nomination {
            pod.nominated = written.clone();
        }
        let pod = Arc::new(pod);
        if pod.occupies() {
            if let Some(earlier) = earlier.filter(|earlier| earlier.pod.node != pod.node) {
                let earlier = earlier.pod.clone();
                self.leave(&earlier);
            }
            self.forget_nomination(&key);
            self.disclaim(&key);
            self.view.put_pod(pod.clone());
            // A binding that is being written goes on: the writer has its own copy.
            self.jobs.remove(&key);
            self.refused.remove(&key);
            self.pods.insert(key, Entry::new(pod));
            if has_changed || is_assumed {
                self.changed(change::POD_THERE);
            }
            if has_shrunk {
                self.changed(change::POD_GONE);
            }
            return None;
        }
        if was_there || !pod.waits_for(scheduler) {
            self.remove_pod(&key);
            return None;
        }
        self.forget_nomination(&key);
        self.nominate(&pod);
        if has_changed {
            self.disclaim(&key);
            let claims = claims::keys(&pod).into_iter().map(|claim| (claim, key.clone()));
            self.claimants.extend(claims);
        }
        let (priority, is_gated) = (pod.spec.priority, pod.spec.is_gated);
        let entry = self.pods.entry(key.clone()).or_insert_with(|| Entry::new(pod.clone()));
        (entry.pod, entry.nomination) = (pod, nomination);
        if has_changed {
            self.refused.remove(&key);
        }
        (has_changed && !is_gated).then_some(priority)
    }

    /// Forgets a pod.
    pub(crate) fn remove_pod(&mut self, key: &Request) {
        self.forget_nomination(key);
        self.disclaim(key);
        self.refused.remove(key);
        self.jobs.remove(key);
        self.groups.remove_member(key);
        if let Some(entry) = self.pods.remove(key)
            && !entry.pod.node.is_empty()
        {
            self.view.break_promises_of(&entry.pod);
            self.leave(&entry.pod);
        }
    }

    /// A pod does not wait for its claims of devices any more.
    fn disclaim(&mut self, key: &Request) {
        let Some(pod) = self.pod(key) else { return };
        let claims = claims::keys(&pod);
        for claim in &claims {
            self.claimants.remove(&(claim.clone(), key.clone()));
        }
        self.view.inventory.orphan(&claims, &pod.uid);
        self.woken.remove(key);
    }

    /// Takes in a claim of devices as the watch shows it, or its absence.
    pub(crate) fn put_device_claim(&mut self, key: &Request, claim: Option<Claim>) {
        let (has_changed, has_freed) = self.view.inventory.put_claim(key, claim);
        if has_freed {
            self.changed(change::DEVICE);
        }
        if !has_changed {
            return;
        }
        self.during_cycle |= change::CLAIM;
        let claimants = self.claimants.range((key.clone(), Request::cluster(""))..);
        let claimants = claimants.take_while(|(claim, _)| claim == key).map(|(_, pod)| pod);
        let refused = claimants.filter(|pod| self.refused.contains_key(*pod)).cloned();
        self.woken.extend(refused);
    }

    /// The server does not have the devices that a pod's claims were to get.
    pub(crate) fn forget_devices(&mut self, pod: &Pod) {
        if self.view.inventory.forget(&claims::keys(pod), &pod.uid) {
            self.changed(change::DEVICE);
        }
    }

    /// The server does not have what a claim was to get for a pod that is gone.
    pub(crate) fn forget_orphan(&mut self, claim: &Request, pod: &str) {
        if self.view.inventory.forget(std::slice::from_ref(claim), pod) {
            self.changed(change::DEVICE);
        }
    }

    fn leave(&mut self, pod: &Pod) {
        self.view.take_pod(pod);
        self.changed(change::POD_GONE);
    }

    fn nominate(&mut self, pod: &Arc<Pod>) {
        if !pod.nominated.is_empty() {
            let mut pods = self.view.nominated.remove(&pod.nominated).unwrap_or_default();
            Arc::make_mut(&mut pods).push(pod.clone());
            self.view.nominated.insert(pod.nominated.clone(), pods);
        }
    }

    /// Nominates a pod, or no longer if `node` is empty, before its status says so: another cycle
    /// must not give the room away meanwhile.
    fn renominate(&mut self, key: &Request, node: &Arc<str>) {
        self.forget_nomination(key);
        let Some(entry) = self.pods.get_mut(key) else { return };
        let pod = Arc::new(Pod { nominated: node.clone(), ..Pod::clone(&entry.pod) });
        (entry.pod, entry.nomination) = (pod.clone(), Some(node.clone()));
        self.nominate(&pod);
    }

    /// Less important pods no longer wait for room on a node: a more important one gets it. They
    /// may preempt elsewhere.
    fn withdraw_nominations(&mut self, node: &Arc<str>, priority: i32) {
        let nominated = self.view.nominated.get(node).into_iter().flat_map(|pods| pods.iter());
        let less = nominated.filter(|other| other.spec.priority < priority);
        let less: Vec<Request> = less.map(|other| other.key.clone()).collect();
        for key in less {
            self.renominate(&key, &Arc::default());
        }
    }

    fn forget_nomination(&mut self, key: &Request) {
        let Some(pod) = self.pod(key).filter(|pod| !pod.nominated.is_empty()) else { return };
        if self.view.withdraw(&pod) {
            self.changed(change::POD_GONE);
        }
    }

    /// Takes in a node, or its absence.
    pub(crate) fn put_node(&mut self, name: &Arc<str>, node: Option<Node>) {
        let known = self.view.nodes.get(name).and_then(|info| info.node.as_deref());
        if known == node.as_ref() {
            return;
        }
        let is_there = node.is_some();
        self.view.put_node(name, node);
        if is_there {
            self.changed(change::NODE);
        }
    }

    /// Takes in a namespace's labels.
    pub(crate) fn put_namespace(&mut self, name: Arc<str>, labels: Option<Labels>) {
        match labels {
            Some(labels) => _ = self.view.namespaces.insert(name, Arc::new(labels)),
            None => _ = self.view.namespaces.remove(&name),
        }
        self.changed(change::NAMESPACE);
    }

    /// Notes changes, by the bits of [`change`].
    pub(crate) fn changed(&mut self, changes: u8) {
        self.during_cycle |= changes;
        self.changed |= changes;
    }

    /// Whether refused pods have to be compared with changes.
    pub(crate) fn has_changed(&self) -> bool {
        let has_woken = !self.woken.is_empty() || self.groups.has_woken();
        self.changed != 0 && !self.refused.is_empty() || has_woken
    }

    /// The changes since the last call.
    pub(crate) fn take_changes(&mut self) -> u8 {
        std::mem::take(&mut self.changed)
    }

    /// Of at most `n_max` refused pods behind `after`, those that `changes` may help; and the last
    /// that was examined, unless these were all.
    pub(crate) fn helped(
        &mut self,
        changes: u8,
        after: Option<&Request>,
        n_max: usize,
        now: Instant,
    ) -> (Vec<Retry>, Option<Request>) {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = after.map_or(Unbounded, Excluded);
        let examined: Vec<(Request, u8)> = self
            .refused
            .range((start, Unbounded))
            .take(n_max)
            .map(|(key, awaits)| (key.clone(), *awaits))
            .collect();
        let last = examined.last().map(|(key, _)| key.clone()).filter(|_| examined.len() == n_max);
        let mut retries = Vec::new();
        for (key, _) in examined.iter().filter(|(_, awaits)| awaits & changes != 0) {
            self.refused.remove(key);
            retries.extend(self.retry(key, now));
        }
        (retries, last)
    }

    /// At most `n_max` of the refused pods whose claims of devices have changed, and of the groups
    /// that should be tried.
    pub(crate) fn take_woken(&mut self, n_max: usize, now: Instant) -> Vec<Retry> {
        let mut retries = Vec::new();
        while retries.len() < n_max
            && let Some(key) = self.groups.pop_woken()
        {
            retries.extend(self.retry_group(&key, now));
        }
        while retries.len() < n_max
            && let Some(key) = self.woken.pop_first()
        {
            if self.refused.remove(&key).is_some() {
                retries.extend(self.retry(&key, now));
            }
        }
        retries
    }

    /// When to hand a key out again.
    fn retry(&self, key: &Request, now: Instant) -> Option<Retry> {
        let entry = self.pods.get(key)?;
        let after = entry.not_before.map(|until| until.saturating_duration_since(now));
        Some(Retry {
            key: key.clone(),
            priority: entry.pod.spec.priority,
            after: after.unwrap_or_default(),
        })
    }

    /// The pod of a cycle that begins now, if it waits for one.
    pub(crate) fn begin(&mut self, key: &Request) -> Option<Pod> {
        let entry = self.pods.get(key)?;
        let is_grouped = self.group_key(&entry.pod).is_some();
        if !self.waits(key) || is_grouped {
            return None;
        }
        self.refused.remove(key);
        self.during_cycle = 0;
        Some(Pod::clone(&entry.pod))
    }

    /// Whether a pod waits for a cycle.
    fn waits(&self, key: &Request) -> bool {
        self.pods.get(key).is_some_and(|entry| {
            !entry.is_assumed && entry.pod.node.is_empty() && !entry.pod.spec.is_gated
        })
    }

    /// Whether the pod of a cycle is still the one that waits.
    fn is_current(&self, pod: &Pod) -> bool {
        self.pods.get(&pod.key).is_some_and(|entry| {
            entry.pod.uid == pod.uid
                && entry.pod.node.is_empty()
                && Arc::ptr_eq(&entry.pod.spec, &pod.spec)
                && entry.pod.generated == pod.generated
        })
    }

    /// Notes that no node fits the pod of a cycle. Returns when to try again if something has
    /// changed meanwhile, or is to be said only then.
    pub(crate) fn refuse(&mut self, pod: Pod, refused: Refused, now: Instant) -> Option<Retry> {
        if !self.is_current(&pod) {
            return None;
        }
        let (key, priority, awaits) = (pod.key.clone(), pod.spec.priority, refused.awaits);
        if let Some(entry) = self.pods.get_mut(&key).filter(|_| !refused.is_early) {
            entry.n_refusals = entry.n_refusals.saturating_add(1);
            entry.not_before = Some(now + backoff(entry.n_refusals));
        }
        let awaited = awaits & self.during_cycle != 0;
        let is_unsaid = self.say(pod, refused);
        if awaited {
            return self.retry(&key, now);
        }
        self.refused.insert(key.clone(), awaits);
        is_unsaid.then_some(Retry { key, priority, after: BACKOFF_MIN })
    }

    /// Makes a job of a refusal. Returns whether it is to be said only the next time.
    fn say(&mut self, pod: Pod, refused: Refused) -> bool {
        let key = pod.key.clone();
        let Refused { message, preempted, mut clears_nomination, .. } = refused;
        let Refused { is_fault, is_early, deallocates, .. } = refused;
        // A more important pod has taken its room: its status does not say so yet.
        let entry = self.pods.get(&key);
        let is_withdrawn = entry.is_some_and(|entry| entry.nomination.as_deref() == Some(""));
        clears_nomination |= is_withdrawn && preempted.is_none();
        // Claims that do not exist yet may be on their way: that is said a moment later.
        let mut is_said = !message.is_empty();
        if let Some(entry) = self.pods.get_mut(&key).filter(|_| is_early) {
            let was_held = entry.is_held;
            entry.is_held |= is_said;
            is_said &= was_held;
        }
        let is_unsaid = !message.is_empty() && !is_said;
        match &preempted {
            Some(candidate) => {
                self.withdraw_nominations(&candidate.node, pod.spec.priority);
                self.renominate(&key, &candidate.node);
            }
            None if clears_nomination => self.renominate(&key, &Arc::default()),
            None => {}
        }
        if is_said {
            let pod = Arc::new(pod);
            let job =
                Job::Refuse { pod, message, preempted, clears_nomination, is_fault, deallocates };
            self.jobs.insert(key, job);
        }
        is_unsaid
    }

    /// The keys of all jobs.
    #[cfg(test)]
    pub(crate) fn job_keys(&self) -> Vec<Request> {
        self.jobs.keys().cloned().collect()
    }

    /// Forgets all jobs, as if they were written.
    #[cfg(test)]
    pub(crate) fn forget_jobs(&mut self) {
        self.jobs.clear();
    }

    /// The job of a pod.
    pub(crate) fn job(&self, key: &Request) -> Option<Job> {
        self.jobs.get(key).cloned()
    }

    /// Removes a refusal that was written, unless another one has replaced it.
    pub(crate) fn finish(&mut self, key: &Request, written: &Arc<Pod>) {
        let is_it = |job: &Job| match job {
            Job::Bind { pod, .. } | Job::Refuse { pod, .. } => Arc::ptr_eq(pod, written),
            Job::Say(_) => false,
        };
        if self.jobs.get(key).is_some_and(is_it) {
            self.jobs.remove(key);
        }
    }

    /// Whether a claim of the pod has no volume yet, and waits for its first consumer.
    pub(crate) fn unbound_claims(&self, pod: &Pod) -> Vec<String> {
        let is_unbound = |name: &&String| {
            let claim = self.view.claims.get(&Request::new(pod.key.namespace.clone(), &***name));
            claim.is_some_and(|claim| claim.volume.is_empty())
        };
        pod.spec.claims.iter().filter(is_unbound).cloned().collect()
    }
}

/// The back-off after some refusals.
fn backoff(n_refusals: u32) -> Duration {
    let factor = 1 << n_refusals.saturating_sub(1).min(10);
    BACKOFF_MIN.saturating_mul(factor).min(BACKOFF_MAX)
}

mod groups;
mod placing;

pub(crate) use groups::Kept;
pub(crate) use placing::Assumed;

#[cfg(test)]
mod tests;
