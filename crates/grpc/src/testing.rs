//! A server for tests, which answers each call as a script says.

use crate::frame::{Frames, frame};
use crate::status::Status;
use bytes::Bytes;
use h2::server::{SendResponse, handshake};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use prost::Message;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

/// Maximum length of a request's message in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// These bytes as the message of a frame, also if they are no protocol buffer.
pub fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], message].concat().into()
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// These bytes as the body, and then the status in trailers.
    Body(Bytes, Status),
    /// These bytes as the body. The stream stays open.
    Open(Bytes),
    /// The head of a message without an end, and then a byte after each pause.
    Drops(Duration),
    /// These bytes as the body, and the end without a status.
    NoStatus(Bytes),
    /// A status in the headers, and nothing else.
    Status(Status),
    /// Another HTTP status than 200.
    Http(StatusCode),
    /// The stream is reset.
    Reset(Reason),
    /// No answer.
    Silence,
    /// Closes the connection.
    HangUp,
}

impl Reply {
    /// A message, and status OK.
    pub fn message(message: &impl Message) -> Self {
        Self::Body(frame(message), Status::ok())
    }
}

type Answers = dyn Fn(&str, Bytes) -> Reply + Send + Sync;

/// What answers calls: gets the path and the first message of each.
#[derive(Clone)]
pub struct Script(Arc<Answers>);

impl Script {
    /// A script.
    pub fn new(script: impl Fn(&str, Bytes) -> Reply + Send + Sync + 'static) -> Self {
        Self(Arc::new(script))
    }

    /// Answers the calls of a connection until it ends. Dropping the future closes it.
    pub async fn serve(self, socket: impl AsyncRead + AsyncWrite + Unpin) {
        let Ok(mut connection) = handshake(socket).await else { return };
        let mut calls = JoinSet::new();
        loop {
            tokio::select! {
                // Cancel safe: a stream that was not returned stays in the connection.
                accepted = connection.accept() => match accepted {
                    Some(Ok((request, respond))) => {
                        calls.spawn(call(request, respond, self.clone()));
                    }
                    _ => return,
                },
                // Cancel safe. An error is the client's end of a call.
                Some(ended) = calls.join_next() => if matches!(ended, Ok(Ok(End::Connection))) {
                    return;
                },
            }
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

/// What ends with a call.
enum End {
    Call,
    Connection,
}

async fn call(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    script: Script,
) -> Result<End, h2::Error> {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut frames = Frames::new(MESSAGE_BYTES_MAX);
    let message = loop {
        match frames.take() {
            Ok(Some(message)) => break message,
            Ok(None) => {}
            Err(_) => return Ok(End::Connection),
        }
        let Some(chunk) = body.data().await else { return Ok(End::Call) };
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        frames.push(&chunk);
    };
    match (script.0)(&path, message) {
        Reply::Body(bytes, status) => {
            send(&mut respond, bytes, false)?.send_trailers(status.to_headers())?;
        }
        Reply::Open(bytes) => {
            let _open = send(&mut respond, bytes, false)?;
            std::future::pending::<()>().await;
        }
        Reply::Drops(pause) => {
            let mut body = send(&mut respond, Bytes::from_static(b"\0\0\0\xff\xff"), false)?;
            loop {
                tokio::time::sleep(pause).await;
                body.send_data(Bytes::from_static(b"x"), false)?;
            }
        }
        Reply::NoStatus(bytes) => _ = send(&mut respond, bytes, true)?,
        Reply::Status(status) => {
            let head = head(StatusCode::OK, status.to_headers());
            respond.send_response(head, true)?;
        }
        Reply::Http(status) => _ = respond.send_response(head(status, HeaderMap::new()), true)?,
        Reply::Reset(reason) => respond.send_reset(reason),
        Reply::Silence => std::future::pending().await,
        Reply::HangUp => return Ok(End::Connection),
    }
    Ok(End::Call)
}

/// Sends the head and the body of an answer.
fn send(
    respond: &mut SendResponse<Bytes>,
    bytes: Bytes,
    is_last: bool,
) -> Result<SendStream<Bytes>, h2::Error> {
    let mut body = respond.send_response(head(StatusCode::OK, HeaderMap::new()), false)?;
    body.send_data(bytes, is_last)?;
    Ok(body)
}

fn head(status: StatusCode, headers: HeaderMap) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = status;
    let grpc = http::HeaderValue::from_static("application/grpc");
    head.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
    head.headers_mut().extend(headers);
    head
}
