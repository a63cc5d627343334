//! `CONNECT` over HTTP/1.1.

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use setpoint_dial::{DialError, Socket, Wire};
use std::pin::pin;

/// Maximum bytes of the head of a proxy's answer: 64 KiB. It has a line and a few headers.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// Asks a proxy for a connection to `target`, `host:port`. `name` is the proxy's in errors.
///
/// # Errors
///
/// The proxy refuses, in Kubernetes' words, or does not speak HTTP.
pub(crate) async fn connect(
    wire: impl Wire + 'static,
    name: &str,
    target: &str,
) -> Result<Socket, DialError> {
    let broken = |why: &dyn std::fmt::Display| {
        DialError(format!(
            "reading HTTP response from CONNECT to {target} via proxy {name} failed: {why}"
        ))
    };
    let mut http1 = http1::Builder::new();
    http1.max_buf_size(HEAD_BYTES_MAX);
    let handshake = http1.handshake::<_, Empty<Bytes>>(TokioIo::new(wire)).await;
    let (mut requests, connection) = handshake.map_err(|error| broken(&error))?;
    // As kube-apiserver, whatever the target is.
    let request = Request::connect(target).header(HOST, "127.0.0.1").body(Empty::new());
    let request = request.map_err(|error| DialError(format!("dial tcp {target}: {error}")))?;
    let exchange = async {
        let answer = requests.send_request(request).await.map_err(|error| broken(&error))?;
        match answer.status() {
            StatusCode::OK => hyper::upgrade::on(answer).await.map_err(|error| broken(&error)),
            refused => Err(DialError(format!(
                "proxy error from {name} while dialing {target}, code {}: {refused}",
                refused.as_u16()
            ))),
        }
    };
    let (mut exchange, mut connection) = (pin!(exchange), pin!(connection.with_upgrades()));
    let mut has_ended = false;
    let upgraded = loop {
        tokio::select! {
            biased;
            upgraded = &mut exchange => break upgraded?,
            // Ends before the exchange does, which then says how.
            _ = &mut connection, if !has_ended => has_ended = true,
        }
    };
    Ok(Socket::Other(Box::new(TokioIo::new(upgraded))))
}

#[cfg(test)]
mod tests;
