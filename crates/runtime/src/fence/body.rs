//! A request body that fails when it is asked for too late.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube_client::client::Body;

use super::Fence;
use crate::error::BoxError;

/// A body behind a fence.
pub(super) struct FencedBody {
    inner: Body,
    fence: Arc<dyn Fence>,
    /// It was asked for.
    is_begun: bool,
}

impl FencedBody {
    pub(super) fn new(inner: Body, fence: Arc<dyn Fence>) -> Self {
        Self { inner, fence, is_begun: false }
    }
}

impl HttpBody for FencedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        this.is_begun = true;
        // The check comes last: nothing waits between it and the frame's hand-over.
        let frame = std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Err(fenced) = this.fence.check() {
            return Poll::Ready(Some(Err(fenced.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
    }

    /// Not before it was asked for: a connection does not poll a body that has ended.
    fn is_end_stream(&self) -> bool {
        self.is_begun && self.inner.is_end_stream()
    }

    /// The inner one's; but an empty body has an unknown length until it was asked for, since one
    /// of length zero is never polled.
    fn size_hint(&self) -> SizeHint {
        let hint = self.inner.size_hint();
        if hint.exact() == Some(0) && !self.is_begun { SizeHint::default() } else { hint }
    }
}
