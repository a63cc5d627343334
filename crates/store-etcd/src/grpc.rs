//! gRPC over one HTTP/2 stream: frames of messages, and the status at the end.
//!
//! A frame is five bytes (a flag for no compression, and the length) and the protocol buffer. The
//! response ends with a status in the trailers, or in the headers if there is nothing else.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::poll_fn;
use h2::{RecvStream, client::ResponseFuture};
use http::HeaderMap;
use prost::Message;

/// Maximum size of a response message. A page of a range may be large, but a broken server's length
/// must not be trusted.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Maximum buffer that is reserved before a message has arrived.
const RESERVE_BYTES_MAX: usize = 32 << 20;

/// gRPC codes used here.
pub(crate) mod code {
    pub(crate) const OK: u32 = 0;
    pub(crate) const INVALID_ARGUMENT: u32 = 3;
    pub(crate) const NOT_FOUND: u32 = 5;
    pub(crate) const ALREADY_EXISTS: u32 = 6;
    pub(crate) const PERMISSION_DENIED: u32 = 7;
    pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(crate) const FAILED_PRECONDITION: u32 = 9;
    pub(crate) const OUT_OF_RANGE: u32 = 11;
    pub(crate) const UNIMPLEMENTED: u32 = 12;
    pub(crate) const UNAUTHENTICATED: u32 = 16;
}

/// Why an exchange ended without a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrpcError {
    /// The connection or the stream broke.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The server did not process the request: HTTP/2's `REFUSED_STREAM` (RFC 9113, section 8.7).
    #[error("the server refused the stream: {0}")]
    NotProcessed(String),
    /// An error status from the server.
    #[error("{message}")]
    Status { code: u32, message: String },
    /// The response is not gRPC, or not the expected message.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
}

impl GrpcError {
    pub(crate) fn lost(error: h2::Error) -> Self {
        if error.is_remote()
            && error.is_reset()
            && error.reason() == Some(h2::Reason::REFUSED_STREAM)
        {
            return Self::NotProcessed(error.to_string());
        }
        Self::Lost(error.to_string())
    }
}

/// Encodes a message as a frame.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    // Messages over the contract's limit are refused before.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Encoding fails only for lack of room, and this buffer grows.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// Decodes a message.
pub(crate) fn decode<A: Message + Default>(message: Bytes) -> Result<A, GrpcError> {
    A::decode(message).map_err(|error| GrpcError::Malformed(error.to_string()))
}

/// The messages of one response stream. Dropping it cancels the call.
pub(crate) struct Answers {
    state: State,
    buffer: BytesMut,
}

enum State {
    Head(ResponseFuture),
    Body(RecvStream),
    /// How it ended; `None` means status OK.
    Ended(Option<GrpcError>),
}

/// The result of one step of reading.
pub(crate) enum Step {
    /// A complete message.
    Message(Bytes),
    /// Headers, or some bytes.
    Bytes,
    /// The end, with status OK.
    End,
}

impl Answers {
    pub(crate) fn new(response: ResponseFuture) -> Self {
        Self { state: State::Head(response), buffer: BytesMut::new() }
    }

    /// The next message; `None` at the end, if the status is OK. Cancel safe: partial messages are
    /// stored here.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, GrpcError> {
        loop {
            match self.step().await? {
                Step::Message(message) => return Ok(Some(message)),
                Step::End => return Ok(None),
                Step::Bytes => {}
            }
        }
    }

    /// Reads a message, a part of one, or the end. Cancel safe.
    pub(crate) async fn step(&mut self) -> Result<Step, GrpcError> {
        if let Some(message) = take_message(&mut self.buffer)? {
            return Ok(Step::Message(message));
        }
        match self.more().await? {
            true => Ok(Step::Bytes),
            false if self.buffer.is_empty() => Ok(Step::End),
            false => Err(GrpcError::Malformed("it ends within a message".into())),
        }
    }

    /// Waits for the headers, some bytes or the end. Returns `false` at the end. Cancel safe.
    async fn more(&mut self) -> Result<bool, GrpcError> {
        let went = match &mut self.state {
            State::Ended(None) => return Ok(false),
            State::Ended(Some(error)) => return Err(error.clone()),
            // Cancel safe: the response future is polled in place.
            State::Head(response) => match (&mut *response).await {
                Ok(response) => head(response),
                Err(error) => Err(GrpcError::lost(error)),
            },
            State::Body(body) => match poll_fn(|cx| body.poll_data(cx)).await {
                Some(Ok(chunk)) => {
                    self.buffer.extend_from_slice(&chunk);
                    // Opens the window by the bytes that were read, so a slow reader slows the
                    // sender.
                    let released = body.flow_control().release_capacity(chunk.len());
                    return released.map(|()| true).map_err(GrpcError::lost);
                }
                Some(Err(error)) => Err(GrpcError::lost(error)),
                None => match poll_fn(|cx| body.poll_trailers(cx)).await {
                    Ok(Some(trailers)) => ended(&trailers),
                    Ok(None) => Err(GrpcError::Malformed("it ends without a status".into())),
                    Err(error) => Err(GrpcError::lost(error)),
                },
            },
        };
        match went {
            Ok(state) => {
                let goes_on = matches!(state, State::Body(_));
                self.state = state;
                Ok(goes_on)
            }
            Err(error) => {
                self.state = State::Ended(Some(error.clone()));
                Err(error)
            }
        }
    }
}

