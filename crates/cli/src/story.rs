//! The life of one Network, from before its type exists to after its deletion: what `setpoint demo`
//! tells and tests check.
//!
//! The story is data: steps that declare something, and what must be seen afterwards. [`tell`] runs
//! it against any API server with the Network controller beside it; it only declares and looks, as
//! a person would. It waits for states, never for times.

mod journal;
mod look;
mod steps;

pub use journal::Journal;
pub use steps::{NAMESPACE, NETWORK};

use kube_client::Client;
use std::time::Duration;
use steps::{Act, STEPS, Step};

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

/// What becomes of the controller's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// Each gets there: a step about a Network waits for the one that tells of it.
    Arrive,
    /// Some are lost, as events may be when the server fails or the controller dies: none is waited
    /// for, or told.
    MayBeLost,
}

/// Tells the story: each step's outcome goes to `say` as soon as it is known.
///
/// The caller runs the Network controller, and may end it and run another one meanwhile;
/// `reconciles` says whether it has one that runs now. `journal` hears what it logs.
///
/// # Errors
///
/// When a step cannot be taken or does not end. A step that ends otherwise than it should is told,
/// not an error.
pub async fn tell(
    client: &Client,
    reconciles: impl Fn() -> bool,
    journal: &Journal,
    events: Events,
    mut say: impl FnMut(&Told),
) -> Result<(), StoryError> {
    for step in STEPS {
        let seen = take(step, client, &reconciles, journal, events).await?;
        let expected = events.expected(step);
        say(&Told { title: step.title, declared: step.declared, expected, seen });
    }
    Ok(())
}

impl Events {
    /// What must be seen of a step: without its last line when that is an event which may be lost.
    fn expected(self, step: &Step) -> &'static str {
        match (self, step.expected.rsplit_once('\n')) {
            (Self::MayBeLost, Some((rest, _))) if step.act == Act::Apply => rest,
            _ => step.expected,
        }
    }
}

/// Takes one step and waits until what it is about has settled.
async fn take(
    step: &Step,
    client: &Client,
    reconciles: impl Fn() -> bool,
    journal: &Journal,
    events: Events,
) -> Result<String, StoryError> {
    let refused = |what| move |source| StoryError::Refused { step: step.title, what, source };
    steps::declare(step, client).await.map_err(refused("declare it"))?;
    let mut seen = String::new();
    let settled = async {
        loop {
            let view =
                look::at(step, client, journal, events).await.map_err(refused("look at it"))?;
            let runs = !step.wants_controller || reconciles();
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
