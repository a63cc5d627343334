//! The controller on the runtime: a watch and a reconciler.
//!
//! - A pass gets only a key, and reads the pod from the manager's cache. A pod that is absent there
//!   is deleted.
//! - After an error the key is tried again with a growing delay. After [`ATTEMPTS_MAX`] attempts
//!   the controller gives up and records an event. The next change of the pod starts again at one.

use k8s_openapi::api::core::v1::Pod;
use setpoint::prelude::*;
use std::sync::Arc;

/// Maximum attempts for one change of a pod: five, as in client-go's example.
pub const ATTEMPTS_MAX: u32 = 5;

/// The work for a pod that has changed or was deleted.
pub trait Job: Send + Sync + 'static {
    /// Handles the pod; `None` if it was deleted. An error leads to another attempt.
    fn run(&self, key: &Key, pod: Option<Arc<Pod>>) -> anyhow::Result<()>;
}

impl<F: Fn(&Key, Option<Arc<Pod>>) -> anyhow::Result<()> + Send + Sync + 'static> Job for F {
    fn run(&self, key: &Key, pod: Option<Arc<Pod>>) -> anyhow::Result<()> {
        self(key, pod)
    }
}

/// Prints a line for each pod that has changed or was deleted.
pub fn print(key: &Key, pod: Option<Arc<Pod>>) -> anyhow::Result<()> {
    match pod {
        Some(pod) => println!("{}", crate::line(&pod)),
        None => println!("{key} is gone"),
    }
    Ok(())
}

/// The reconciler of a job.
struct Printer<J>(J);

impl<J: Job> Reconciler for Printer<J> {
    type Error = anyhow::Error;

    async fn reconcile(&self, key: Request, context: Context) -> anyhow::Result<Action> {
        let pod = context.client().api::<Pod>().get(&key)?;
        self.0.run(&key, pod)?;
        Ok(Action::await_change())
    }
}

/// The controller with `n_workers` workers.
///
/// # Errors
///
/// None: these options are valid.
pub fn controller(n_workers: usize, job: impl Job) -> Result<Controller, BuildError> {
    Controller::builder("pod-printer")
        .for_(Watch::<Pod>::new())
        .concurrency(n_workers)
        .rate_limiter(RateLimits::new().max_attempts(ATTEMPTS_MAX))
        .build(Printer(job))
}
