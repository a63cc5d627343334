//! What a reconciler works with.

use std::{fmt, sync::Arc};

use setpoint_object::time::Clock;
use tokio_util::sync::CancellationToken;

use crate::{client::Client, event::EventRecorder};

/// What a reconciler is given for one pass: the client, the recorder, the clock, and which pass this is. Cheap to clone.
///
/// What a reconciler needs of its own, a back-end or settings, are its fields.
#[derive(Clone)]
pub struct Context {
    // Helpers.
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: Clock,
    pub(crate) stopping: CancellationToken,

    // Which pass this is.
    pub(crate) controller: Arc<str>,
    pub(crate) reconcile_id: ReconcileId,
    pub(crate) attempt: u32,
}

impl Context {
    /// The client: reads from the cache, writes to the server. Its requests carry the [`Origin`](crate::Origin) of this pass.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where to tell what happened, in the controller's name.
    pub fn recorder(&self) -> &EventRecorder {
        &self.recorder
    }

    /// What time it is.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The controller's name.
    pub fn controller(&self) -> &str {
        &self.controller
    }

    /// Which pass this is, among all passes of all controllers.
    pub fn reconcile_id(&self) -> ReconcileId {
        self.reconcile_id
    }

    /// How many passes over this key have failed, or asked to be repeated, in a row: zero at first.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Cancelled when the controller is to stop: long work should end at the next safe point.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("controller", &self.controller)
            .field("reconcile_id", &self.reconcile_id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// The id of one pass, written as a version 4 UUID. Drawn from the manager's seed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReconcileId(pub(crate) u128);

impl fmt::Display for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Version 4, variant 1 (RFC 9562 §5.4).
        let bits = self.0 & !(0xf << 76) & !(0b11 << 62) | (0x4 << 76) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl fmt::Debug for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
