//! The life of one Network, from before its type exists to after its deletion: what `setpoint demo` tells and tests check.
//!
//! The story is data: steps that declare something, and what must be seen afterwards. [`tell`] runs it against any API server
//! with the Network controller beside it; it only declares and looks, as a person would. It waits for states, never for times.

mod journal;
mod look;
mod steps;

pub use journal::Journal;
pub use steps::{NAMESPACE, NETWORK};

use kube_client::Client;
use setpoint_runtime::{ControllerHandle, ControllerState};
use std::time::Duration;
use steps::{STEPS, Step};

/// How long a step may take before the story gives up: far beyond any back-off of the controller.
pub const STEP_PATIENCE: Duration = Duration::from_secs(120);

/// Why a story could not be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoryError {
    /// The API server refused what a step declares.
    #[error("{step}: {what}")]
    Refused {
        /// The step's title.
        step: &'static str,
        /// What was asked.
        what: &'static str,
        /// Why not.
        #[source]
        source: kube_client::Error,
    },
    /// What a step waits for did not come.
    #[error("{step}: nothing came of it within {STEP_PATIENCE:?}; seen last:\n{seen}")]
    TimedOut {
        /// The step's title.
        step: &'static str,
        /// What was seen when patience ended.
        seen: String,
    },
}

/// How one step went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What the step is about.
    pub title: &'static str,
    /// What was declared, as a person would write it; empty when nothing was.
    pub declared: &'static str,
    /// What must be seen.
    pub expected: &'static str,
    /// What was seen.
    pub seen: String,
}

impl Told {
    /// Whether things are as they should be.
    pub fn is_right(&self) -> bool {
        self.seen == self.expected
    }
}

/// Tells the story: each step's outcome goes to `say` as soon as it is known.
///
/// `controller` is the Network controller's handle, whose manager the caller runs; `journal` hears what it logs.
///
/// # Errors
///
/// When a step cannot be taken or does not end. A step that ends otherwise than it should is told, not an error.
pub async fn tell(
    client: &Client,
    controller: &ControllerHandle,
    journal: &Journal,
    mut say: impl FnMut(&Told),
) -> Result<(), StoryError> {
    for step in STEPS {
        let seen = take(step, client, controller, journal).await?;
        say(&Told { title: step.title, declared: step.declared, expected: step.expected, seen });
    }
    Ok(())
}

/// Takes one step and waits until what it is about has settled.
async fn take(
    step: &Step,
    client: &Client,
    controller: &ControllerHandle,
    journal: &Journal,
) -> Result<String, StoryError> {
    let refused = |what| move |source| StoryError::Refused { step: step.title, what, source };
    steps::declare(step, client).await.map_err(refused("declare it"))?;
    let mut seen = String::new();
    let settled = async {
        loop {
            let view = look::at(step, client, journal).await.map_err(refused("look at it"))?;
            let runs = !step.wants_controller || controller.state() == ControllerState::Running;
            let is_settled = view.is_settled && runs;
            seen = view.text;
            if is_settled {
                return Ok(());
            }
            tokio::time::sleep(look::PERIOD).await;
        }
    };
    match tokio::time::timeout(STEP_PATIENCE, settled).await {
        Ok(settled) => settled.map(|()| seen),
        Err(_) => Err(StoryError::TimedOut { step: step.title, seen }),
    }
}
