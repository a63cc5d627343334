//! The status of Deployments.

use super::numbers::{self, sum};
use super::{Deployment, ReplicaSet, Rollout};
use crate::workload::difference::replacement;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use setpoint_object::time::Timestamp;
use std::time::Duration;

pub(super) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
/// The reason of a rollout that is complete.
const COMPLETE: &str = "NewReplicaSetAvailable";
/// The reason of a rollout that takes too long.
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// `status` of a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentStatus {
    pub(crate) observed_generation: i64,
    pub(crate) replicas: i32,
    pub(crate) updated_replicas: i32,
    pub(crate) ready_replicas: i32,
    pub(crate) available_replicas: i32,
    pub(crate) unavailable_replicas: i32,
    pub(crate) terminating_replicas: Option<i32>,
    pub(crate) collision_count: Option<i32>,
    pub(crate) conditions: Vec<Condition>,
}

/// A condition of a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(with = "crate::workload::view::time")]
    pub(crate) last_update_time: String,
    #[serde(with = "crate::workload::view::time")]
    pub(crate) last_transition_time: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl DeploymentStatus {
    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Sets a condition. Without a change of status and reason nothing changes; without a change
    /// of status the transition time stays.
    pub(super) fn set(&mut self, mut condition: Condition) {
        if let Some(current) = self.condition(&condition.kind)
            && current.status == condition.status
        {
            if current.reason == condition.reason {
                return;
            }
            condition.last_transition_time.clone_from(&current.last_transition_time);
        }
        self.replace(condition);
    }

    /// Sets a condition, instead of the one of its type. The one that has changed last is last.
    fn replace(&mut self, condition: Condition) {
        self.remove(&condition.kind);
        self.conditions.push(condition);
    }

    fn remove(&mut self, kind: &str) {
        self.conditions.retain(|current| current.kind != kind);
    }

    /// Whether a rollout of this Deployment is complete.
    pub(super) fn is_complete(&self, deployment: &Deployment) -> bool {
        let replicas = deployment.spec.replicas();
        self.updated_replicas == replicas
            && self.replicas == replicas
            && self.available_replicas == replicas
            && self.observed_generation >= deployment.generation()
    }

    /// Whether it is further than `before`.
    fn has_progressed(&self, before: &Self) -> bool {
        let old = |status: &Self| status.replicas - status.updated_replicas;
        self.updated_replicas > before.updated_replicas
            || old(self) < old(before)
            || self.ready_replicas > before.ready_replicas
            || self.available_replicas > before.available_replicas
    }

    /// The status as a merge patch.
    pub(super) fn body(&self) -> Value {
        replacement(self, &["terminatingReplicas", "collisionCount"])
    }
}

/// A condition of now.
pub(super) fn condition(
    now: Timestamp,
    kind: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
) -> Condition {
    Condition {
        kind: kind.into(),
        status: status.into(),
        last_update_time: now.rfc3339(),
        last_transition_time: now.rfc3339(),
        reason: reason.into(),
        message: message.into(),
    }
}

