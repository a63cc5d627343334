//! A client layer that fences requests.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube_client::client::Body;
use tower::{Layer, Service};

use super::Fence;
use crate::error::BoxError;

/// A tower layer that sends mutating requests only while a [`Fence`] permits.
///
/// Make it the outermost layer: layers between it and the connection (queues, retries, TLS) then
/// cannot carry a request past the deadline. Apply it within a tokio runtime, as a
/// `kube_client::Client` requires.
#[derive(Clone)]
pub struct FenceLayer {
    fence: Arc<dyn Fence>,
}

impl FenceLayer {
    /// A layer that checks this fence.
    pub fn new(fence: Arc<dyn Fence>) -> Self {
        Self { fence }
    }
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer").field("check", &self.fence.check()).finish()
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        let fence = self.fence.clone();
        // kube's `Body` can wrap any body, but only a client creates such a `Body`, from the
        // answers of its service. So this client answers with the wrapped bodies of its requests.
        let wrap = tower::service_fn(move |request: Request<Body>| {
            let body = FencedBody::new(request.into_body(), fence.clone());
            async move { Ok::<_, BoxError>(Response::new(body)) }
        });
        let wrapper = kube_client::Client::new(wrap, "default");
        FenceService { inner, fence: self.fence.clone(), wrapper }
    }
}

/// A client's service behind a fence; made by [`FenceLayer`].
#[derive(Clone)]
pub struct FenceService<S> {
    inner: S,
    fence: Arc<dyn Fence>,
    wrapper: kube_client::Client,
}

impl<S: fmt::Debug> fmt::Debug for FenceService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B> Service<Request<Body>> for FenceService<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The service that was polled ready must do the call; its clone may not be ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if !is_mutating(request.method()) {
            let answer = inner.call(request);
            return Box::pin(async move { answer.await.map_err(Into::into) });
        }
        if let Err(fenced) = self.fence.check() {
            return Box::pin(async move { Err(fenced.into()) });
        }
        let (fence, wrapper) = (self.fence.clone(), self.wrapper.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = wrapper.send(Request::new(body)).await?.into_body();
            fence.check()?;
            inner.call(Request::from_parts(parts, body)).await.map_err(Into::into)
        })
    }
}

fn is_mutating(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// A request body that fails when it is polled after the deadline.
pub(super) struct FencedBody {
    inner: Body,
    fence: Arc<dyn Fence>,
    /// It has been polled.
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
        // The check comes last: nothing waits between it and the frame's return.
        let frame = std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Err(fenced) = this.fence.check() {
            return Poll::Ready(Some(Err(fenced.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
    }

    /// False before the first poll: a connection does not poll a body that has ended.
    fn is_end_stream(&self) -> bool {
        self.is_begun && self.inner.is_end_stream()
    }

    /// The inner hint. An empty body has an unknown length until it is polled, since a body of
    /// length zero is never polled.
    fn size_hint(&self) -> SizeHint {
        let hint = self.inner.size_hint();
        if hint.exact() == Some(0) && !self.is_begun { SizeHint::default() } else { hint }
    }
}
