//! Forwards requests to the server of an APIService (spec: extension §1.3).

use super::forwarding::{self, plain, text};
use super::remote::{Failure, Remote};
use crate::proxy::headers;
use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response, StatusCode, header};
use setpoint_apiserver::{Attributes, Body, Handler, RequestBody};
use setpoint_webhook_client::TransportError;
use std::sync::Arc;
use std::time::Duration;

/// The time for documents of discovery, which clients read at every start.
const DISCOVERY_MAX: Duration = Duration::from_secs(5);

/// The handler of a server's backend.
#[derive(Debug, Clone)]
pub(super) struct Proxy(pub(super) Arc<Remote>);

impl Handler for Proxy {
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
        let remote = self.0.clone();
        async move { forward(&remote, request).await }.boxed()
    }
}

async fn forward(remote: &Remote, request: Request<RequestBody>) -> Response<Body> {
    let Some(attributes) = request.extensions().get::<Arc<Attributes>>().cloned() else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "missing user");
    };
    let route = remote.route();
    if let Err(Failure::Config(error)) = remote.transport(&route).await {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string());
    }
    let address = match remote.address(&route).await {
        Ok(address) => address,
        Err(error) => {
            let service = &route.target.service;
            tracing::warn!(?error, %service, "look up the service of an APIService");
            return plain(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
        }
    };
    let is_upgrade = headers::is_upgrade(request.headers());
    let is_discovery = !is_upgrade
        && !attributes.is_resource()
        && attributes.path().trim_matches('/').split('/').count() == 3;
    let (to, by) = (&address, &route);
    let sent = forwarding::forward(request, &address, |request, lane| async move {
        let sent = remote.send(by, to, request, lane);
        match is_discovery {
            false => sent.await,
            true => tokio::time::timeout(DISCOVERY_MAX, sent).await.unwrap_or_else(|_| {
                Err(Failure::Transport(TransportError("context deadline exceeded".to_owned())))
            }),
        }
    });
    match sent.await {
        Ok(answer) if is_redirect(&answer) && !is_upgrade => {
            let mut refused = text(
                StatusCode::BAD_GATEWAY,
                "the backend attempted to redirect this request, which is not permitted".into(),
            );
            refused.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
            refused
        }
        Ok(answer) => answer,
        Err(error) => unreachable(error),
    }
}

fn is_redirect<B>(answer: &Response<B>) -> bool {
    let location = answer.headers().get(header::LOCATION);
    answer.status().is_redirection() && location.is_some_and(|location| !location.is_empty())
}

/// The answer if the server has none.
fn unreachable(failure: Failure) -> Response<Body> {
    match failure {
        Failure::Transport(error) => {
            let message = format!("error trying to reach service: {error}");
            plain(StatusCode::SERVICE_UNAVAILABLE, &message)
        }
        Failure::Config(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Failure::Resolve(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "service unavailable"),
    }
}
