//! Catches panics of handlers, so that they end a request and not the server.

use futures::FutureExt as _;
use std::any::Any;
use std::panic::AssertUnwindSafe;

/// Runs a future; returns the message if it panics.
///
/// The caller's shared data must tolerate a panic of the future. Here only the notes are shared,
/// behind a lock that is not held while a handler runs.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|payload| message(&*payload))
}

/// The message of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
