//! Forwards requests to a [`Backend`] or a peer after the earlier stages, and follows answers to
//! their ends.

use crate::backend::Backend;
use crate::body::{Body, BodyError, RequestBody};
use crate::extra::Handler;
use crate::filter::authenticate;
use crate::filter::in_flight::Permit;
use crate::negotiate::{Endpoint, Types, accept_header, negotiate};
use crate::observe::Observation;
use crate::respond::{self, Style};
use bytes::Bytes;
use futures::Stream;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use setpoint_registry::Attributes;
use setpoint_serve::Conversation;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// One request that somebody else answers.
pub(crate) struct Forwarded<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) style: Style,
    pub(crate) attributes: Arc<Attributes>,
    pub(crate) observation: Arc<Observation>,
    /// What it holds while it runs. A watch gives it back once it is established.
    pub(crate) permit: Permit,
    /// Deadline of the complete answer; `None`: the request is long-running.
    pub(crate) deadline: Option<Instant>,
    pub(crate) drain: &'a CancellationToken,
}

impl Forwarded<'_> {
    /// The answer of a backend.
    pub(crate) async fn of_backend(self, backend: &Backend, body: RequestBody) -> Response<Body> {
        let Self { parts, style, attributes, .. } = &self;
        if !backend.is_available() {
            return respond::service_unavailable();
        }
        if let Some(list) = &backend.documents().resources
            && parts.method == Method::GET
            && !attributes.is_resource()
            && !parts.uri.path().starts_with("/openapi/")
        {
            return match negotiate(
                &accept_header(&parts.headers),
                Endpoint::Plain,
                Types::default(),
            ) {
                Ok(accepted) => respond::document(StatusCode::OK, accepted, *style, list.clone()),
                Err(error) => respond::error(&error, &parts.headers, *style),
            };
        }
        self.of(backend.handler(), body).await
    }

    /// The answer of a handler.
    pub(crate) async fn of(self, handler: &dyn Handler, body: RequestBody) -> Response<Body> {
        let mut request = Request::from_parts(self.parts.clone(), body);
        authenticate::strip_credentials(request.headers_mut());
        request.extensions_mut().insert(self.attributes.clone());
        let response = handler.handle(request).await;
        let Self { observation, permit, deadline, drain, .. } = self;
        let permit = if deadline.is_some() { permit } else { Permit::default() };
        follow(response, (observation, permit), deadline, drain)
    }
}

/// Holds a value until an answer is complete, however it is sent. It ends at the deadline, or with
/// the server if there is none.
pub(crate) fn follow(
    mut response: Response<Body>,
    held: impl Send + 'static,
    deadline: Option<Instant>,
    drain: &CancellationToken,
) -> Response<Body> {
    if let Some(conversation) = Conversation::take(&mut response) {
        let drained = drain.clone().cancelled_owned();
        response.extensions_mut().insert(Conversation::new(async move {
            tokio::select! {
                // Cancel safe: whichever comes first ends the connection.
                () = conversation => {}
                () = drained => {}
            }
            drop(held);
        }));
        return response;
    }
    if response.body().as_bytes().is_some() {
        return response;
    }
    response.map(|body| {
        Body::try_stream(Streamed {
            body,
            end: match deadline {
                Some(deadline) => End::Deadline(Box::pin(tokio::time::sleep_until(deadline))),
                None => End::Drain(Box::pin(drain.clone().cancelled_owned())),
            },
            is_over: false,
            _held: held,
        })
    })
}

/// Ends an answer before its server does.
enum End {
    /// The deadline of an ordinary request: the answer is aborted.
    Deadline(Pin<Box<Sleep>>),
    /// The server drains: a long-running answer ends between two pieces.
    Drain(Pin<Box<WaitForCancellationFutureOwned>>),
}

/// The pieces of an answer as they arrive.
struct Streamed<H> {
    body: Body,
    end: End,
    is_over: bool,
    _held: H,
}

/// What is held is only dropped.
impl<H> Unpin for Streamed<H> {}

impl<H> Stream for Streamed<H> {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // The deadline applies even if there are always more pieces. A drain lets ready pieces out
        // first.
        if let End::Deadline(deadline) = &mut self.end
            && deadline.as_mut().poll(cx).is_ready()
        {
            self.is_over = true;
            return Poll::Ready(Some(Err(BodyError::Late)));
        }
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Only data frames are forwarded.
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Poll::Ready(end) => {
                    self.is_over = true;
                    return Poll::Ready(end.and_then(Result::err).map(Err));
                }
                Poll::Pending => {
                    let End::Drain(drained) = &mut self.end else { return Poll::Pending };
                    if drained.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.is_over = true;
                    return Poll::Ready(None);
                }
            }
        }
    }
}
