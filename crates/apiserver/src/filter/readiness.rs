//! Until the registry has started, no path is answered from an empty catalog: a 404 would tell a
//! garbage collector that a type is gone. Requests wait for a short time, so that a client that
//! starts together with its server needs no retry.

use setpoint_registry::Registry;
use std::time::Duration;

/// How long a request waits for start-up before it is answered with 503. Start-up takes
/// milliseconds.
const READY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits for start-up; whether the registry has started. Dropping the future has no effect.
pub(crate) async fn wait(registry: &Registry) -> bool {
    tokio::time::timeout(READY_WAIT_MAX, registry.wait_ready()).await.is_ok()
}
