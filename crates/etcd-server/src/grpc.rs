//! gRPC on the server's side: the messages of requests, and the bodies of answers.

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{HeaderValue, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use prost::Message;
use setpoint_grpc::{self as grpc, Code, FrameError, Frames, frame};
use std::convert::Infallible;

/// The body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// A status other than OK.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Status(grpc::Status);

impl Status {
    fn new(code: Code, text: &str) -> Self {
        Self(grpc::Status::new(code, text))
    }

    pub(crate) fn invalid(message: &str) -> Self {
        Self::new(Code::INVALID_ARGUMENT, message)
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
        Self::new(Code::OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
    }

    pub(crate) fn future_revision() -> Self {
        Self::new(Code::OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
    }

    pub(crate) fn no_space() -> Self {
        Self::new(Code::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
    }

    pub(crate) fn lease_not_found() -> Self {
        Self::new(Code::NOT_FOUND, "etcdserver: requested lease not found")
    }

    pub(crate) fn lease_exists() -> Self {
        Self::new(Code::FAILED_PRECONDITION, "etcdserver: lease already exists")
    }

    pub(crate) fn lease_too_long() -> Self {
        Self::new(Code::OUT_OF_RANGE, "etcdserver: too large lease TTL")
    }

    pub(crate) fn unimplemented(path: &str) -> Self {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
        Self::new(Code::UNIMPLEMENTED, &format!("unknown method {method} for service {service}"))
    }

    fn malformed(why: &str) -> Self {
        Self::new(Code::INTERNAL, &format!("grpc: the request is malformed: {why}"))
    }

    /// An answer without messages.
    pub(crate) fn answer(&self) -> Response<AnswerBody> {
        let mut answer = head(http_body_util::Empty::new().boxed_unsync());
        answer.headers_mut().extend(self.0.to_headers());
        answer
    }
}

impl From<FrameError> for Status {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Compressed => {
                Self::new(Code::UNIMPLEMENTED, "grpc: compressed messages are not supported")
            }
            FrameError::TooLarge { .. } => Self::too_large(),
            other => Self::malformed(&other.to_string()),
        }
    }
}

fn head(body: AnswerBody) -> Response<AnswerBody> {
    let mut answer = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    answer
}

/// The answer of a call with one message.
pub(crate) fn one(message: &impl Message) -> Response<AnswerBody> {
    let frames =
        [Ok(Frame::data(frame(message))), Ok(Frame::trailers(grpc::Status::ok().to_headers()))];
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
                let status = status.map_or_else(grpc::Status::ok, |Status(status)| status);
                Some(Ok(Frame::trailers(status.to_headers())))
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
    frames: Frames,
}

impl<B: Body<Data = Bytes> + Unpin> Messages<B> {
    pub(crate) fn new(body: B, bytes_max: usize) -> Self {
        Self { body, frames: Frames::new(bytes_max) }
    }

    /// The next message; `None` at the end. Cancel safe: partial messages are stored here.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        loop {
            if let Some(message) = self.frames.take()? {
                let message = M::decode(message);
                return message.map(Some).map_err(|error| Status::malformed(&error.to_string()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.frames.push(&data);
                    }
                }
                // The client has gone.
                Some(Err(_)) => return Ok(None),
                None => return Ok(self.frames.finish().map(|()| None)?),
            }
        }
    }
}
