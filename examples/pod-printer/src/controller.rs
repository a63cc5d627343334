//! The controller, as the runtime has it: what is watched, and what is done for a key.
//!
//! What to look for: a pass is told a key and nothing else, and looks at the copy of the pods that
//! the manager keeps, where "not there" means "deleted". An error comes back after a growing pause;
//! after [`ATTEMPTS_MAX`] the controller gives up, with an event: the next change of the pod starts
//! anew.

use k8s_openapi::api::core::v1::Pod;
use setpoint::prelude::*;
use std::sync::Arc;

/// How often one change of a pod is tried before the controller gives it up: five times, as
/// client-go's example.
pub const ATTEMPTS_MAX: u32 = 5;

/// The job: what is done with a pod that changed, or that is gone.
pub trait Job: Send + Sync + 'static {
    /// Does it. An error is tried again.
    fn run(&self, key: &Key, pod: Option<Arc<Pod>>) -> anyhow::Result<()>;
}

impl<F: Fn(&Key, Option<Arc<Pod>>) -> anyhow::Result<()> + Send + Sync + 'static> Job for F {
    fn run(&self, key: &Key, pod: Option<Arc<Pod>>) -> anyhow::Result<()> {
        self(key, pod)
    }
}

/// Prints a line for each pod that changed or went.
pub fn print(key: &Key, pod: Option<Arc<Pod>>) -> anyhow::Result<()> {
    match pod {
        Some(pod) => println!("{}", crate::line(&pod)),
        None => println!("{key} is gone"),
    }
    Ok(())
}

/// A reconciler over one job.
struct Printer<J>(J);

impl<J: Job> Reconciler for Printer<J> {
    type Error = anyhow::Error;

    async fn reconcile(&self, key: Request, context: Context) -> anyhow::Result<Action> {
        let pod = context.client().api::<Pod>().get(&key)?;
        self.0.run(&key, pod)?;
        Ok(Action::await_change())
    }
}

/// The controller, `n_workers` at work.
///
/// # Errors
///
/// Never as it is written here.
pub fn controller(n_workers: usize, job: impl Job) -> Result<Controller, BuildError> {
    Controller::builder("pod-printer")
        .for_(Watch::<Pod>::new())
        .concurrency(n_workers)
        .rate_limiter(RateLimits::new().max_attempts(ATTEMPTS_MAX))
        .build(Printer(job))
}
