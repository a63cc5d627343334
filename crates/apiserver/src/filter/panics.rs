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
            let what = setpoint_object::panic::message(&*panic);
            tracing::error!(panic = what, "a request handler panicked");
            respond::plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "This request caused apiserver to panic. Look in the logs for details.\n",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn a_panic_of_a_handler_is_answered_with_500() {
        let response = catch(async { panic!("on purpose") }).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "This request caused apiserver to panic. Look in the logs for details.\n");
        let response = catch(async { respond::plain(StatusCode::OK, "fine") }).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
}
