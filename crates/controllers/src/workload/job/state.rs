//! What the controller knows about a Job and its pods at the start of a pass, and what follows
//! from it. Nothing here waits or writes.
//!
//! A pod with the tracking finalizer is not counted yet, unless its uid is in the status already.
//! A pod without it has been counted, or is not to be counted.

use super::backoff::{Backoff, finished_at};
use super::indexes::Indexes;
use super::object::{Job, timestamp, true_condition};
use super::policy::{self, Failure};
use crate::workload::pod::is_ready;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use setpoint_object::pod_phase;
use setpoint_object::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The finalizer of pods that are not counted yet.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The annotation and the label with a pod's completion index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The annotation with the number of failures of a pod's index before it, that count.
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The annotation with the number of failures of a pod's index before it, that do not count.
pub(super) const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// How many pods a pass creates or deletes at most: 500, as kube-controller-manager.
const PODS_MAX: usize = 500;

/// A Job and its pods.
pub(super) struct State<'a> {
    pub(super) job: &'a Job,
    /// Sorted by index, then by name.
    pub(super) pods: Vec<&'a Pod>,
    /// Pods that have not finished and are not being deleted.
    pub(super) active: Vec<&'a Pod>,
    /// How many active pods are ready.
    pub(super) n_ready: i32,
    /// How many pods are being deleted and have not finished.
    pub(super) n_terminating: i32,
    /// Successes and failures, also those that the status lacks.
    pub(super) n_succeeded: i32,
    n_failed: i32,
    /// The back-off with the pods that ended since the status was written.
    pub(super) backoff: Backoff,
    pub(super) indexed: Option<Indexed<'a>>,
}

/// What is known of the indexes of an indexed Job.
pub(super) struct Indexed<'a> {
    pub(super) completions: i32,
    /// The succeeded indexes of the status.
    pub(super) before: Indexes,
    /// All succeeded indexes.
    pub(super) succeeded: Indexes,
    /// The failed indexes, if there is a limit per index.
    pub(super) failed: Option<Indexes>,
    /// Of indexes that are to be tried again: the last failed pod. It keeps its finalizer, and so
    /// its count of failures, until its replacement has the count.
    pub(super) to_replace: BTreeMap<i32, &'a Pod>,
}

/// What to do about the number of pods.
#[derive(Debug, PartialEq)]
pub(super) enum Plan<'a> {
    /// Nothing.
    Keep,
    /// Delete these pods.
    Delete(Vec<&'a Pod>),
    /// Create a pod for each element, with an index or without.
    Create(Vec<Option<i32>>),
    /// Create pods after this time.
    Wait(Duration),
}

