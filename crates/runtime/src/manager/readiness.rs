//! Whether a manager's controllers work.

use crate::controller::{ControllerHandle, ControllerState};

/// Whether all of a manager's controllers reconcile, or would at once if this process led. Cheap to
/// clone; any number of tasks may wait.
#[derive(Debug, Clone)]
pub struct Readiness {
    controllers: Vec<ControllerHandle>,
}

impl Readiness {
    pub(super) fn new(controllers: Vec<ControllerHandle>) -> Self {
        Self { controllers }
    }

    /// Whether every controller is so now.
    pub fn is_ready(&self) -> bool {
        self.controllers.iter().all(|controller| controller.state().is_ready())
    }

    /// Waits until every controller has been so; says whether they all got there: one that ends
    /// before will not.
    ///
    /// Cancel safe: it only looks.
    pub async fn ready(&self) -> bool {
        for controller in &self.controllers {
            let mut state = controller.watch_state();
            let settled =
                |state: &ControllerState| state.is_ready() || *state == ControllerState::Stopped;
            match state.wait_for(settled).await {
                Ok(state) if state.is_ready() => {}
                _ => return false,
            }
        }
        true
    }
}
