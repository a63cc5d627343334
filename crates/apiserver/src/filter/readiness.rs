//! Until the registry has started no path is answered from an empty catalog: a 404 would tell a garbage collector that a type
//! is gone. Requests wait a little, so that a client made together with its server needs no retry of its own.

use std::time::Duration;
use tokio::sync::watch;

/// How long a request waits for start-up before it is answered with 503. Start-up takes milliseconds; a second is patience.
const READY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Whether the registry has started, after waiting for it. Dropping it loses nothing.
pub(crate) async fn wait(mut ready: watch::Receiver<bool>) -> bool {
    if *ready.borrow() {
        return true;
    }
    matches!(tokio::time::timeout(READY_WAIT_MAX, ready.wait_for(|ready| *ready)).await, Ok(Ok(_)))
}
