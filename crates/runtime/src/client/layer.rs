//! Layers of a client: they see every request of a program (CLI-8).
//!
//! # Theory
//!
//! A [`kube_client::Client`] is a service of HTTP requests, and these are `tower` layers around it.
//! A layer that is put around the client before a manager is built over it ([`layered`]) sees all
//! requests: of reconcilers, of their [`Client::kube`], of informers, events and elections. Layers
//! parse the path ([`ApiCall`]), so they need no types. The outermost sees a request first. They
//! can be combined in any order, since options set by the call itself always win.
//!
//! | layer               | requests without own options                                                     |
//! |---------------------|----------------------------------------------------------------------------------|
//! | [`DryRun`]          | writes become dry runs                                                            |
//! | [`FieldOwner`]      | writes get this field manager                                                     |
//! | [`ValidateFields`]  | creates, updates and patches get this field validation                            |
//! | [`Namespaced`]      | go to one namespace; those to another are refused                                 |
//! | [`Interceptor`]     | go through a closure, which may answer, refuse, delay, repeat or forward (TST-8)  |

mod call;
mod field;
mod interceptor;
mod namespaced;
mod query;

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use kube_client::client::Body;
use tower::{Layer, Service};

pub use self::{
    call::{ApiCall, Verb},
    field::{DryRun, FieldOwner, ValidateFields},
    interceptor::{Interceptor, Next, answer, refuse},
    namespaced::Namespaced,
};
pub(super) use self::{
    field::{DefaultOwner, WasDryRun},
    query::{encodes, set as set_query, value as query_value},
};
use super::Client;
use crate::error::BoxError;

/// Why a layer refused a request. The request was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// [`Namespaced`]: the request is for another namespace.
    #[error("only namespace {allowed} is allowed, not {asked}")]
    OtherNamespace {
        /// The allowed namespace.
        allowed: Arc<str>,
        /// The requested namespace.
        asked: String,
    },
    /// [`Namespaced`]: the resource is not served, so it is unknown whether it has namespaces.
    #[error("the scope of {resource} is unknown: it is not served")]
    UnknownScope {
        /// The resource in the path.
        resource: String,
    },
    /// [`DryRun`]: the options of a deletion are not a JSON object, so none can be added.
    #[error("the options of a deletion are not a JSON object")]
    Options,
}

/// A [`kube_client::Client`] as a tower service, for layers around it.
#[derive(Clone)]
pub struct ClientService(kube_client::Client);

impl Service<Request<Body>> for ClientService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    /// Always ready: the call itself waits.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        async move { client.send(request).await.map_err(Into::into) }.boxed()
    }
}

impl fmt::Debug for ClientService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientService").finish_non_exhaustive()
    }
}

/// Puts a layer around a client. For several layers use a `tower::ServiceBuilder`.
///
/// Call it within a runtime: a client has a task, which ends with the client's last clone.
pub fn layered<L>(client: kube_client::Client, layer: &L) -> kube_client::Client
where
    L: Layer<ClientService>,
    L::Service: Service<Request<Body>, Response = Response<Body>> + Send + 'static,
    <L::Service as Service<Request<Body>>>::Error: Into<BoxError>,
    <L::Service as Service<Request<Body>>>::Future: Send,
{
    let (namespace, until) = (client.default_namespace().to_owned(), *client.valid_until());
    kube_client::Client::new(layer.layer(ClientService(client)), namespace).with_valid_until(until)
}

impl Client {
    /// A clone with a layer around its requests, including those through [`kube`](Self::kube). It
    /// uses the same cache.
    ///
    /// Call it within a runtime, as [`layered`].
    #[must_use]
    pub fn layered<L>(&self, layer: &L) -> Self
    where
        L: Layer<ClientService>,
        L::Service: Service<Request<Body>, Response = Response<Body>> + Send + 'static,
        <L::Service as Service<Request<Body>>>::Error: Into<BoxError>,
        <L::Service as Service<Request<Body>>>::Future: Send,
    {
        let kube = Arc::new(layered(kube_client::Client::clone(&self.kube), layer));
        Self { kube, ..self.clone() }
    }
}

/// The services that layers wrap: cloneable services of requests.
pub trait RequestService:
    Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError>, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> RequestService for S where
    S: Service<
            Request<Body>,
            Response = Response<Body>,
            Error: Into<BoxError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// The service of a layer around another service.
#[derive(Debug, Clone)]
pub struct Wrapped<S, E> {
    inner: S,
    each: E,
}

/// What a layer does with each request.
pub(crate) trait Each: Clone + Send + Sync + 'static {
    fn send<S: RequestService>(
        self,
        inner: S,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Body>, BoxError>> + Send;
}

impl<S: RequestService, E: Each> Service<Request<Body>> for Wrapped<S, E> {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The service that was polled ready must do this call.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        self.each.clone().send(ready, request).boxed()
    }
}

/// Forwards a request to a service that is ready.
async fn pass_on<S: RequestService>(
    inner: &mut S,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    inner.call(request).await.map_err(Into::into)
}

#[cfg(test)]
mod tests;
