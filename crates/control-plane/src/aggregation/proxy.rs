//! Forwards requests to the server of an APIService (spec: extension §1.3).

use super::remote::{Failure, Remote, Route};
use super::user::set_user;
use crate::proxy::{headers, joined, pass_on};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http::header::{self, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use setpoint_apiserver::{Attributes, Body, Handler, RequestBody};
use setpoint_serve::PeerAddress;
use setpoint_spans::SpanContext;
use setpoint_webhook_client::{Address, Lane, TransportError};
use std::sync::Arc;
use std::time::Duration;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
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

async fn forward(remote: &Remote, mut request: Request<RequestBody>) -> Response<Body> {
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
    if let Err((code, message)) = prepare(&mut request, &attributes, &address, is_upgrade) {
        return plain(code, message);
    }
    if is_upgrade {
        return upgrade(remote, &route, &address, request).await;
    }
    let lane = if attributes.is_long_running() { Lane::Own } else { Lane::Shared };
    let is_discovery =
        !attributes.is_resource() && attributes.path().trim_matches('/').split('/').count() == 3;
    let sent = remote.send(&route, &address, request, lane);
    let sent = match is_discovery {
        false => sent.await,
        true => tokio::time::timeout(DISCOVERY_MAX, sent).await.unwrap_or_else(|_| {
            Err(Failure::Transport(TransportError("context deadline exceeded".to_owned())))
        }),
    };
    match sent {
        Ok(answer) if is_redirect(&answer) => {
            let mut refused = text(
                StatusCode::BAD_GATEWAY,
                "the backend attempted to redirect this request, which is not permitted".into(),
            );
            refused.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
            refused
        }
        Ok(answer) => pass_on(answer),
        Err(error) => unreachable(error),
    }
}

/// Changes the head of a request to that of a forwarded one.
///
/// # Errors
///
/// Code and text for a request that cannot be forwarded.
fn prepare(
    request: &mut Request<RequestBody>,
    attributes: &Attributes,
    address: &Address,
    is_upgrade: bool,
) -> Result<(), (StatusCode, &'static str)> {
    let bad = || (StatusCode::BAD_REQUEST, "the path is not valid");
    let path = headers::path(request.uri().path()).ok_or_else(bad)?;
    let uri = match request.uri().query() {
        Some(query) => format!("{path}?{query}"),
        None => path.clone(),
    };
    *request.uri_mut() = uri.parse::<Uri>().map_err(|_| bad())?;
    let protocol = request.headers().get(header::UPGRADE).cloned();
    let client = request.extensions().get::<PeerAddress>().map(|peer| peer.0.ip());
    let head = request.headers_mut();
    headers::remove_of_connection(head);
    // That of the server's address takes its place.
    head.remove(header::HOST);
    if !set_user(head, &attributes.identity) {
        let message = "the user's name cannot be forwarded";
        return Err((StatusCode::INTERNAL_SERVER_ERROR, message));
    }
    if let Ok(id) = HeaderValue::try_from(&attributes.audit_id) {
        head.insert(AUDIT_ID, id);
    }
    if let Some(trace) = &attributes.trace
        && let Ok(parent) = HeaderValue::try_from(trace.context().to_string())
    {
        head.insert(SpanContext::HEADER, parent);
    }
    if let Some(client) = client {
        headers::append_forwarded_for(head, client);
    }
    if is_upgrade {
        head.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Some(protocol) = protocol {
            head.insert(header::UPGRADE, protocol);
        }
        return Ok(());
    }
    head.insert(headers::FORWARDED_PROTO, HeaderValue::from_static("https"));
    let written = [(headers::FORWARDED_HOST, address.to_string()), (headers::FORWARDED_URI, path)];
    for (name, text) in written {
        if let Ok(value) = HeaderValue::try_from(text) {
            head.insert(name, value);
        }
    }
    Ok(())
}

/// Forwards a request for another protocol; after a 101, both connections are one.
async fn upgrade(
    remote: &Remote,
    route: &Route,
    address: &Address,
    mut request: Request<RequestBody>,
) -> Response<Body> {
    let of_client = request.extensions_mut().remove::<OnUpgrade>();
    let answer = match remote.send(route, address, request, Lane::Own).await {
        Ok(answer) => answer,
        Err(error) => return unreachable(error),
    };
    let code = answer.status();
    if code.is_client_error() || code.is_server_error() {
        return pass_on(answer);
    }
    let Some(of_client) = of_client.filter(|_| code == StatusCode::SWITCHING_PROTOCOLS) else {
        let message = format!("invalid upgrade response: status code {}", code.as_u16());
        return plain(StatusCode::SERVICE_UNAVAILABLE, &message);
    };
    joined(answer, of_client)
}

fn is_redirect(answer: &Response<Incoming>) -> bool {
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

/// A line of text.
fn plain(code: StatusCode, message: &str) -> Response<Body> {
    text(code, format!("{message}\n").into())
}

fn text(code: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::once(body));
    *response.status_mut() = code;
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    head.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