fn head(response: http::Response<RecvStream>) -> Result<State, GrpcError> {
    if response.headers().contains_key("grpc-status") {
        return ended(response.headers());
    }
    if response.status() != http::StatusCode::OK {
        return Err(GrpcError::Malformed(format!("HTTP status {}", response.status())));
    }
    Ok(State::Body(response.into_body()))
}

fn ended(headers: &HeaderMap) -> Result<State, GrpcError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(code) = text("grpc-status").and_then(|code| code.parse().ok()) else {
        return Err(GrpcError::Malformed("it ends without a status".into()));
    };
    match code {
        code::OK => Ok(State::Ended(None)),
        code => Err(GrpcError::Status {
            code,
            message: percent_decoded(text("grpc-message").unwrap_or_default()),
        }),
    }
}

/// `grpc-message` is percent-encoded UTF-8.
fn percent_decoded(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16);
        match tail {
            [high, low, after @ ..] if *first == b'%' => {
                if let (Some(high), Some(low)) = (hex(*high), hex(*low)) {
                    decoded.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                    rest = after;
                    continue;
                }
                decoded.push(*first);
            }
            _ => decoded.push(*first),
        }
        rest = tail;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Takes a complete message from the front, if there is one.
fn take_message(buffer: &mut BytesMut) -> Result<Option<Bytes>, GrpcError> {
    let [compressed, a, b, c, d, ..] = buffer[..] else { return Ok(None) };
    if compressed != 0 {
        return Err(GrpcError::Malformed("a compressed message, which was not requested".into()));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > ANSWER_BYTES_MAX {
        return Err(GrpcError::Malformed(format!("a message of {length} bytes")));
    }
    if buffer.len() < 5 + length {
        // Reserves room for a usual message at once. For an implausible length, room grows with the
        // bytes received.
        buffer.reserve((5 + length).min(RESERVE_BYTES_MAX).saturating_sub(buffer.len()));
        return Ok(None);
    }
    buffer.advance(5);
    Ok(Some(buffer.split_to(length).freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_assembled_from_chunks_of_any_size() {
        let frames = [&b"\0\0\0\0\x02ab"[..], b"\0\0\0\0\0", b"\0\0\0\0\x01c"].concat();
        for cut in 0..=frames.len() {
            let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
            for part in [&frames[..cut], &frames[cut..]] {
                buffer.extend_from_slice(part);
                while let Some(message) = take_message(&mut buffer).unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, ["ab", "", "c"], "cut at {cut}");
        }
    }

    #[test]
    fn implausible_messages_are_malformed() {
        assert!(take_message(&mut BytesMut::from(&b"\x01\0\0\0\0"[..])).is_err());
        assert!(take_message(&mut BytesMut::from(&b"\0\xff\xff\xff\xff"[..])).is_err());
    }

    #[test]
    fn status_messages_are_decoded() {
        assert_eq!(percent_decoded("a%20b%E2%82%AC %4"), "a b€ %4");
        assert_eq!(percent_decoded("%zz%"), "%zz%");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(message)) = take_message(&mut buffer) {
                let _ = decode::<crate::proto::WatchAnswer>(message.clone());
                let _ = decode::<crate::proto::TxnAnswer>(message);
            }
        }
    }
}
