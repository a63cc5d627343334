//! A handler that panics is answered with 500; the connection and the server continue.

use crate::body::Body;
use crate::respond;
use futures::FutureExt;
use http::{Response, StatusCode};
use std::panic::AssertUnwindSafe;

/// Runs a handler.
pub(crate) async fn catch(handler: impl Future<Output = Response<Body>>) -> Response<Body> {
    // Unwind safe: shared state is behind locks that do not poison and are held for one statement.
    match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("not a string");
            tracing::error!(panic = what, "a request handler panicked");
            respond::plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "This request caused apiserver to panic. Look in the logs for details.\n",
            )
        }
    }
}
