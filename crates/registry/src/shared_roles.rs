//! Roles and bindings that several registries of a process have in common.

use setpoint_store::Txn;
use std::sync::{Arc, OnceLock};

/// The roles and bindings of the start, encoded once for several registries of a process
/// ([`RegistryBuilder::shared_roles`](crate::RegistryBuilder::shared_roles)): each has them in its
/// own store, over the same bytes. A clone is the same roles.
#[derive(Debug, Clone, Default)]
pub struct SharedRoles(Arc<OnceLock<Vec<Txn>>>);

impl SharedRoles {
    /// The transactions that create them. The first registry makes them.
    pub(crate) fn creations(&self, make: impl FnOnce() -> Vec<Txn>) -> Vec<Txn> {
        self.0.get_or_init(make).clone()
    }
}
