//! gRPC on the server's side: frames of messages, and the status at the end.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use prost::Message;
use std::convert::Infallible;
use std::fmt::Write as _;

/// The body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// A status other than OK.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Status {
    code: u32,
    message: String,
}

impl Status {
    fn new(code: u32, message: &str) -> Self {
        Self { code, message: message.to_owned() }
    }

    pub(crate) fn invalid(message: &str) -> Self {
        Self::new(3, message)
    }

    pub(crate) fn empty_key() -> Self {
        Self::invalid("etcdserver: key is not provided")
    }

    pub(crate) fn duplicate_key() -> Self {
        Self::invalid("etcdserver: duplicate key given in txn request")
    }

    pub(crate) fn too_many_operations() -> Self {
        Self::invalid("etcdserver: too many operations in txn request")
    }

    pub(crate) fn too_large() -> Self {
        Self::invalid("etcdserver: request is too large")
    }

    pub(crate) fn compacted() -> Self {
        Self::new(11, "etcdserver: mvcc: required revision has been compacted")
    }

    pub(crate) fn future_revision() -> Self {
        Self::new(11, "etcdserver: mvcc: required revision is a future revision")
    }

    pub(crate) fn no_space() -> Self {
        Self::new(8, "etcdserver: mvcc: database space exceeded")
    }

    pub(crate) fn lease_not_found() -> Self {
        Self::new(5, "etcdserver: requested lease not found")
    }

    pub(crate) fn lease_exists() -> Self {
        Self::new(9, "etcdserver: lease already exists")
    }

    pub(crate) fn lease_too_long() -> Self {
        Self::new(11, "etcdserver: too large lease TTL")
    }

    pub(crate) fn unimplemented(path: &str) -> Self {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
        Self::new(12, &format!("unknown method {method} for service {service}"))
    }

    fn malformed(why: &str) -> Self {
        Self::new(13, &format!("grpc: the request is malformed: {why}"))
    }

    /// As trailers.
    fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(self.code));
        if let Ok(message) = HeaderValue::from_str(&percent_encoded(&self.message)) {
            trailers.insert("grpc-message", message);
        }
        trailers
    }

    /// An answer without messages.
    pub(crate) fn answer(&self) -> Response<AnswerBody> {
        let mut answer = head(http_body_util::Empty::new().boxed_unsync());
        answer.headers_mut().extend(self.trailers());
        answer
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

fn head(body: AnswerBody) -> Response<AnswerBody> {
    let mut answer = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    answer
}

fn good() -> HeaderMap {
    HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )])
}

/// Encodes a message as a frame.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Encoding fails only for lack of room, and this buffer grows.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// The answer of a call with one message.
pub(crate) fn one(message: &impl Message) -> Response<AnswerBody> {
    let frames = [Ok(Frame::data(frame(message))), Ok(Frame::trailers(good()))];
    head(StreamBody::new(futures::stream::iter(frames)).boxed_unsync())
}

/// The answer of a call with a stream of messages, each in a frame. An error is the last item.
pub(crate) fn many(
    messages: impl Stream<Item = Result<Bytes, Status>> + Send + 'static,
) -> Response<AnswerBody> {
    // The status follows the messages; an error ends them.
    let ended = futures::stream::once(async { Err(None) });
    let frames = messages.map(|item| item.map_err(Some)).chain(ended);
    let frames = frames.scan(false, |is_over, item| {
        let frame = match item {
            _ if *is_over => None,
            Ok(message) => Some(Ok(Frame::data(message))),
            Err(status) => {
                *is_over = true;
                Some(Ok(Frame::trailers(status.map_or_else(good, |status| status.trailers()))))
            }
        };
        futures::future::ready(frame)
    });
    head(StreamBody::new(frames).boxed_unsync())
}

/// The messages of a request.
#[derive(Debug)]
pub(crate) struct Messages<B> {
    body: B,
    buffer: BytesMut,
    bytes_max: usize,
}

impl<B: Body<Data = Bytes> + Unpin> Messages<B> {
    pub(crate) fn new(body: B, bytes_max: usize) -> Self {
        Self { body, buffer: BytesMut::new(), bytes_max }
    }

    /// The next message; `None` at the end. Cancel safe: partial messages are stored here.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        loop {
            if let Some(message) = self.take()? {
                let message = M::decode(message);
                return message.map(Some).map_err(|error| Status::malformed(&error.to_string()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                // The client has gone.
                Some(Err(_)) => return Ok(None),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(Status::malformed("it ends within a message")),
            }
        }
    }

    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(head) = self.buffer.first_chunk::<5>() else { return Ok(None) };
        let [compressed, length @ ..] = *head;
        if compressed != 0 {
            return Err(Status::new(12, "grpc: compressed messages are not supported"));
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            return Err(Status::too_large());
        }
        if self.buffer.len() < 5 + length {
            return Ok(None);
        }
        self.buffer.advance(5);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}
