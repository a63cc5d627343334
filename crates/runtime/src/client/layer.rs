//! Layers of a client: what every request of a program goes through, whoever sends it (CLI-8).
//!
//! # Theory
//!
//! A [`kube_client::Client`] is a service of HTTP requests, and these are `tower` layers of such
//! services. One put around a client at the start ([`layered`], before a manager is built over it)
//! sees everything: the calls of reconcilers, of their [`Client::kube`], of informers, events and
//! elections. They read what a request is about from its path ([`ApiCall`]), so they need know
//! nothing of types. The outermost sees a request first; they compose in any order, as what a call
//! says itself always wins.
//!
//! | layer               | requests that say nothing themselves                                             |
//! |---------------------|----------------------------------------------------------------------------------|
//! | [`DryRun`]          | writes change nothing                                                             |
//! | [`FieldOwner`]      | writes are recorded in this name                                                  |
//! | [`ValidateFields`]  | creates, updates and patches are as strict as this                                |
//! | [`Namespaced`]      | go to one namespace, and those to another are refused                             |
//! | [`Interceptor`]     | go through a closure, which may answer, refuse, delay, repeat or pass on (TST-8)  |

mod call;
mod dry_run;
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
    dry_run::DryRun,
    field::{FieldOwner, ValidateFields},
    interceptor::{Interceptor, Next, answer, refuse},
    namespaced::Namespaced,
};
pub(super) use self::{dry_run::WasDryRun, field::DefaultOwner, query::value as query_value};
use super::Client;
use crate::error::BoxError;

/// Why a layer refused a request: it did not leave this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// [`Namespaced`]: it is for another namespace.
    #[error("only namespace {allowed} may be asked for, not {asked}")]
    OtherNamespace {
        /// The one that may be.
        allowed: Arc<str>,
        /// The one that was.
        asked: String,
    },
    /// [`Namespaced`]: whether its resource has namespaces is not known, as its type is not served.
    #[error("whether {resource} has namespaces is not known: it is not served")]
    UnknownScope {
        /// The resource, as its path says.
        resource: String,
    },
    /// [`DryRun`]: the options of a deletion are not JSON, so that nothing can be added to them.
    #[error("the options of a deletion are not a JSON object")]
    Options,
}

/// A [`kube_client::Client`] as a service: what layers go around.
#[derive(Clone)]
pub struct ClientService(kube_client::Client);

impl Service<Request<Body>> for ClientService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    /// Always ready: what waits, waits in the call.
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

/// The client with a layer around it; several at once are a `tower::ServiceBuilder`'s.
///
/// To be called within a runtime: a client has a task of its own, which ends with its last clone.
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
    /// The same client with a layer around its requests, those through [`kube`](Self::kube) too.
    /// Its cache stays the manager's.
    ///
    /// To be called within a runtime, as [`layered`].
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

/// What can be wrapped: a service of requests that can be cloned.
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
        // The one that was polled until it was ready does this call.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        self.each.clone().send(ready, request).boxed()
    }
}

/// Sends a request on, to a service that is ready.
async fn pass_on<S: RequestService>(
    inner: &mut S,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    inner.call(request).await.map_err(Into::into)
}

#[cfg(test)]
mod tests;
