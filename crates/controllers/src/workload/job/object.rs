//! Jobs as their controllers see them.

use super::policy::PodFailurePolicy;
use crate::workload::view::view;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, SuccessPolicy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::time::Timestamp;

/// The value of `spec.managedBy` for this controller.
const MANAGED_BY: &str = "kubernetes.io/job-controller";

view! {
    /// A Job.
    Job of batch::Job {
        /// The spec.
        spec: JobSpec,
        /// The observed state.
        status: JobStatus,
    }
}

/// `spec` of a Job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSpec {
    parallelism: Option<i32>,
    /// `None`: the Job is complete with the first success.
    pub(crate) completions: Option<i32>,
    pub(crate) active_deadline_seconds: Option<i64>,
    backoff_limit: Option<i32>,
    pub(crate) backoff_limit_per_index: Option<i32>,
    pub(crate) max_failed_indexes: Option<i32>,
    /// `NonIndexed` or `Indexed`.
    pub(crate) completion_mode: Option<String>,
    pub(crate) suspend: Option<bool>,
    pub(crate) pod_failure_policy: Option<PodFailurePolicy>,
    pub(crate) success_policy: Option<SuccessPolicy>,
    pod_replacement_policy: Option<String>,
    managed_by: Option<String>,
    pub(crate) ttl_seconds_after_finished: Option<i32>,
    pub(super) selector: Value,
    /// The template of its pods, as JSON.
    pub(crate) template: Value,
}

impl Job {
    /// Whether another controller manages it.
    pub(crate) fn is_managed_elsewhere(&self) -> bool {
        self.spec.managed_by.as_deref().is_some_and(|by| by != MANAGED_BY)
    }

    /// How many pods may run at a time.
    pub(crate) fn parallelism(&self) -> i32 {
        self.spec.parallelism.unwrap_or(1)
    }

    /// How many pods may fail.
    pub(crate) fn backoff_limit(&self) -> i32 {
        self.spec.backoff_limit.unwrap_or(6)
    }

    /// The number of indexes, if each pod has one.
    pub(crate) fn indexed(&self) -> Option<i32> {
        let is_indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        is_indexed.then(|| self.spec.completions.unwrap_or_default())
    }

    /// Whether it is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// Whether pods are replaced only once they have failed, not while they terminate.
    pub(crate) fn replaces_failed_only(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
            || self.spec.pod_failure_policy.is_some()
    }

    /// The selector of its pods; `None` if there is none, which matches nothing.
    pub(crate) fn selector(&self) -> Option<Selector> {
        Selector::from_object(&self.spec.selector).ok().flatten()
    }

    /// The condition that ends it, `Complete` or `Failed`.
    pub(crate) fn finished(&self) -> Option<&JobCondition> {
        ["Complete", "Failed"].into_iter().find_map(|kind| true_condition(&self.status, kind))
    }

    /// When it ended.
    pub(crate) fn finished_at(&self) -> Option<Timestamp> {
        self.finished()?.last_transition_time.as_ref().and_then(timestamp)
    }
}

/// The condition of a type, if it is true.
pub(crate) fn true_condition<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind && condition.status == "True")
}

/// A time of an object; `None` before 1970.
pub(crate) fn timestamp(time: &Time) -> Option<Timestamp> {
    let seconds = u64::try_from(time.0.as_second()).ok()?;
    let nanos = u32::try_from(time.0.subsec_nanosecond()).ok()?;
    Some(Timestamp(std::time::Duration::new(seconds, nanos)))
}
