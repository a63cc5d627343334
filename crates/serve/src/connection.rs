//! One connection: protocol, limits, requests, graceful close.

#[cfg(feature = "tls")]
use crate::batch::Batched;
use crate::conversation::Conversation;
use crate::head;
use crate::leftover::{self, Leftover, Received};
use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX, LAST_WORDS_MAX, Limits, PING_INTERVAL, PING_MAX};
use crate::repoll;
use crate::tasks::{Spawner, Tasks};
use crate::timeouts::{Overdue, RequestGuard, Timeouts};
use crate::turn::Turns;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// The protocol of a connection, negotiated in the TLS handshake. Plain text is HTTP/1, unless
/// [`Server::plain_http2`](crate::Server::plain_http2) looks at its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/1.0.
    Http1,
    /// HTTP/2.
    Http2,
}

/// In the extensions of a response: it answers the last request of its connection. Over HTTP/2 the
/// peer gets a `GOAWAY`. Requests in progress are still answered.
#[derive(Debug, Clone, Copy)]
pub struct GoAway;

/// An error of a response body: resets the connection, or over HTTP/2 the stream.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a connection ended, other than by a close of the peer or the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The socket or TLS failed.
    #[error("set up the connection")]
    SetUp(#[from] std::io::Error),
    /// The handshake took longer than [`HANDSHAKE_MAX`](crate::HANDSHAKE_MAX).
    #[error("the TLS handshake took too long")]
    Handshake,
    /// The connection was the oldest of too many unauthenticated ones when another peer connected.
    #[error("too many connections that are not authenticated")]
    PushedOut,
    /// An error of HTTP.
    #[error("exchange HTTP messages")]
    Http(#[source] BoxError),
    /// The peer exceeded a timeout.
    #[error("the peer exceeded a timeout ({0:?})")]
    Overdue(Overdue),
}

/// Serves one connection over any stream until the peer closes it, exceeds a timeout, or has
/// finished after `stop`. For tests of limits without a socket, and for custom listeners. Dropping
/// the future drops the requests in progress.
///
/// # Errors
///
/// An error of HTTP, or a timeout in the middle of something.
pub async fn serve_connection<I, A, Fut, B>(
    io: I,
    protocol: Protocol,
    limits: &Limits,
    answer: A,
    stop: CancellationToken,
) -> Result<(), ConnectionError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    serve_unbatched(io, protocol, limits, &Turns::default(), answer, stop).await
}

/// The same as one of a server's connections, which take turns.
pub(crate) async fn serve_unbatched<I, A, Fut, B>(
    io: I,
    protocol: Protocol,
    limits: &Limits,
    turns: &Turns,
    answer: A,
    stop: CancellationToken,
) -> Result<(), ConnectionError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let nothing_held = |_: &mut Context<'_>| None;
    repoll::repoll(serve(io, nothing_held, protocol, limits, turns, answer, stop)).await
}

/// The same over TLS and HTTP/2, with all writes of one poll sent at once.
#[cfg(feature = "tls")]
pub(crate) async fn serve_batched<I, A, Fut, B>(
    io: Batched<I>,
    limits: &Limits,
    turns: &Turns,
    answer: A,
    stop: CancellationToken,
) -> Result<(), ConnectionError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let held = io.clone();
    let send = move |cx: &mut Context<'_>| held.poll_send(cx);
    repoll::repoll(serve(io, send, Protocol::Http2, limits, turns, answer, stop)).await
}

/// `send` sends the data that `io` has buffered.
async fn serve<I, S, A, Fut, B>(
    io: I,
    send: S,
    protocol: Protocol,
    limits: &Limits,
    turns: &Turns,
    answer: A,
    stop: CancellationToken,
) -> Result<(), ConnectionError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: FnMut(&mut Context<'_>) -> Option<Poll<io::Result<()>>>,
    A: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let timeouts = Timeouts::new(protocol, limits);
    let last = stop.child_token();
    let of_answers = last.clone();
    let mut tasks = Tasks::default();
    let builder = builder(tasks.spawner(), protocol, limits);
    let (of_requests, spawner) = (timeouts.clone(), tasks.spawner());
    let leftover_bytes_max = limits.leftover_bytes_max;
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (timeouts, answering) = (of_requests.clone(), of_requests.request());
        let spawner = spawner.clone();
        let last = of_answers.clone();
        let unanswered = spawner.request();
        let leftover = Leftover::default();
        let own = own_answer(protocol, &request);
        let request = request.map(|body| leftover.lend(body));
        let answer = match own {
            Some(own) => {
                // Its body is left over.
                drop(request);
                Err(own)
            }
            // Boxed, because hyper moves the future several times, and it is large.
            None => Ok(Box::pin(answer(request))),
        };
        async move {
            let mut response = match answer {
                Ok(answer) => answer.await.map(Content::Given),
                Err(own) => own?.map(Content::Own),
            };
            drop(unanswered);
            if response.extensions_mut().remove::<GoAway>().is_some() {
                last.cancel();
            }
            if protocol == Protocol::Http1
                && let Some(phrase) = phrase(response.status())
            {
                response.extensions_mut().insert(phrase);
            }
            let conversation = Conversation::take(&mut response);
            if let Some(mut unread) = leftover.take() {
                if protocol == Protocol::Http1
                    && unread.size_hint().lower() > leftover_bytes_max as u64
                {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                // The rest of this request's body is not the head of the next.
                let reading = timeouts.request();
                let timeouts = timeouts.clone();
                spawner.spawn(async move {
                    if !leftover::drain(&mut unread, leftover_bytes_max).await {
                        // Before the body is dropped, which ends the connection.
                        timeouts.linger();
                    }
                    drop(unread);
                    drop(reading);
                });
            }
            if let Some(conversation) = conversation {
                spawner.spawn(conversation);
            }
            Ok::<_, h2::Error>(response.map(|body| AnswerBody::new(body, answering)))
        }
    });
    let io = TokioIo::new(timeouts.watch(io, turns));
    let connection = pin!(builder.serve_connection_with_upgrades(io, service));
    let mut serving = Serving { connection, tasks: &mut tasks, send, timeouts: timeouts.clone() };
    let served = tokio::select! {
        biased;
        // Not cancelled by the other arms: it continues below.
        served = serving.served() => served,
        overdue = timeouts.overdue() => {
            if overdue != Overdue::Request {
                return Err(ConnectionError::Overdue(overdue));
            }
            serving.connection.as_mut().graceful_shutdown();
            // The result does not matter: no request was in progress.
            _ = tokio::time::timeout(LAST_WORDS_MAX, serving.served()).await;
            return Ok(());
        }
        () = last.cancelled() => {
            serving.connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                served = serving.served() => served,
                // The connection ends with it.
                overdue = timeouts.overdue() => return Err(ConnectionError::Overdue(overdue)),
            }
        }
    };
    served.map_err(ConnectionError::Http)?;
    // The rest is not a late request, but the peer must still read it.
    let _talking = timeouts.request();
    tokio::select! {
        () = tasks.finish() => Ok(()),
        overdue = timeouts.overdue() => Err(ConnectionError::Overdue(overdue)),
    }
}