impl Rollout<'_> {
    /// Notes in the condition `Progressing` that the Deployment was paused or resumed, so that the
    /// time in between does not count against the deadline.
    pub(super) fn note_pause(&mut self) {
        if self.deployment.deadline().is_none() {
            return;
        }
        let reason = self.status.condition(PROGRESSING).map_or("", |condition| &condition.reason);
        let is_paused = self.deployment.spec.paused;
        if reason == TIMED_OUT || is_paused == (reason == PAUSED) {
            return;
        }
        let (reason, message) = match is_paused {
            true => (PAUSED, "Deployment is paused"),
            false => ("DeploymentResumed", "Deployment is resumed"),
        };
        self.status.set(condition(self.now, PROGRESSING, "Unknown", reason, message));
    }

    /// Fills the numbers and the condition `Available` from the ReplicaSets.
    pub(super) fn count(&mut self) {
        let sum = |count: &dyn Fn(&ReplicaSet) -> i32| sum(self.sets.iter().map(count));
        let available = sum(&|set| set.status.available_replicas);
        let wanted = sum(&|set| set.spec.replicas());
        let terminating = self.sets.iter().filter_map(|set| set.status.terminating_replicas);
        let status = DeploymentStatus {
            observed_generation: self.deployment.generation(),
            replicas: sum(&|set| set.status.replicas),
            updated_replicas: self.new_set().map_or(0, |set| set.status.replicas),
            ready_replicas: sum(&|set| set.status.ready_replicas),
            available_replicas: available,
            unavailable_replicas: (wanted - available).max(0),
            terminating_replicas: Some(numbers::sum(terminating)),
            collision_count: self.status.collision_count,
            conditions: std::mem::take(&mut self.status.conditions),
        };
        self.status = status;
        let min = self.deployment.spec.replicas() - self.fenceposts.unavailable;
        let (status, reason, message) = match available >= min {
            true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
            false => (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            ),
        };
        self.status.set(condition(self.now, AVAILABLE, status, reason, message));
    }

    /// Sets the conditions `Progressing` and `ReplicaFailure`, after [`count`](Self::count).
    pub(super) fn judge_progress(&mut self) {
        let before = &self.deployment.status;
        let subject = match self.new_set() {
            Some(set) => format!("ReplicaSet {:?}", set.name()),
            None => format!("Deployment {:?}", self.deployment.name()),
        };
        let current = before.condition(PROGRESSING).cloned();
        let complete = format!("{subject} has successfully progressed.");
        // Scaling is no rollout, and one that waits for the end of old pods has not begun. The
        // message says of which ReplicaSet the last rollout was, because `Recreate` may leave no
        // pods between two rollouts.
        let has_begun = self.new_set().is_some_and(|set| set.spec.replicas() > 0);
        let was_complete = self.status.replicas == self.status.updated_replicas
            && current.as_ref().is_some_and(|current| {
                current.reason == COMPLETE && (!has_begun || current.message == complete)
            });
        match self.deployment.deadline() {
            None => self.status.remove(PROGRESSING),
            Some(_) if was_complete => {}
            Some(deadline) => {
                if self.status.is_complete(&self.deployment) {
                    let mut progress = condition(self.now, PROGRESSING, "True", COMPLETE, complete);
                    if let Some(current) = current.filter(|current| current.status == "True") {
                        progress.last_transition_time = current.last_transition_time;
                    }
                    self.status.replace(progress);
                } else if self.status.has_progressed(before) {
                    let message = format!("{subject} is progressing.");
                    let reason = "ReplicaSetUpdated";
                    let mut progress = condition(self.now, PROGRESSING, "True", reason, message);
                    // Each progress sets the update time, also with the same reason.
                    if let Some(current) = current.filter(|current| current.status == "True") {
                        progress.last_transition_time = current.last_transition_time;
                    }
                    self.status.replace(progress);
                } else if self.remaining(deadline).is_some_and(|left| left.is_zero()) {
                    let message = format!("{subject} has timed out progressing.");
                    self.status.set(condition(self.now, PROGRESSING, "False", TIMED_OUT, message));
                }
            }
        }
        let failure = |set: &ReplicaSet| {
            set.status.conditions.iter().find(|found| found.kind == REPLICA_FAILURE).cloned()
        };
        let of_new = self.new_set().and_then(failure);
        match of_new.or_else(|| self.sets.iter().find_map(failure)) {
            None => self.status.remove(REPLICA_FAILURE),
            Some(failure) => self.status.set(Condition {
                kind: failure.kind,
                status: failure.status,
                last_update_time: failure.last_transition_time.clone(),
                last_transition_time: failure.last_transition_time,
                reason: failure.reason,
                message: failure.message,
            }),
        }
    }

    /// The time left for the next progress; `None` if none is expected.
    fn remaining(&self, deadline: Duration) -> Option<Duration> {
        let progress = self.status.condition(PROGRESSING)?;
        if progress.reason == COMPLETE {
            return None;
        }
        if progress.reason == TIMED_OUT {
            return Some(Duration::ZERO);
        }
        // A time that is not known is long ago.
        let since = Timestamp::parse(&progress.last_update_time).unwrap_or_default();
        Some((since.0 + deadline).saturating_sub(self.now.0))
    }

    /// When the deadline has to be checked; `None` if nothing is expected.
    pub(super) fn next_check(&self) -> Option<Duration> {
        let deadline = self.deployment.deadline()?;
        if self.deployment.spec.paused || self.status.is_complete(&self.deployment) {
            return None;
        }
        let left = self.remaining(deadline).filter(|left| !left.is_zero())?;
        // Times have whole seconds.
        Some(left + Duration::from_secs(1))
    }
}
