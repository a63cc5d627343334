//! Protection: an object that is being deleted remains while it is in use.
//!
//! # Theory
//!
//! Admission adds a finalizer to every object of some resources. Four controllers remove it again:
//!
//! | object being deleted | its finalizer | loses it when |
//! |---|---|---|
//! | PersistentVolumeClaim | `kubernetes.io/pvc-protection` | no pod with a node uses it, by name or as the claim of a generic ephemeral volume |
//! | PersistentVolume | `kubernetes.io/pv-protection` | its phase is not `Bound` |
//! | PodGroup | `scheduling.k8s.io/podgroup-protection` | no pod names it but those that have ended |
//! | VolumeAttributesClass | `kubernetes.io/vac-protection` | no claim and no volume uses it |
//!
//! Claims and groups are reconciled by namespace: the deletion of one and the end of
//! a pod both enqueue their namespace, and one pass lists its pods once, from the server, because a
//! cache may not yet show every pod.

mod claims;
mod classes;
mod finalizer;
mod groups;
mod volumes;
mod waiting;

pub use classes::AttributesClassProtection;
pub use groups::GroupProtection;

pub(crate) use finalizer::{release, set_finalizers};

use crate::setup::Setup;
use setpoint_runtime::{BoxError, Manager};

/// The protection of claims and that of volumes. They do nothing until a manager runs
/// them.
#[derive(Debug)]
#[must_use]
pub struct ProtectionController {
    setup: Setup,
}

impl ProtectionController {
    /// Creates controllers that start from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Adds them to a manager of [`Setup::manager`], which runs them; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses one, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        manager.add(claims::controller(&self.setup)?)?;
        manager.add(volumes::controller(&self.setup)?)?;
        Ok(())
    }
}
