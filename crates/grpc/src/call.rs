//! A call on the client's side.

use crate::frame::{FrameError, Frames};
use crate::status::{Code, Status};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Method, Request, StatusCode, Version, request};
use prost::{DecodeError, Message};
use std::future::poll_fn;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Why a call was not opened. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address or a header is invalid.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The connection takes no more streams.
    #[error(transparent)]
    Connection(#[from] h2::Error),
}

/// Why a call ended without the message that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrpcError {
    /// The connection or the stream broke.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The server did not process the request: HTTP/2's `REFUSED_STREAM` (RFC 9113, section 8.7).
    #[error("the server refused the stream: {0}")]
    NotProcessed(String),
    /// Nothing has arrived for this long, or the answer is not whole after this long.
    #[error("no answer in time")]
    Silent(Duration),
    /// The server's status is not OK.
    #[error("{0}")]
    Status(Status),
    /// The answer is not gRPC, or not the expected message.
    #[error("the answer is malformed: {0}")]
    Malformed(#[from] Malformed),
}

/// An answer to one message must be whole after as many times the longest silence: a server that
/// sends a byte now and then ends the call too. With three seconds of silence, a gigabyte has to
/// arrive at 17 MB/s.
pub const WHOLE_SILENCES_MAX: u32 = 20;

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Another HTTP status than 200.
    #[error("HTTP status {0}")]
    Http(StatusCode),
    /// It ends without a status.
    #[error("it ends without a status")]
    NoStatus,
    /// The bytes are not frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The message is another one.
    #[error(transparent)]
    Message(#[from] DecodeError),
    /// There is no message where one was expected.
    #[error("there is no message")]
    NoMessage,
    /// There are several messages where one was expected.
    #[error("there are two messages")]
    ManyMessages,
}

impl GrpcError {
    fn lost(error: h2::Error) -> Self {
        let is_refused = error.is_remote()
            && error.is_reset()
            && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        match is_refused {
            true => Self::NotProcessed(error.to_string()),
            false => Self::Lost(error.to_string()),
        }
    }

    fn malformed(what: impl Into<Malformed>) -> Self {
        Self::Malformed(what.into())
    }
}

/// The head of a call's request, to which headers may be added. `scheme` and `authority` are those
/// of the server's URL, `path` is `/service/method`.
pub fn request(scheme: &str, authority: &str, path: &str) -> request::Builder {
    Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("{scheme}://{authority}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", concat!("setpoint/", env!("CARGO_PKG_VERSION")))
}

/// A call. Dropping it cancels it.
#[derive(Debug)]
pub struct Call {
    requests: Requests,
    answers: Answers,
}

/// The half of a call that sends.
#[derive(Debug)]
pub struct Requests(SendStream<Bytes>);

/// The half of a call that reads.
#[derive(Debug)]
pub struct Answers {
    answer: Answer,
    frames: Frames,
}

#[derive(Debug)]
enum Answer {
    Head(ResponseFuture),
    Body(RecvStream),
    /// How it ended; `None` means status OK.
    Ended(Option<GrpcError>),
}

/// One step of reading an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A complete message.
    Message(Bytes),
    /// Headers, or some bytes.
    Bytes,
    /// The end, with status OK.
    End,
}

impl Call {
    /// Opens a call, when the connection has room for a stream, and sends the head of its request.
    /// Messages of the answer have at most `answer_bytes_max` bytes. Cancel safe: nothing was sent
    /// if the future is dropped.
    ///
    /// # Errors
    ///
    /// Nothing was sent.
    pub async fn open(
        connection: SendRequest<Bytes>,
        request: request::Builder,
        answer_bytes_max: usize,
    ) -> Result<Self, OpenError> {
        let request = request.body(())?;
        let mut connection = connection.ready().await?;
        let (response, requests) = connection.send_request(request, false)?;
        let frames = Frames::new(answer_bytes_max);
        let answers = Answers { answer: Answer::Head(response), frames };
        Ok(Self { requests: Requests(requests), answers })
    }

    /// The two halves, for messages in both directions at the same time. Dropping both cancels the
    /// call.
    pub fn split(self) -> (Requests, Answers) {
        (self.requests, self.answers)
    }

    /// Sends a message in its [`frame`](crate::frame), which waits in memory until the server has
    /// room for it. `is_last`: no other one follows.
    ///
    /// # Errors
    ///
    /// The connection or the stream broke.
    pub fn send(&mut self, frame: Bytes, is_last: bool) -> Result<(), GrpcError> {
        self.requests.send(frame, is_last)
    }

    /// Sends the only message, and returns the only one of the answer, once its status is there.
    /// `silence` is the maximum time without any bytes of the answer, which is whole after
    /// [`WHOLE_SILENCES_MAX`] times as long.
    ///
    /// # Errors
    ///
    /// See [`GrpcError`].
    pub async fn unary<A: Message + Default>(
        mut self,
        frame: Bytes,
        silence: Duration,
    ) -> Result<A, GrpcError> {
        self.send(frame, true)?;
        let (mut only, whole) = (None, silence.saturating_mul(WHOLE_SILENCES_MAX));
        let begun = Instant::now();
        loop {
            // Not more than is left of the whole time.
            let left = whole.saturating_sub(begun.elapsed());
            let (most, spent) = if left < silence { (left, whole) } else { (silence, silence) };
            let step = timeout(most, self.step()).await;
            match step.unwrap_or(Err(GrpcError::Silent(spent)))? {
                Step::Message(message) if only.is_none() => only = Some(message),
                Step::Message(_) => return Err(GrpcError::malformed(Malformed::ManyMessages)),
                Step::Bytes => {}
                Step::End => break,
            }
        }
        let message = only.ok_or_else(|| GrpcError::malformed(Malformed::NoMessage))?;
        A::decode(message).map_err(GrpcError::malformed)
    }