impl<'a> State<'a> {
    /// `pods` are the Job's; `backoff` is that of the last pass.
    pub(super) fn new(job: &'a Job, mut pods: Vec<&'a Pod>, backoff: Backoff) -> Self {
        pods.sort_by_key(|pod| (index_of(pod), pod.metadata.name.as_deref().unwrap_or_default()));
        let active: Vec<&Pod> = pods.iter().copied().filter(|pod| is_active(pod)).collect();
        let mut state = Self {
            job,
            n_ready: count(active.iter().filter(|pod| is_ready(pod))),
            n_terminating: count(pods.iter().filter(|pod| is_terminating(pod))),
            active,
            pods,
            n_succeeded: 0,
            n_failed: 0,
            backoff,
            indexed: None,
        };
        let uncounted = job.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (succeeded, failed) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        let new = |in_status: &[String], is_meant: &dyn Fn(&Pod) -> bool| -> Vec<&'a Pod> {
            let pods = state.pods.iter().copied();
            pods.filter(|pod| state.is_to_count(pod) && !in_status.contains(&uid_of(pod)))
                .filter(|pod| is_meant(pod))
                .collect()
        };
        let new_succeeded = new(&succeeded, &|pod| phase_of(pod) == "Succeeded");
        let new_failed = new(&failed, &|pod| state.is_failed(pod));
        let n_counted = count(new_failed.iter().filter(|pod| state.counts(pod)));
        let status = &job.status;
        state.n_succeeded =
            status.succeeded.unwrap_or(0) + count(&new_succeeded) + count(&succeeded);
        state.n_failed = status.failed.unwrap_or(0) + n_counted + count(&failed);
        state.backoff = backoff.with(&new_succeeded, &new_failed);
        state.indexed = job.indexed().map(|completions| state.indexes(completions));
        if let Some(indexed) = &state.indexed {
            state.n_succeeded = indexed.succeeded.len();
        }
        state
    }

    fn indexes(&self, completions: i32) -> Indexed<'a> {
        let status = &self.job.status;
        let of_status = |text: &Option<String>| {
            Indexes::parse(text.as_deref().unwrap_or_default(), completions)
        };
        let before = of_status(&status.completed_indexes);
        let to_count = || self.pods.iter().copied().filter(|pod| self.is_to_count(pod));
        let new = to_count().filter(|pod| phase_of(pod) == "Succeeded").filter_map(index_of);
        let succeeded = before.with(&new.collect());
        let failed = self.job.spec.backoff_limit_per_index.map(|limit| {
            let new = to_count().filter(|pod| self.is_index_failed(pod, limit));
            of_status(&status.failed_indexes).with(&new.filter_map(index_of).collect())
        });
        let mut to_replace: BTreeMap<i32, &'a Pod> = BTreeMap::new();
        if let Some(failed) = &failed {
            let active: BTreeSet<i32> =
                self.active.iter().filter_map(|pod| index_of(pod)).collect();
            for pod in to_count().filter(|pod| self.is_failed(pod)) {
                let Some(index) = index_of(pod) else { continue };
                if succeeded.contains(index) || failed.contains(index) || active.contains(&index) {
                    continue;
                }
                let age = |pod: &Pod| (failures_before(pod), finished_at(pod));
                let last = to_replace.entry(index).or_insert(pod);
                if age(last).0 <= age(pod).0 && age(last).1 <= age(pod).1 {
                    *last = pod;
                }
            }
        }
        Indexed { completions, before, succeeded, failed, to_replace }
    }

    /// Whether a pod is tracked and has a valid index, if indexes are used.
    pub(super) fn is_to_count(&self, pod: &Pod) -> bool {
        is_tracked(pod) && self.has_valid_index(pod)
    }

    pub(super) fn has_valid_index(&self, pod: &Pod) -> bool {
        let Some(completions) = self.job.indexed() else { return true };
        index_of(pod).is_some_and(|index| index < completions)
    }

    /// Whether a pod has failed: in the phase `Failed`; or it is being deleted, unless it is to be
    /// replaced after its end only.
    pub(super) fn is_failed(&self, pod: &Pod) -> bool {
        match phase_of(pod) {
            "Failed" => true,
            "Succeeded" => false,
            _ => pod.metadata.deletion_timestamp.is_some() && !self.job.replaces_failed_only(),
        }
    }

    fn failure(&self, pod: &Pod) -> Failure {
        Failure::of(self.job.spec.pod_failure_policy.as_ref(), pod)
    }

    /// Whether a failed pod counts.
    pub(super) fn counts(&self, pod: &Pod) -> bool {
        self.failure(pod) != Failure::Ignored
    }

    fn is_index_failed(&self, pod: &Pod, limit: i32) -> bool {
        self.is_failed(pod)
            && match self.failure(pod) {
                Failure::FailsIndex => true,
                Failure::Ignored => false,
                _ => number(pod, INDEX_FAILURES) >= limit,
            }
    }

    /// The condition that the Job is to end with, `SuccessCriteriaMet` or `FailureTarget`; or
    /// `Failed`, if the status has `FailureTarget` already. `None`: it goes on. Its completions
    /// are checked after its pods were created or deleted.
    pub(super) fn verdict(&self, now: Timestamp) -> Option<JobCondition> {
        let status = &self.job.status;
        if let Some(met) = true_condition(status, "SuccessCriteriaMet") {
            return Some(met.clone());
        }
        if let Some(target) = true_condition(status, "FailureTarget") {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            return Some(condition("Failed", &text(&target.reason), &text(&target.message), now));
        }
        let failure = |reason, message: &str| condition("FailureTarget", reason, message, now);
        let has_policy = self.job.spec.pod_failure_policy.is_some();
        let mut failed = self.pods.iter().filter(|pod| has_policy && self.is_failed(pod));
        let message = failed.find_map(|pod| match self.failure(pod) {
            Failure::FailsJob(message) => Some(message),
            _ => None,
        });
        if let Some(message) = message {
            return Some(failure("PodFailurePolicy", &message));
        }
        if self.n_failed > self.job.backoff_limit() || self.restarts_exceed() {
            let message = "Job has reached the specified backoff limit";
            return Some(failure("BackoffLimitExceeded", message));
        }
        if self.until_deadline(now).is_some_and(|left| left.is_zero()) {
            return Some(failure(
                "DeadlineExceeded",
                "Job was active longer than specified deadline",
            ));
        }
        let indexed = self.indexed.as_ref()?;
        if let Some(failed) = &indexed.failed {
            let n = failed.len();
            if self.job.spec.max_failed_indexes.is_some_and(|max| n > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(failure("MaxFailedIndexesExceeded", message));
            }
            if n > 0 && n + indexed.succeeded.len() >= indexed.completions {
                return Some(failure("FailedIndexes", "Job has failed indexes"));
            }
        }
        let policy = self.job.spec.success_policy.as_ref();
        let message = policy::success(policy, &indexed.succeeded, indexed.completions)?;
        Some(condition("SuccessCriteriaMet", "SuccessPolicy", &message, now))
    }

    /// Whether the containers of running pods restarted as often as pods may fail.
    fn restarts_exceed(&self) -> bool {
        if self.job.spec.template["spec"]["restartPolicy"] != "OnFailure" {
            return false;
        }
        let running = self.pods.iter().filter(|pod| matches!(phase_of(pod), "Running" | "Pending"));
        let containers = running.flat_map(|pod| {
            let status = pod.status.iter();
            status.flat_map(|status| {
                let init = status.init_container_statuses.iter().flatten();
                init.chain(status.container_statuses.iter().flatten())
            })
        });
        let restarts =
            |n: i32, container: &ContainerStatus| n.saturating_add(container.restart_count);
        containers.fold(0, restarts) >= self.job.backoff_limit().max(1)
    }

    /// The time until its deadline; `None` without one, or while it is suspended.
    pub(super) fn until_deadline(&self, now: Timestamp) -> Option<Duration> {
        let deadline =
            self.job.spec.active_deadline_seconds.filter(|_| !self.job.is_suspended())?;
        let started = self.job.status.start_time.as_ref().and_then(timestamp).unwrap_or(now);
        let deadline = Duration::from_secs(u64::try_from(deadline).unwrap_or_default());
        Some((started + deadline).since(now))
    }

    /// What to do about the number of pods of a Job that goes on.
    pub(super) fn plan(&self, now: Timestamp) -> Plan<'a> {
        let n_active = count(&self.active);
        if self.job.is_suspended() {
            return match n_active {
                0 => Plan::Keep,
                n => Plan::Delete(self.to_remove(n)),
            };
        }
        let parallelism = self.job.parallelism();
        let n_wanted = match self.job.spec.completions {
            None if self.n_succeeded > 0 => n_active,
            None => parallelism,
            Some(completions) => (completions - self.n_succeeded).min(parallelism).max(0),
        };
        let mut to_remove = self.to_remove((n_active - n_wanted).max(0));
        if !to_remove.is_empty() {
            to_remove.truncate(PODS_MAX);
            return Plan::Delete(to_remove);
        }
        let n_going = if self.job.replaces_failed_only() { self.n_terminating } else { 0 };
        let n = usize::try_from(n_wanted - n_going - n_active).unwrap_or_default().min(PODS_MAX);
        if n == 0 {
            return Plan::Keep;
        }
        let has_limit_per_index = self.job.spec.backoff_limit_per_index.is_some();
        let wait = self.backoff.remaining(now);
        if !has_limit_per_index && !wait.is_zero() {
            return Plan::Wait(wait);
        }
        let Some(indexed) = &self.indexed else { return Plan::Create(vec![None; n]) };
        let mut taken =
            indexed.succeeded.with(&self.active.iter().filter_map(|p| index_of(p)).collect());
        if self.job.replaces_failed_only() {
            let going = self.pods.iter().filter(|pod| is_terminating(pod));
            taken = taken.with(&going.filter_map(|pod| index_of(pod)).collect());
        }
        if let Some(failed) = &indexed.failed {
            taken = taken.with(failed);
        }
        let missing = taken.missing(n, indexed.completions);
        if !has_limit_per_index {
            return Plan::Create(missing.into_iter().map(Some).collect());
        }
        let wait_of = |index: &i32| {
            let Some(last) = indexed.to_replace.get(index) else { return Duration::ZERO };
            let n_failures = u32::try_from(failures_before(last) + 1).unwrap_or_default();
            Backoff::of(n_failures, finished_at(last)).remaining(now)
        };
        let waits = missing.iter().map(wait_of).min();
        match waits {
            None => Plan::Keep,
            Some(wait) if !wait.is_zero() => Plan::Wait(wait),
            Some(_) => {
                let ready = missing.into_iter().filter(|index| wait_of(index).is_zero());
                Plan::Create(ready.map(Some).collect())
            }
        }
    }

    /// At least `n` active pods to remove: those without a valid index of their own, and then the
    /// youngest in their life.
    fn to_remove(&self, n: i32) -> Vec<&'a Pod> {
        let mut order = self.active.clone();
        order.sort_by(|a, b| progress(a).cmp(&progress(b)));
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        if self.indexed.is_some() {
            // Of several pods of an index, the one that has come furthest stays.
            let mut seen = BTreeSet::new();
            for pod in order.iter().rev() {
                let index = index_of(pod).filter(|_| self.has_valid_index(pod));
                if index.is_some_and(|index| seen.insert(index)) {
                    kept.push(*pod);
                } else {
                    removed.push(*pod);
                }
            }
            kept.reverse();
        } else {
            kept = order;
        }
        let n = usize::try_from(n).unwrap_or_default().saturating_sub(removed.len());
        removed.extend(kept.into_iter().take(n));
        removed
    }

    /// Whether it has as many successes as it needs, given how many pods are active now.
    pub(super) fn is_complete(&self, n_active: i32) -> bool {
        let needed = self.job.spec.completions.unwrap_or(1);
        self.n_succeeded >= needed && n_active == 0
    }
}

