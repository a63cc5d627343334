//! Forwards a request to another server, with its user in headers.

pub(crate) use super::user::set_user;

use crate::proxy::{headers, joined, pass_on};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use setpoint_apiserver::{Attributes, Body, RequestBody};
use setpoint_serve::PeerAddress;
use setpoint_spans::SpanContext;
use setpoint_webhook_client::{Address, Lane};
use std::sync::Arc;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The answer of the server at an address, to which `send` sends. A request that cannot be
/// forwarded is answered here. After a 101, both connections are one.
///
/// # Errors
///
/// Those of `send`.
pub(crate) async fn forward<F, E>(
    mut request: Request<RequestBody>,
    address: &Address,
    send: impl FnOnce(Request<RequestBody>, Lane) -> F,
) -> Result<Response<Body>, E>
where
    F: Future<Output = Result<Response<Incoming>, E>>,
{
    let Some(attributes) = request.extensions().get::<Arc<Attributes>>().cloned() else {
        return Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, "missing user"));
    };
    let is_upgrade = headers::is_upgrade(request.headers());
    if let Err((code, message)) = prepare(&mut request, &attributes, address, is_upgrade) {
        return Ok(plain(code, message));
    }
    if !is_upgrade {
        let lane = if attributes.is_long_running() { Lane::Own } else { Lane::Shared };
        return Ok(pass_on(send(request, lane).await?));
    }
    let of_client = request.extensions_mut().remove::<OnUpgrade>();
    let answer = send(request, Lane::Own).await?;
    let code = answer.status();
    if code.is_client_error() || code.is_server_error() {
        return Ok(pass_on(answer));
    }
    let Some(of_client) = of_client.filter(|_| code == StatusCode::SWITCHING_PROTOCOLS) else {
        let message = format!("invalid upgrade response: status code {}", code.as_u16());
        return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, &message));
    };
    Ok(joined(answer, of_client))
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

/// A line of text.
pub(crate) fn plain(code: StatusCode, message: &str) -> Response<Body> {
    text(code, format!("{message}\n").into())
}

pub(super) fn text(code: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::once(body));
    *response.status_mut() = code;
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    head.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
