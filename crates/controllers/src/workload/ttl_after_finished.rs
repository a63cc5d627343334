//! Deletes finished Jobs `ttlSecondsAfterFinished` after their end.

use super::COMPONENT;
use super::job::object::Job;
use super::pod_control::precondition;
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use kube_core::params::PropagationPolicy;
use setpoint_object::time::Timestamp;
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};
use std::time::Duration;

/// The controller's name.
const NAME: &str = "ttl-after-finished-controller";
/// Number of Jobs that are processed at the same time: 5, as in kube-controller-manager.
const WORKERS: usize = 5;

/// The controller that deletes finished Jobs.
#[derive(Clone, Debug)]
#[must_use]
pub struct TtlAfterFinished(());

impl TtlAfterFinished {
    /// Creates a controller. It has no settings: client, clock and seed are the manager's.
    pub fn new(_: Setup) -> Self {
        Self(())
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let controller = Controller::builder(NAME)
            .for_(Watch::<Job>::new())
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(Pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

struct Pass;

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let jobs = context.client().field_manager(COMPONENT).api::<Job>();
        let now = context.clock().now();
        let Some(left) = jobs.get(request)?.and_then(|job| remaining(&job, now)) else {
            return Ok(Action::await_change());
        };
        if !left.is_zero() {
            return Ok(Action::requeue_after(left));
        }
        // The time may have been changed since.
        let Some(job) = jobs.get_live(request).await? else { return Ok(Action::await_change()) };
        if self::remaining(&job, now).is_some_and(|left| left.is_zero()) {
            let mut params = precondition(job.uid());
            params.propagation_policy = Some(PropagationPolicy::Foreground);
            jobs.delete(request, &params).await?;
        }
        Ok(Action::await_change())
    }
}

/// How long a Job still stays; `None` if it has not finished, has no such time, or is being
/// deleted.
fn remaining(job: &Job, now: Timestamp) -> Option<Duration> {
    let ttl = job.spec.ttl_seconds_after_finished.filter(|_| !job.is_being_deleted())?;
    let ttl = Duration::from_secs(u64::try_from(ttl).unwrap_or_default());
    Some((job.finished_at()? + ttl).since(now))
}
