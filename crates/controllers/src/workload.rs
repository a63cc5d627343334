//! Workload controllers: they create, replace and delete pods.
//!
//! # Theory
//!
//! Each is an ordinary controller of [`setpoint_runtime`], with kube-controller-manager's name. All
//! of them share one [`Manager`], so there is one cache of pods. [`ROWS`] lists them.
//!
//! They write with merge patches of the fields they own, and create pods from the template's JSON:
//! fields that this program does not know are kept. They read what they have written ([`fresh`]),
//! instead of counting expectations. Events go to the core API, in the reference's words.

mod fresh;
mod pod;
mod pod_control;
pub mod replica_set;
mod view;

use crate::selection::{Selection, names};
use crate::setup::Setup;
use replica_set::{ReplicaSetController, ReplicationControllerController};
use setpoint_runtime::events::EventApi;
use setpoint_runtime::{BoxError, Manager};
use tokio_util::sync::CancellationToken;

/// The field manager of all writes.
const COMPONENT: &str = "kube-controller-manager";

/// Adds a controller to a manager.
type Add = fn(Setup, &mut Manager) -> Result<(), BoxError>;

/// The workload controllers, by kube-controller-manager's names.
const ROWS: &[(&str, Add)] = &[
    (names::REPLICA_SET, |setup, manager| ReplicaSetController::new(setup).add_to(manager)),
    (names::REPLICATION_CONTROLLER, |setup, manager| {
        ReplicationControllerController::new(setup).add_to(manager)
    }),
];

/// The workload controllers of a selection, on one manager. They do nothing until
/// [`WorkloadControllers::run`].
#[must_use]
pub struct WorkloadControllers {
    setup: Setup,
    selection: Selection,
}

impl WorkloadControllers {
    /// Those that `selection` enables.
    pub fn new(setup: Setup, selection: Selection) -> Self {
        Self { setup, selection }
    }

    /// Whether there are none to run.
    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    fn rows(&self) -> impl Iterator<Item = &'static (&'static str, Add)> {
        ROWS.iter().filter(|(name, _)| self.selection.is_enabled(name))
    }

    /// Adds them to a manager, which runs them. It should write events with [`EventApi::Core`].
    ///
    /// # Errors
    ///
    /// If the manager refuses one, for example because it has one of that name.
    pub fn add_to(&self, manager: &mut Manager) -> Result<(), BoxError> {
        self.rows().try_for_each(|(_, add)| add(self.setup.clone(), manager))
    }

    /// Runs until `stop`, then lets running passes finish. Dropping it stops everything at once.
    /// Without a controller it only waits.
    ///
    /// # Errors
    ///
    /// If a part of it fails permanently.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        if self.is_empty() {
            stop.cancelled().await;
            return Ok(());
        }
        let builder = self.setup.bare_manager().events(EventApi::Core).field_manager(COMPONENT);
        let mut manager = builder.build();
        self.add_to(&mut manager)?;
        Ok(manager.run(stop).await?)
    }
}
