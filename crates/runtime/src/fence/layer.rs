//! The fence as a layer of a client.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube_client::client::Body;
use tower::{Layer, Service};

use super::{Fence, body::FencedBody};
use crate::error::BoxError;

/// A tower layer under which mutating requests leave only while a [`Fence`] lets them.
///
/// Put it outermost: what stands between it and the connection (queues, retries, TLS) then cannot
/// carry a request past the deadline. It must be applied within a tokio runtime, as a
/// `kube_client::Client` must be made in one.
#[derive(Clone)]
pub struct FenceLayer {
    fence: Arc<dyn Fence>,
}

impl FenceLayer {
    /// A layer that asks this fence.
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
        // kube's `Body` can hold any body, but only a client makes such a one, of the answers of
        // its service. So this client's answers are the requests' bodies, wrapped.
        let wrap = tower::service_fn(move |request: Request<Body>| {
            let body = FencedBody::new(request.into_body(), fence.clone());
            async move { Ok::<_, BoxError>(Response::new(body)) }
        });
        let wrapper = kube_client::Client::new(wrap, "default");
        FenceService { inner, fence: self.fence.clone(), wrapper }
    }
}

/// A client's service behind a fence; from [`FenceLayer`].
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
        // The service that is ready is the one to be called; its clone may not be.
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
