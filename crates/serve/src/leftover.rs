//! The unread body of a request whose response is ready.
//!
//! A response that needs no body (404, 401, a body over the limit) leaves it unread. HTTP/1 can
//! only continue with the next request after the body, so hyper closes the connection, and a client
//! that is still writing gets a broken pipe instead of its response. Like Go's server, this one
//! reads on a little: a dropped body comes back here, and is read to its end while the response is
//! being sent, within limits. Beyond them the connection is closed and lingers (`linger`).

use crate::limits::LEFTOVER_WAIT_MAX;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Where an unread body is returned.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leftover(Arc<Mutex<Option<Incoming>>>);

impl Leftover {
    /// Wraps the body for the handler.
    pub(crate) fn lend(&self, body: Incoming) -> Received {
        Received { body: Some(body), owner: self.clone() }
    }

    /// The body, if it was returned unread.
    pub(crate) fn take(&self) -> Option<Incoming> {
        self.0.lock().take()
    }
}

/// Reads an unread body to its end, within limits. Returns whether the end was reached.
pub(crate) async fn drain(body: &mut Incoming, bytes_max: usize) -> bool {
    let read = async {
        let mut n_bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            n_bytes += frame.data_ref().map_or(0, Bytes::len);
            if n_bytes > bytes_max {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(LEFTOVER_WAIT_MAX, read).await.unwrap_or(false)
}

/// The body of a request. If it is dropped before its end, the server reads a little further, so
/// that the client gets the response.
#[derive(Debug)]
pub struct Received {
    body: Option<Incoming>,
    owner: Leftover,
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.owner.0.lock() = Some(body);
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}
