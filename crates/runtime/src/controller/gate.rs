//! Who may say that a key is somebody else's.

use std::{any::Any, sync::Arc};

use crate::fence::{Deadline, Fence, Fenced};

/// Says which keys this process may reconcile, at each pass anew: of a sharded controller, those of
/// its shard.
pub(crate) trait KeyGate<R>: Send + Sync {
    /// Whether a pass over `key` may begin now. A key that may not is left without a pass.
    fn enter(&self, key: &R) -> Option<GatePass>;
}

/// The leave to reconcile one key. Dropped when the pass has ended and all its requests have been
/// answered or dropped, before the key may be handed out again.
pub(crate) struct GatePass {
    _held: Box<dyn Any + Send + Sync>,
    deadline: Arc<Deadline>,
}

impl GatePass {
    /// One that drops `held` when the pass is over, and that ends the pass at the deadline.
    pub(crate) fn until(held: impl Any + Send + Sync, deadline: Arc<Deadline>) -> Self {
        Self { _held: Box::new(held), deadline }
    }

    /// Waits until the pass is to be dropped where it is. Cancel safe.
    pub(super) async fn revoked(&self) -> Fenced {
        self.deadline.passed().await;
        self.deadline.check().err().unwrap_or(Fenced::NotHeld)
    }
}
