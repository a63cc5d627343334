//! Whether a manager's controllers work.

use crate::controller::{ControllerHandle, ControllerState};

/// Whether all of a manager's controllers reconcile. Cheap to clone; any number of tasks may wait.
#[derive(Debug, Clone)]
pub struct Readiness {
    controllers: Vec<ControllerHandle>,
}

impl Readiness {
    pub(super) fn new(controllers: Vec<ControllerHandle>) -> Self {
        Self { controllers }
    }

    /// Whether every controller is running now.
    pub fn is_ready(&self) -> bool {
        self.controllers.iter().all(|controller| controller.state() == ControllerState::Running)
    }

    /// Waits until every controller has been running; says whether they all got there: one that ends before will not.
    ///
    /// Cancel safe: it only looks.
    pub async fn ready(&self) -> bool {
        for controller in &self.controllers {
            let mut state = controller.watch_state();
            let settled = |state: &ControllerState| {
                matches!(state, ControllerState::Running | ControllerState::Stopped)
            };
            match state.wait_for(settled).await {
                Ok(state) if *state == ControllerState::Running => {}
                _ => return false,
            }
        }
        true
    }
}
