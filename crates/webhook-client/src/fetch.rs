//! Whole answers of a [`Transport`](crate::Transport), within a limit.

use crate::error::CallError;
use crate::response::interpret;
use crate::transport::TransportError;
use bytes::{Bytes, BytesMut};
use http::Response;
use http::response::Parts;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// Why there is no whole answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The request has no answer, or the answer broke off.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The answer has more bytes than this.
    #[error("the answer is larger than {0} bytes")]
    TooLong(usize),
}

/// An answer that has been read to its end.
#[derive(Debug)]
pub struct Answer {
    /// Status and headers.
    pub head: Parts,
    /// The body, as sent: a `Content-Encoding` is the caller's.
    pub body: Bytes,
}

impl Answer {
    /// Reads an answer of at most so many bytes. Trailers are dropped. The time is the caller's to
    /// bound: dropping the future ends the request.
    ///
    /// # Errors
    ///
    /// The answer broke off, or is longer. One that says so in its head is not read.
    pub async fn read(response: Response<Incoming>, bytes_max: usize) -> Result<Self, FetchError> {
        let (head, mut body) = response.into_parts();
        let announced = hyper::body::Body::size_hint(&body).lower();
        if usize::try_from(announced).map_or(true, |announced| announced > bytes_max) {
            return Err(FetchError::TooLong(bytes_max));
        }
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| TransportError::of_body(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            if read.len() + data.len() > bytes_max {
                return Err(FetchError::TooLong(bytes_max));
            }
            read.extend_from_slice(data);
        }
        Ok(Self { head, body: read.freeze() })
    }

    /// The body of a success (200 to 206), which may be empty.
    ///
    /// # Errors
    ///
    /// [`CallError::Http`] for any other code, with the words of client-go.
    pub async fn success(self) -> Result<Bytes, CallError> {
        match interpret(self.head.status.as_u16(), &self.head.headers, self.body).await {
            Err(CallError::Empty { .. }) => Ok(Bytes::new()),
            interpreted => interpreted,
        }
    }
}
