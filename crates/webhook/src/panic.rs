//! Catches panics of handlers, so that they end a request and not the server.

use futures::FutureExt as _;
use setpoint_object::panic::message;
use std::panic::AssertUnwindSafe;

/// Runs a future; returns the message if it panics.
///
/// The caller's shared data must tolerate a panic of the future. Here only the notes are shared,
/// behind a lock that is not held while a handler runs.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|payload| message(&*payload).to_owned())
}
