//! Objects of the start that several registries of a process have in common.

use setpoint_store::Txn;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Objects of the start that are the same in every new cluster but for uid and time, encoded once
/// for several registries of a process
/// ([`RegistryBuilder::shared_objects`](crate::RegistryBuilder::shared_objects)): each has them in
/// its own store, over the same bytes. A clone is the same objects.
#[derive(Debug, Clone, Default)]
pub struct SharedObjects(Arc<OnceLock<Creations>>);

/// The transactions that create objects, by key.
pub(crate) type Creations = HashMap<&'static str, Txn>;

impl SharedObjects {
    /// The transactions that create them. The first registry makes them.
    pub(crate) fn creations(&self, make: impl FnOnce() -> Creations) -> &Creations {
        self.0.get_or_init(make)
    }
}
