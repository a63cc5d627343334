//! Until the registry has started no path is answered from an empty catalog: a 404 would tell a
//! garbage collector that a type is gone. Requests wait a little, so that a client made together
//! with its server needs no retry of its own.

use setpoint_registry::Registry;
use std::time::Duration;

/// How long a request waits for start-up before it is answered with 503. Start-up takes
/// milliseconds; a second is patience.
const READY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Whether the registry has started, after waiting for it. Dropping it loses nothing.
pub(crate) async fn wait(registry: &Registry) -> bool {
    tokio::time::timeout(READY_WAIT_MAX, registry.wait_ready()).await.is_ok()
}
