//! Forwards requests over the network: to the servers of APIServices ([`crate::aggregation`]), and
//! to pods, Services, nodes and kubelets ([`connector`]).
//!
//! # Theory
//!
//! A request is forwarded as it is, but for the headers of its connection ([`headers`]). An answer
//! is passed on while it arrives, and nothing is read that the client does not read. After a 101
//! both connections are one ([`joined`]). Links and redirects of pods, Services and nodes are
//! changed so that they lead through this server again ([`links`]).

pub(crate) mod connector;
pub(crate) mod headers;
mod html;
pub(crate) mod kubelets;
mod links;

use futures::{StreamExt as _, TryStreamExt as _};
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use setpoint_apiserver::{Body, BodyError, Conversation};
use setpoint_webhook_client::TransportError;

/// The answer as it arrives. If it breaks off, so does the client's.
pub(crate) fn pass_on(answer: Response<Incoming>) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    headers::clean_answer(&mut head.headers);
    let broken = |error: hyper::Error| BodyError::Broken(TransportError::of_body(&error).into());
    let pieces = body.into_data_stream().map_err(broken).boxed();
    let mut response = Response::new(Body::try_stream(pieces));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// An answer that switches protocols: from then on, the connections of client and server are one.
pub(crate) fn joined(mut answer: Response<Incoming>, of_client: OnUpgrade) -> Response<Body> {
    let of_server = hyper::upgrade::on(&mut answer);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    response.extensions_mut().insert(Conversation::new(async move {
        let (Ok(client), Ok(server)) = tokio::join!(of_client, of_server) else { return };
        let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
        let (mut from_server, mut to_server) = tokio::io::split(TokioIo::new(server));
        // The end of one half is the end of both, and so is an error.
        tokio::select! {
            // Cancel safe: both connections end.
            _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
            _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        }
    }));
    response
}
