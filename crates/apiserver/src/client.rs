//! An in-process client: its HTTP service is the server.

use crate::body::Body;
use crate::server::ApiServer;
use futures::future::BoxFuture;
use http::{Request, Response};
use setpoint_registry::Identity;
use std::convert::Infallible;
use std::task::{Context, Poll};

/// The server for one identity. Requests enter the pipeline directly; answers stream directly.
#[derive(Debug, Clone)]
struct InProcess {
    server: ApiServer,
    identity: Identity,
}

impl<B> tower_service::Service<Request<B>> for InProcess
where
    ApiServer: tower_service::Service<
            Request<B>,
            Response = Response<Body>,
            Error = Infallible,
            Future = BoxFuture<'static, Result<Response<Body>, Infallible>>,
        >,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.identity.clone());
        self.server.call(request)
    }
}

impl ApiServer {
    /// A client of this server without a socket, as the server itself (`system:apiserver` in
    /// `system:masters`). Call it within a tokio runtime: kube's client queues requests on a task
    /// of its own, which ends with its last handle.
    pub fn client(&self) -> kube_client::Client {
        self.client_as(Identity::loopback())
    }

    /// As [`ApiServer::client`], with another identity.
    pub fn client_as(&self, identity: Identity) -> kube_client::Client {
        kube_client::Client::new(InProcess { server: self.clone(), identity }, "default")
    }
}
