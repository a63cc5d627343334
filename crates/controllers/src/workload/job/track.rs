//! Counts ended pods, each once.
//!
//! | step | the status | the pod |
//! |---|---|---|
//! | 1 | its uid is in `uncountedTerminatedPods` (an index: in `completedIndexes`) | has the finalizer |
//! | 2 | the same | the finalizer is removed |
//! | 3 | the uid is removed, the counter is one more | |
//!
//! Each step is one write; the status is written only in the version that was read. So after a
//! crash between two steps the next pass goes on with the following one.

use super::state::{
    Indexed, State, condition, count, index_of, is_tracked, phase_of, set_condition, time, uid_of,
};
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use setpoint_object::time::Timestamp;
use std::collections::BTreeSet;

/// How many uids a status has at most: 500, as kube-controller-manager. They take 20 KB.
const UNCOUNTED_MAX: usize = 500;

/// Step 1.
pub(super) struct Tracked<'a> {
    /// The status to write first.
    pub(super) status: JobStatus,
    /// The pods that lose their finalizer then.
    pub(super) release: Vec<&'a Pod>,
    /// The uids of tracked pods.
    pub(super) tracked: BTreeSet<String>,
    /// The condition that ends the Job, `Complete` or `Failed`.
    finished: Option<JobCondition>,
    /// More pods are to be counted than fit into one status.
    is_full: bool,
}

impl<'a> State<'a> {
    /// Step 1 on `status`, which has the Job's other numbers already. `finished` is the verdict.
    pub(super) fn track(
        &self,
        mut status: JobStatus,
        finished: Option<JobCondition>,
        now: Timestamp,
    ) -> Tracked<'a> {
        let pods = self.pods.iter().copied();
        let tracked = pods.clone().filter(|pod| is_tracked(pod)).map(uid_of).collect();
        finish_counting(&mut status, &tracked);
        let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
        let mut succeeded = uncounted.succeeded.take().unwrap_or_default();
        let mut failed = uncounted.failed.take().unwrap_or_default();
        let mut new_indexes = BTreeSet::new();
        let (mut release, mut is_full) = (Vec::new(), false);
        for pod in pods.filter(|pod| is_tracked(pod) && self.is_to_release(pod, finished.is_some()))
        {
            release.push(pod);
            let uid = uid_of(pod);
            let is_success = finished.as_ref().is_some_and(|end| end.type_ == "SuccessCriteriaMet");
            if phase_of(pod) == "Succeeded" && !failed.contains(&uid) {
                match &self.indexed {
                    Some(indexed) => new_indexes.extend(indexed.new_success(pod)),
                    None if succeeded.contains(&uid) => {}
                    None => succeeded.push(uid),
                }
            // A pod that a failed Job stops has failed too.
            } else if (self.is_failed(pod) || (finished.is_some() && !is_success))
                && !failed.contains(&uid)
                && self.has_valid_index(pod)
                && self.counts(pod)
            {
                failed.push(uid);
            }
            if new_indexes.len() + succeeded.len() + failed.len() >= UNCOUNTED_MAX {
                is_full = true;
                break;
            }
        }
        *uncounted = of_uids(succeeded, failed);
        if let Some(indexed) = &self.indexed {
            let all = indexed.before.with(&new_indexes.into_iter().collect());
            status.succeeded = some(all.len());
            status.completed_indexes = Some(all.to_string()).filter(|text| !text.is_empty());
            status.failed_indexes = indexed.failed.as_ref().map(ToString::to_string);
        }
        let finished = finished.map(|end| announce(&mut status, end, now));
        Tracked { status, release, tracked, finished, is_full }
    }

    /// Whether a tracked pod may lose its finalizer.
    fn is_to_release(&self, pod: &Pod, is_finished: bool) -> bool {
        if self.job.is_being_deleted() || is_finished || phase_of(pod) == "Succeeded" {
            return true;
        }
        // The last failed pod of an index keeps the count of failures for its replacement.
        let is_kept = self.indexed.as_ref().zip(index_of(pod)).is_some_and(|(indexed, index)| {
            let kept = indexed.to_replace.get(&index);
            kept.is_some_and(|kept| kept.metadata.uid == pod.metadata.uid)
        });
        self.is_failed(pod) && !is_kept
    }
}

impl Indexed<'_> {
    /// The index of a succeeded pod, if it is not in the status yet.
    fn new_success(&self, pod: &Pod) -> Option<i32> {
        index_of(pod).filter(|index| *index < self.completions && !self.before.contains(*index))
    }
}

impl Tracked<'_> {
    /// Step 3, after the finalizers of the pods in `released` were removed: the status to write
    /// then. Returns the condition that it ends the Job with; a Job does not end while a pod has
    /// its finalizer: an index counts without a uid, so the status does not say it.
    pub(super) fn count(
        &self,
        status: &mut JobStatus,
        released: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<JobCondition> {
        let tracked = self.tracked.difference(released).cloned().collect();
        finish_counting(status, &tracked);
        let n_left = status.uncounted_terminated_pods.as_ref().map_or(0, |uncounted| {
            uncounted.succeeded.as_ref().map_or(0, Vec::len)
                + uncounted.failed.as_ref().map_or(0, Vec::len)
        });
        let is_released = self.release.iter().all(|pod| released.contains(&uid_of(pod)));
        let is_ended =
            n_left == 0 && is_released && !self.is_full && status.terminating.unwrap_or(0) == 0;
        let finished = self.finished.clone().filter(|_| is_ended)?;
        if finished.type_ == "Complete" {
            status.completion_time = Some(time(now));
        }
        set_condition(status, finished.clone());
        Some(finished)
    }
}

/// Adds the condition that announces the end; returns the one that ends the Job.
fn announce(status: &mut JobStatus, end: JobCondition, now: Timestamp) -> JobCondition {
    let last = match &*end.type_ {
        "FailureTarget" => "Failed",
        "SuccessCriteriaMet" => "Complete",
        _ => return end,
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let ending = condition(last, &text(&end.reason), &text(&end.message), now);
    set_condition(status, end);
    ending
}

/// Moves the uids of pods that have no finalizer to the counters.
fn finish_counting(status: &mut JobStatus, tracked: &BTreeSet<String>) {
    let Some(uncounted) = &mut status.uncounted_terminated_pods else { return };
    let take = |uids: &mut Option<Vec<String>>| {
        let (left, counted): (Vec<String>, Vec<String>) =
            uids.take().unwrap_or_default().into_iter().partition(|uid| tracked.contains(uid));
        *uids = Some(left).filter(|left| !left.is_empty());
        count(counted)
    };
    let (succeeded, failed) = (take(&mut uncounted.succeeded), take(&mut uncounted.failed));
    status.succeeded = some(status.succeeded.unwrap_or(0) + succeeded);
    status.failed = some(status.failed.unwrap_or(0) + failed);
}

fn of_uids(succeeded: Vec<String>, failed: Vec<String>) -> UncountedTerminatedPods {
    let some = |uids: Vec<String>| Some(uids).filter(|uids| !uids.is_empty());
    UncountedTerminatedPods { succeeded: some(succeeded), failed: some(failed) }
}

/// A number of a status that is left out at zero.
pub(super) fn some(n: i32) -> Option<i32> {
    Some(n).filter(|n| *n != 0)
}