/// A true condition.
pub(super) fn condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: text(reason),
        message: text(message),
        last_probe_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    }
}

/// A time of an object: whole seconds.
pub(in crate::workload) fn time(at: Timestamp) -> Time {
    let seconds = i64::try_from(at.0.as_secs()).unwrap_or(i64::MAX);
    Time(jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX))
}

/// Sets a condition; returns whether it changed. A condition that is absent does not become false.
pub(super) fn set_condition(status: &mut JobStatus, wanted: JobCondition) -> bool {
    let mut conditions = status.conditions.iter_mut().flatten();
    match conditions.find(|condition| condition.type_ == wanted.type_) {
        Some(held) => {
            let is_same = held.status == wanted.status
                && held.reason == wanted.reason
                && held.message == wanted.message;
            if !is_same {
                *held = wanted;
            }
            !is_same
        }
        None if wanted.status == "False" => false,
        None => {
            status.conditions.get_or_insert_default().push(wanted);
            true
        }
    }
}

/// How far a pod has come: assigned to a node, its phase, ready. Older pods have come further.
fn progress(pod: &Pod) -> impl Ord {
    let is_assigned =
        pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).is_some_and(|n| !n.is_empty());
    let phase = match phase_of(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    let created = pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    let name = pod.metadata.name.clone().unwrap_or_default();
    (is_assigned, phase, is_ready(pod), std::cmp::Reverse(created), name)
}

/// The number of elements.
pub(super) fn count<T>(items: impl IntoIterator<Item = T>) -> i32 {
    i32::try_from(items.into_iter().count()).unwrap_or(i32::MAX)
}

pub(super) fn uid_of(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

pub(super) fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether a pod has the tracking finalizer.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn is_finished(pod: &Pod) -> bool {
    pod_phase::is_terminal(phase_of(pod))
}

fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// A pod's completion index.
pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    let index = pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()?;
    Some(index).filter(|index| *index >= 0)
}

/// The number in an annotation; zero if it is none.
pub(super) fn number(pod: &Pod, annotation: &str) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotation));
    text.and_then(|text| text.parse().ok()).filter(|n| *n >= 0).unwrap_or(0)
}

/// How often a pod's index failed before it, whether that counts or not.
fn failures_before(pod: &Pod) -> i32 {
    number(pod, INDEX_FAILURES).saturating_add(number(pod, INDEX_IGNORED))
}
