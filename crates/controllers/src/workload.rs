//! Workload controllers: they create, replace and delete pods, and keep what depends on pods.
//!
//! # Theory
//!
//! Each is an ordinary controller of [`setpoint_runtime`], with kube-controller-manager's name. All
//! of them share one [`Manager`], so there is one cache of pods. `ROWS` lists them.
//!
//! They write with merge patches of the fields they own, and create pods from the template's JSON:
//! fields that this program does not know are kept. They read what they have written (`fresh`),
//! instead of counting expectations. Events go to the core API, in the reference's words.

pub mod autoscaler;
mod by_label;
pub mod certificates;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod device_taint_eviction;
mod difference;
pub mod disruption;
pub mod endpoints;
pub mod ephemeral_volume;
mod fresh;
mod history;
pub mod job;
pub mod node_lifecycle;
mod node_pods;
pub mod node_ttl;
mod pod;
mod pod_control;
pub mod pod_gc;
pub mod replica_set;
pub mod resource_claim;
pub mod stateful_set;
pub mod taint_eviction;
pub mod ttl_after_finished;
pub(crate) mod view;
pub mod volume_binder;

use crate::selection::{Selection, names};
use crate::setup::Setup;
use autoscaler::HorizontalPodAutoscalerController;
use certificates::{CsrApprover, CsrCleaner, CsrSigner};
use cron_job::CronJobController;
use daemon_set::DaemonSetController;
use deployment::DeploymentController;
use device_taint_eviction::DeviceTaintEviction;
use disruption::DisruptionController;
use endpoints::{EndpointSliceController, EndpointSliceMirroring, EndpointsController};
use ephemeral_volume::EphemeralVolumeController;
use job::JobController;
use node_lifecycle::NodeLifecycleController;
use node_ttl::NodeTtlController;
use pod_gc::PodGarbageCollector;
use replica_set::{ReplicaSetController, ReplicationControllerController};
use resource_claim::ResourceClaimController;
use setpoint_runtime::events::EventApi;
use setpoint_runtime::{BoxError, Manager};
use stateful_set::StatefulSetController;
use taint_eviction::TaintEvictionController;
use tokio_util::sync::CancellationToken;
use ttl_after_finished::TtlAfterFinished;
use volume_binder::VolumeBinder;

/// The field manager of all writes.
const COMPONENT: &str = "kube-controller-manager";

/// Adds a controller to a manager.
type Add = fn(Setup, &mut Manager) -> Result<(), BoxError>;

/// The workload controllers, by kube-controller-manager's names.
const ROWS: &[(&str, Add)] = &[
    (names::CSR_APPROVING, |setup, manager| CsrApprover::new(setup).add_to(manager)),
    (names::CSR_CLEANER, |setup, manager| CsrCleaner::new(setup).add_to(manager)),
    (names::CSR_SIGNING, |setup, manager| CsrSigner::new(setup).add_to(manager)),
    (names::DAEMON_SET, |setup, manager| DaemonSetController::new(setup).add_to(manager)),
    (names::DEPLOYMENT, |setup, manager| DeploymentController::new(setup).add_to(manager)),
    (names::DEVICE_TAINT_EVICTION, |setup, manager| {
        DeviceTaintEviction::new(setup).add_to(manager)
    }),
    (names::CRON_JOB, |setup, manager| CronJobController::new(setup).add_to(manager)),
    (names::DISRUPTION, |setup, manager| DisruptionController::new(setup).add_to(manager)),
    (names::ENDPOINTS, |setup, manager| EndpointsController::new(setup).add_to(manager)),
    (names::ENDPOINT_SLICE, |setup, manager| EndpointSliceController::new(setup).add_to(manager)),
    (names::ENDPOINT_SLICE_MIRRORING, |setup, manager| {
        EndpointSliceMirroring::new(setup).add_to(manager)
    }),
    (names::EPHEMERAL_VOLUME, |setup, manager| {
        EphemeralVolumeController::new(setup).add_to(manager)
    }),
    (names::HORIZONTAL_POD_AUTOSCALER, |setup, manager| {
        HorizontalPodAutoscalerController::new(setup).add_to(manager)
    }),
    (names::JOB, |setup, manager| JobController::new(setup).add_to(manager)),
    (names::POD_GC, |setup, manager| PodGarbageCollector::new(setup).add_to(manager)),
    (names::TTL_AFTER_FINISHED, |setup, manager| TtlAfterFinished::new(setup).add_to(manager)),
    (names::REPLICA_SET, |setup, manager| ReplicaSetController::new(setup).add_to(manager)),
    (names::REPLICATION_CONTROLLER, |setup, manager| {
        ReplicationControllerController::new(setup).add_to(manager)
    }),
    (names::RESOURCE_CLAIM, |setup, manager| ResourceClaimController::new(setup).add_to(manager)),
    (names::STATEFUL_SET, |setup, manager| StatefulSetController::new(setup).add_to(manager)),
    (names::NODE_LIFECYCLE, |setup, manager| NodeLifecycleController::new(setup).add_to(manager)),
    (names::TAINT_EVICTION, |setup, manager| TaintEvictionController::new(setup).add_to(manager)),
    (names::NODE_TTL, |setup, manager| NodeTtlController::new(setup).add_to(manager)),
    (names::VOLUME_BINDER, |setup, manager| VolumeBinder::new(setup).add_to(manager)),
];

/// The workload controllers of a selection, on one manager. They do nothing until
/// [`WorkloadControllers::run`].
#[derive(Debug)]
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

    /// Whether a selection enables any.
    pub fn has_any(selection: &Selection) -> bool {
        ROWS.iter().any(|(name, _)| selection.is_enabled(name))
    }

    /// Whether there are none to run.
    pub fn is_empty(&self) -> bool {
        !Self::has_any(&self.selection)
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
