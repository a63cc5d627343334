//! The life of one Network, from before its type exists to after its deletion. `setpoint demo`
//! shows it, and tests check it.
//!
//! The story is data: a list of steps, each with a manifest to declare and the result to expect.
//! [`run`] runs it as a client of any API server with a running Network controller. It waits for
//! states and never for a fixed time.

mod journal;
mod observe;
mod steps;

pub use journal::Journal;
pub use steps::{NAMESPACE, NETWORK};

use kube_client::Client;
use std::time::Duration;
use steps::{Act, STEPS, Step};

/// Maximum time for a step, far longer than any back-off of the controller.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a story could not be played to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoryError {
    /// The API server refused a request of a step.
    #[error("{step}: {request}")]
    Refused {
        /// The step's title.
        step: &'static str,
        /// The request.
        request: &'static str,
        /// The cause.
        #[source]
        source: kube_client::Error,
    },
    /// A step did not reach its expected state in time.
    #[error("{step}: not done within {STEP_TIMEOUT:?}; last observed:\n{observed}")]
    TimedOut {
        /// The step's title.
        step: &'static str,
        /// The last observed state.
        observed: String,
    },
}

/// The outcome of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepOutcome {
    /// What the step does.
    pub title: &'static str,
    /// The declared manifest; empty if the step declares nothing.
    pub declared: &'static str,
    /// The expected result.
    pub expected: &'static str,
    /// The observed result.
    pub observed: String,
}

impl StepOutcome {
    /// Whether the observed result is the expected one.
    pub fn is_expected(&self) -> bool {
        self.observed == self.expected
    }
}

/// Whether the controller's events can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// Every event arrives: a step that changes the Network waits for its event.
    Arrive,
    /// Events may be lost, because the server fails or the controller is killed. They are neither
    /// awaited nor reported.
    MayBeLost,
}

/// Plays the story and calls `report` with the outcome of each step as soon as it is known.
///
/// The caller runs the Network controller, and may stop it and start another one during the story.
/// `reconciles` returns whether a controller is running now. `journal` has the controller's log
/// lines.
///
/// # Errors
///
/// If a request fails or a step does not finish. An outcome that differs from the expected one is
/// reported and is not an error.
pub async fn run(
    client: &Client,
    reconciles: impl Fn() -> bool,
    journal: &Journal,
    events: Events,
    mut report: impl FnMut(&StepOutcome),
) -> Result<(), StoryError> {
    for step in STEPS {
        let observed = run_step(step, client, &reconciles, journal, events).await?;
        let expected = events.expected(step);
        report(&StepOutcome { title: step.title, declared: step.declared, expected, observed });
    }
    Ok(())
}

impl Events {
    /// The expected result of a step, without the last line if that is an event which may be lost.
    fn expected(self, step: &Step) -> &'static str {
        match (self, step.expected.rsplit_once('\n')) {
            (Self::MayBeLost, Some((rest, _))) if step.act == Act::Apply => rest,
            _ => step.expected,
        }
    }
}

/// Runs one step and waits until its result has settled.
async fn run_step(
    step: &Step,
    client: &Client,
    reconciles: impl Fn() -> bool,
    journal: &Journal,
    events: Events,
) -> Result<String, StoryError> {
    let refused = |request| move |source| StoryError::Refused { step: step.title, request, source };
    steps::declare(step, client).await.map_err(refused("send the request"))?;
    let mut observed = String::new();
    let settled = async {
        loop {
            let observation = observe::observe(step, client, journal, events)
                .await
                .map_err(refused("observe the result"))?;
            let runs = !step.needs_controller || reconciles();
            let is_settled = observation.is_settled && runs;
            observed = observation.text;
            if is_settled {
                return Ok(());
            }
            tokio::time::sleep(observe::PERIOD).await;
        }
    };
    match tokio::time::timeout(STEP_TIMEOUT, settled).await {
        Ok(settled) => settled.map(|()| observed),
        Err(_) => Err(StoryError::TimedOut { step: step.title, observed }),
    }
}
