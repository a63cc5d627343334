//! What only this process can say about a request, as its extensions.
//!
//! An [`Identity`](setpoint_registry::Identity) as a request extension is trusted: a transport sets
//! it for a verified client certificate, the in-process client for itself.

use std::sync::Arc;

/// Which reconcile a request comes from: controller, key and reconcile id, in a form its sender
/// chose. A request extension in process, the header [`Origin::HEADER`] on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub Arc<str>);

impl Origin {
    /// The header that carries it.
    pub const HEADER: &'static str = "setpoint-origin";
}
