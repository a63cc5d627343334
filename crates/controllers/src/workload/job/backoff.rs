//! The delay before failed pods of a Job are replaced.
//!
//! It doubles with each failure in a row: 10 s, 20 s, up to ten minutes, from the end of the last
//! failed pod. The count is not stored: it is in the memory of the controller, and starts again
//! when that is restarted or a pod succeeds. With a limit per index it is stored, in an annotation
//! of the index's pod.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use setpoint_object::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// The delay after the first failure: 10 s, as kube-controller-manager.
const DELAY: Duration = Duration::from_secs(10);
/// The longest delay: ten minutes, as kube-controller-manager.
const DELAY_MAX: Duration = Duration::from_secs(600);

/// Failures of a Job's pods in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Backoff {
    n_failures: u32,
    last: Option<Timestamp>,
}

impl Backoff {
    /// `n_failures` in a row, of which the last was at this time.
    pub(super) fn of(n_failures: u32, last: Timestamp) -> Self {
        Self { n_failures, last: Some(last) }
    }

    /// After more pods have ended. A success ends the row.
    pub(super) fn with(self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let last_success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let failures = failed.iter().map(|pod| finished_at(pod));
        let in_row = failures.filter(|at| last_success.is_none_or(|success| *at > success));
        let start = if last_success.is_some() { Self::default() } else { self };
        in_row.fold(start, |Self { n_failures, last }, at| Self {
            n_failures: n_failures.saturating_add(1),
            last: last.max(Some(at)),
        })
    }

    /// How long to wait until pods may be created; zero if they may now.
    pub(super) fn remaining(self, now: Timestamp) -> Duration {
        let Some(last) = self.last.filter(|_| self.n_failures > 0) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(self.n_failures - 1).unwrap_or(u32::MAX);
        let delay = DELAY.saturating_mul(factor).min(DELAY_MAX);
        // The clock that dated the failure may be ahead.
        (last + delay).since(now).min(delay)
    }
}

/// When a pod ended: when its last container did, when it stopped being ready, or when it was
/// deleted. Otherwise its creation.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let deleted = || {
        let at = pod.metadata.deletion_timestamp.as_ref()?.0.as_second();
        at.checked_sub(pod.metadata.deletion_grace_period_seconds.unwrap_or_default())
    };
    let created = || Some(pod.metadata.creation_timestamp.as_ref()?.0.as_second());
    let at = containers_ended_at(pod).or_else(|| unready_at(pod)).or_else(deleted);
    let seconds = at.or_else(created).unwrap_or_default();
    Timestamp::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// When the last container ended, in seconds; `None` while one runs. Init containers that run on
/// beside the others count too.
fn containers_ended_at(pod: &Pod) -> Option<i64> {
    let status = pod.status.as_ref()?;
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let sidecars = init.iter().filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let sidecars: BTreeSet<&str> = sidecars.map(|init| init.name.as_str()).collect();
    let all = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    let all = all.chain(init.filter(|init| sidecars.contains(init.name.as_str())));
    let ends: Option<Vec<i64>> = all.map(ended_at).collect();
    ends?.into_iter().max()
}

fn ended_at(container: &ContainerStatus) -> Option<i64> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    Some(ended.finished_at.as_ref()?.0.as_second())
}

/// When the pod stopped being ready, in seconds.
fn unready_at(pod: &Pod) -> Option<i64> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let ready = conditions.find(|c| c.type_ == "Ready" && c.status == "False")?;
    Some(ready.last_transition_time.as_ref()?.0.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    /// A pod whose container ended at this time.
    fn ended(seconds: u64) -> Pod {
        let terminated = json!({"exitCode": 1, "finishedAt": at(seconds).rfc3339()});
        let status = json!({"containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated},
        }]});
        serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
    }

    #[test]
    fn delay_doubles_up_to_ten_minutes() {
        let delays = (1..=40).map(|n| Backoff::of(n, at(1000)).remaining(at(1000)).as_secs());
        let delays: Vec<u64> = delays.collect();
        assert_eq!(delays[..8], [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(delays.last(), Some(&600));
    }

    #[test]
    fn delay_counts_from_the_last_failure() {
        let backoff = Backoff::default().with(&[], &[&ended(100), &ended(130)]);
        assert_eq!(backoff.remaining(at(135)), Duration::from_secs(15));
        assert_eq!(backoff.remaining(at(150)), Duration::ZERO);
        // Dated by a clock that is ahead: never longer than the delay.
        assert_eq!(backoff.remaining(at(0)), Duration::from_secs(20));
    }

    #[test]
    fn success_ends_the_row() {
        let row = Backoff::default().with(&[], &[&ended(10), &ended(20), &ended(30)]);
        assert_eq!(row.with(&[&ended(40)], &[&ended(35)]).remaining(at(40)), Duration::ZERO);
        let after = row.with(&[&ended(40)], &[&ended(35), &ended(50)]);
        assert_eq!(after, Backoff::of(1, at(50)));
        assert_eq!(row.with(&[], &[]), row);
    }

    #[test]
    fn end_of_a_pod_is_found_in_several_places() {
        let pod = |pod| serde_json::from_value::<Pod>(pod).unwrap();
        assert_eq!(finished_at(&ended(70)), at(70));
        let created = json!({"creationTimestamp": at(5).rfc3339()});
        assert_eq!(finished_at(&pod(json!({"metadata": created}))), at(5));
        let deleted = json!({
            "deletionTimestamp": at(60).rfc3339(), "deletionGracePeriodSeconds": 30,
        });
        assert_eq!(finished_at(&pod(json!({"metadata": deleted}))), at(30));
        let ready =
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": at(9).rfc3339()}]);
        let unready = json!({"metadata": created, "status": {"conditions": ready}});
        assert_eq!(finished_at(&pod(unready)), at(9));
    }
}