    /// The next message of the answer; `None` at the end, if the status is OK. Cancel safe: partial
    /// messages stay in the call.
    ///
    /// # Errors
    ///
    /// See [`GrpcError`]. After an error all further calls return it.
    pub async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, GrpcError> {
        self.answers.next().await
    }

    /// Reads a message, a part of one, or the end. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`Call::next`].
    pub async fn step(&mut self) -> Result<Step, GrpcError> {
        self.answers.step().await
    }
}

impl Requests {
    /// Sends a message in its [`frame`](crate::frame), which waits in memory until the server has
    /// [room](Self::room) for it. `is_last`: no other one follows.
    ///
    /// # Errors
    ///
    /// The connection or the stream broke.
    pub fn send(&mut self, frame: Bytes, is_last: bool) -> Result<(), GrpcError> {
        self.0.send_data(frame, is_last).map_err(GrpcError::lost)
    }

    /// Waits until the server has taken all that was sent, and has room for more. Who waits before
    /// each message holds no more than one in memory. Cancel safe.
    ///
    /// # Errors
    ///
    /// The connection or the stream broke.
    pub async fn room(&mut self) -> Result<(), GrpcError> {
        // Beyond what waits.
        self.0.reserve_capacity(1);
        while self.0.capacity() == 0 {
            match poll_fn(|cx| self.0.poll_capacity(cx)).await {
                Some(granted) => drop(granted.map_err(GrpcError::lost)?),
                None => return Err(GrpcError::Lost("the stream was closed".to_owned())),
            }
        }
        Ok(())
    }
}

impl Answers {
    /// The next message; `None` at the end, if the status is OK. Cancel safe: partial messages
    /// stay.
    ///
    /// # Errors
    ///
    /// See [`GrpcError`]. After an error all further calls return it.
    pub async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, GrpcError> {
        loop {
            match self.step().await? {
                Step::Message(message) => {
                    return A::decode(message).map(Some).map_err(GrpcError::malformed);
                }
                Step::Bytes => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Reads a message, a part of one, or the end. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub async fn step(&mut self) -> Result<Step, GrpcError> {
        if let Some(message) = self.frames.take().map_err(GrpcError::malformed)? {
            return Ok(Step::Message(message));
        }
        if self.receive().await? {
            return Ok(Step::Bytes);
        }
        self.frames.finish().map_err(GrpcError::malformed)?;
        Ok(Step::End)
    }

    /// Waits for the headers, some bytes or the end. Returns `false` at the end. Cancel safe.
    async fn receive(&mut self) -> Result<bool, GrpcError> {
        let next = match &mut self.answer {
            Answer::Ended(None) => return Ok(false),
            Answer::Ended(Some(error)) => return Err(error.clone()),
            // Cancel safe: the response future is polled in place.
            Answer::Head(response) => match (&mut *response).await {
                Ok(response) => head(response),
                Err(error) => Err(GrpcError::lost(error)),
            },
            Answer::Body(body) => match poll_fn(|cx| body.poll_data(cx)).await {
                Some(Ok(chunk)) => {
                    self.frames.push(&chunk);
                    // Opens the window by the bytes that were read, so a slow reader slows the
                    // sender.
                    let released = body.flow_control().release_capacity(chunk.len());
                    return released.map(|()| true).map_err(GrpcError::lost);
                }
                Some(Err(error)) => Err(GrpcError::lost(error)),
                None => match poll_fn(|cx| body.poll_trailers(cx)).await {
                    Ok(trailers) => ended(trailers.as_ref().and_then(Status::of)),
                    Err(error) => Err(GrpcError::lost(error)),
                },
            },
        };
        let (answer, received) = match next {
            Ok(answer) => {
                let goes_on = matches!(answer, Answer::Body(_));
                (answer, Ok(goes_on))
            }
            Err(error) => (Answer::Ended(Some(error.clone())), Err(error)),
        };
        self.answer = answer;
        received
    }
}

fn head(response: http::Response<RecvStream>) -> Result<Answer, GrpcError> {
    if Status::is_in(response.headers()) {
        return ended(Status::of(response.headers()));
    }
    match response.status() {
        StatusCode::OK => Ok(Answer::Body(response.into_body())),
        status => Err(GrpcError::malformed(Malformed::Http(status))),
    }
}

fn ended(status: Option<Status>) -> Result<Answer, GrpcError> {
    match status {
        Some(Status { code: Code::OK, .. }) => Ok(Answer::Ended(None)),
        Some(status) => Err(GrpcError::Status(status)),
        None => Err(GrpcError::malformed(Malformed::NoStatus)),
    }
}

#[cfg(test)]
mod tests;
