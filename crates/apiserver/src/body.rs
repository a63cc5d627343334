//! Response bodies, and reading request bodies up to a limit.

use crate::BoxError;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use http_body::{Frame, SizeHint};
use setpoint_object::ApiError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Maximum length of a request body in bytes.
///
/// 3 MiB, as the reference server's. A longer body is answered with 413.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A response body: nothing, one piece, or a stream of pieces.
#[must_use]
pub struct Body(Kind);

enum Kind {
    /// One piece; `None` once it is taken.
    Once(Option<Bytes>),
    /// Pieces as they arrive.
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>),
}

/// Why an answer ends before it is complete. Its connection (over HTTP/2 its stream) is reset, so
/// that the client cannot mistake a part for the whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The client reads too slowly.
    #[error("the client reads its answer too slowly")]
    Slow,
    /// An item cannot be encoded.
    #[error("encode the answer: {0}")]
    Encode(String),
    /// It was not complete at the request's deadline.
    #[error("the answer exceeds the deadline of its request")]
    Late,
    /// Its source failed.
    #[error("read the rest of the answer")]
    Broken(#[source] BoxError),
}

impl Body {
    /// An empty body.
    pub fn empty() -> Self {
        Self(Kind::Once(None))
    }

    /// One piece.
    pub fn once(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self(Kind::Once((!bytes.is_empty()).then_some(bytes)))
    }

    /// One piece per item of the stream, each flushed as it arrives.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::try_stream(stream.map(Ok))
    }

    /// The same for a stream that may fail.
    pub fn try_stream(
        stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
    ) -> Self {
        Self(Kind::Stream(Box::pin(stream)))
    }

    /// The same body. It owns `guard` until its last byte is dropped.
    pub(crate) fn holding(self, guard: impl Send + Sync + 'static) -> Self {
        match self.0 {
            Kind::Once(bytes) => Self(Kind::Once(bytes.map(|bytes| held(bytes, guard)))),
            Kind::Stream(stream) => Self::try_stream(stream.map(move |piece| {
                let _held = &guard;
                piece
            })),
        }
    }

    /// The bytes if the body is one piece; `None` for a stream.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Once(bytes) => Some(bytes.as_deref().unwrap_or_default()),
            Kind::Stream(_) => None,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Once(bytes) => f.debug_tuple("Once").field(bytes).finish(),
            Kind::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Once(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|next| next.map(|bytes| bytes.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Once(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Once(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

/// The same bytes. They own `guard` until the last part of them is dropped.
pub(crate) fn held(bytes: Bytes, guard: impl Send + Sync + 'static) -> Bytes {
    Bytes::from_owner(Held { bytes, _guard: guard })
}

struct Held<G> {
    bytes: Bytes,
    _guard: G,
}

impl<G> AsRef<[u8]> for Held<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A request body with its concrete type erased, so that one pipeline serves every transport.
pub type RequestBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// Reads a whole request body.
///
/// # Errors
///
/// 413 beyond [`BODY_BYTES_MAX`]; 400 if the client disconnects or breaks the framing.
pub(crate) async fn read(mut body: RequestBody) -> Result<Bytes, ApiError> {
    use http_body::Body as _;
    use http_body_util::BodyExt as _;
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(ApiError::too_large(BODY_BYTES_MAX));
    }
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| ApiError::bad_request(format!("read the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let so_far = first.as_ref().map_or(0, Bytes::len).max(rest.len());
        if so_far + data.len() > BODY_BYTES_MAX {
            return Err(ApiError::too_large(BODY_BYTES_MAX));
        }
        // A single piece, which is the usual case in process, is not copied.
        match (&first, rest.is_empty()) {
            (None, true) => first = Some(data),
            (Some(head), true) => {
                rest.extend_from_slice(head);
                rest.extend_from_slice(&data);
            }
            _ => rest.extend_from_slice(&data),
        }
    }
    Ok(if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};

    fn pieces(pieces: Vec<usize>) -> RequestBody {
        let frames = pieces
            .into_iter()
            .map(|n| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b'x'; n]))))
            .collect::<Vec<_>>();
        StreamBody::new(futures::stream::iter(frames)).boxed_unsync()
    }

    #[tokio::test]
    async fn body_of_exactly_the_limit_is_read_and_one_byte_more_is_413() {
        let whole = read(pieces(vec![BODY_BYTES_MAX])).await.unwrap();
        assert_eq!(whole.len(), BODY_BYTES_MAX);
        let error = read(pieces(vec![BODY_BYTES_MAX, 1])).await.unwrap_err();
        assert_eq!(error.code(), 413);
        assert_eq!(error.0.message, "Request entity too large: limit is 3145728");
    }

    #[tokio::test]
    async fn pieces_are_joined_in_order() {
        let frames = ["a", "", "bc", "d"]
            .map(|s| Ok::<_, BoxError>(Frame::data(Bytes::from_static(s.as_bytes()))));
        let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        assert_eq!(read(body).await.unwrap(), "abcd");
    }
}