/// A connection and the futures of its own task.
struct Serving<'a, C, S> {
    connection: Pin<&'a mut C>,
    tasks: &'a mut Tasks,
    /// Sends buffered data.
    send: S,
    timeouts: Timeouts,
}

impl<C, S, E> Serving<'_, C, S>
where
    C: Future<Output = Result<(), E>>,
    E: From<io::Error>,
    S: FnMut(&mut Context<'_>) -> Option<Poll<io::Result<()>>>,
{
    /// Waits for the end of the connection.
    async fn served(&mut self) -> C::Output {
        poll_fn(|cx| {
            self.tasks.begin(cx);
            let served = self.connection.as_mut().poll(cx);
            if served.is_pending() {
                // A response created here wakes the connection, which then writes it.
                self.tasks.go_on(cx);
                if let Some(sent) = (self.send)(cx)
                    && let Poll::Ready(Err(error)) = self.timeouts.sent(sent)
                {
                    return Poll::Ready(Err(error.into()));
                }
            }
            served
        })
        .await
    }
}

/// What Go's server calls a status, where that differs from the standard: some clients show it.
fn phrase(status: StatusCode) -> Option<ReasonPhrase> {
    Some(match status {
        StatusCode::PAYLOAD_TOO_LARGE => ReasonPhrase::from_static(b"Request Entity Too Large"),
        StatusCode::URI_TOO_LONG => ReasonPhrase::from_static(b"Request URI Too Long"),
        StatusCode::RANGE_NOT_SATISFIABLE => {
            ReasonPhrase::from_static(b"Requested Range Not Satisfiable")
        }
        _ => return None,
    })
}

fn builder(spawner: Spawner, protocol: Protocol, limits: &Limits) -> auto::Builder<Spawner> {
    let mut builder = auto::Builder::new(spawner);
    // The timeout for a head is in `timeouts`: hyper's would also close idle connections.
    builder
        .http1()
        // As Go writes them, for those who look at messages or compare texts.
        .title_case_headers(true)
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        // A client may give up all of its requests at once: the connection has others, too.
        .max_pending_accept_reset_streams(limits.streams_max as usize)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(limits.of_peer(PING_MAX));
    match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
    }
}

/// The answer that the server itself gives to a request: to one that is [refused](head), and to
/// `OPTIONS *`, as Go's server.
///
/// # Errors
///
/// Its stream is reset.
fn own_answer(
    protocol: Protocol,
    request: &Request<Incoming>,
) -> Option<Result<Response<Bytes>, h2::Error>> {
    let (method, uri) = (request.method(), request.uri());
    match protocol {
        Protocol::Http2 if !head::is_valid_http2(method, uri) => {
            return Some(Err(h2::Reason::PROTOCOL_ERROR.into()));
        }
        Protocol::Http2 => {}
        // hyper also speaks HTTP/2 with a peer that begins with its preface.
        Protocol::Http1 if request.version() == Version::HTTP_2 => {
            return Some(Err(h2::Reason::HTTP_1_1_REQUIRED.into()));
        }
        Protocol::Http1 => {
            if let Err(refusal) = head::check(method, uri, request.version(), request.headers()) {
                return Some(Ok(refusal.answer()));
            }
        }
    }
    (method == Method::OPTIONS && uri.path() == "*").then(|| Ok(Response::new(Bytes::new())))
}

/// What a response has as its body.
enum Content<B> {
    /// The handler's.
    Given(B),
    /// A text of the server itself.
    Own(Bytes),
}

/// The body of a response. If it is a stream, the request lasts until it is dropped.
struct AnswerBody<B> {
    body: Content<B>,
    #[expect(dead_code, reason = "dropped when the response has been sent")]
    answering: Option<RequestGuard>,
}

impl<B: Body> AnswerBody<B> {
    fn new(body: Content<B>, answering: RequestGuard) -> Self {
        let is_stream = matches!(&body, Content::Given(body) if body.size_hint().exact().is_none());
        Self { body, answering: is_stream.then_some(answering) }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match &mut self.body {
            Content::Given(body) => Pin::new(body).poll_frame(cx),
            Content::Own(text) if text.is_empty() => Poll::Ready(None),
            Content::Own(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Content::Given(body) => body.is_end_stream(),
            Content::Own(text) => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Content::Given(body) => body.size_hint(),
            Content::Own(text) => SizeHint::with_exact(text.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests;
