//! Why a webhook could not be called.

use crate::config::ConfigError;

/// Why a call has no answer. The texts are those that Kubernetes' API server shows after `failed
/// calling webhook "…": failed to call webhook: `, or after `conversion webhook for … failed: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The webhook cannot be called with its configuration; no call will succeed.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The request has more bytes than this. Nothing was sent.
    #[error("the request is larger than {0} bytes")]
    RequestTooLarge(usize),
    /// No connection, or it broke. The cause is as Go's HTTP client shows it.
    #[error("Post {url:?}: {cause}")]
    Transport {
        /// The URL with its query.
        url: String,
        /// The cause.
        cause: String,
    },
    /// No answer in time.
    #[error("Post {url:?}: context deadline exceeded")]
    Timeout {
        /// The URL with its query.
        url: String,
    },
    /// An answer that is an HTTP error.
    #[error("{message}")]
    Http {
        /// The HTTP code.
        code: u16,
        /// The message of the `Status` in the body, or the one for the code.
        message: String,
    },
    /// An empty answer.
    #[error("0-length response with status code: {code} and content type: {content_type}")]
    Empty {
        /// The HTTP code.
        code: u16,
        /// The `Content-Type`.
        content_type: String,
    },
    /// The answer has more bytes than this, as sent or decompressed.
    #[error("the response is larger than {0} bytes")]
    ResponseTooLarge(usize),
    /// Too many bytes of answers are being read.
    #[error("too many responses are being read")]
    Busy,
}
