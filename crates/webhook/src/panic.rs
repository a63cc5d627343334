//! A handler's panic ends its request, not the server.

use futures::FutureExt as _;
use std::any::Any;
use std::panic::AssertUnwindSafe;

/// Runs a future; its panic becomes its message.
///
/// What the future shared with others is theirs to keep whole: here nothing is shared but notes
/// behind a lock that is not held while a handler runs.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|payload| message(&*payload))
}

/// What a panic says.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
