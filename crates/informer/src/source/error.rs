//! Errors between an informer and a server.
use setpoint_object::{ApiError, Reason};
use std::time::Duration;

/// Why a list or a watch failed, as far as reflectors distinguish failures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The server answered with a failure, or sent one in the watch (REF-26).
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The connection was refused: try the same request again later (REF-11 f, REF-30 b).
    #[error("connection refused")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection failed during the request or its answer.
    #[error("reach the server")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer violates the API.
    #[error("unexpected answer: {what}")]
    Protocol {
        /// The problem.
        what: String,
    },
    /// The answer is larger than this limit.
    #[error("the {what} is larger than {bytes_max} bytes")]
    TooLarge {
        /// The part that was read.
        what: &'static str,
        /// The limit, bytes.
        bytes_max: usize,
    },
    /// The request was for a shard, and the server answered with another one or with everything
    /// (KEP-5866), because it does not support shards or has them disabled. The answer is rejected.
    #[error(
        "the server has not honored the shard selector {asked:?}: it answered with {honored:?}"
    )]
    NotSharded {
        /// The requested selector.
        asked: String,
        /// The selector of the answer.
        honored: Option<String>,
    },
}

impl SourceError {
    /// 410: the requested resourceVersion has expired.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Api(error) if error.code() == 410
            || matches!(error.0.reason.as_str(), "Expired" | "Gone"))
    }

    /// The server has not reached the requested resourceVersion (REF-6): by the cause of the
    /// status, or by the text of old servers.
    pub fn is_too_large_resource_version(&self) -> bool {
        let Self::Api(error) = self else { return false };
        let caused = error.0.details.iter().flat_map(|details| &details.causes).any(|cause| {
            cause.reason == "ResourceVersionTooLarge"
                || cause.message == "Too large resource version"
        });
        caused
            || error.0.reason == "Timeout" && error.0.message.contains("Too large resource version")
    }

    /// 429.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// 404: the resource is not served, not yet or no longer.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 500.
    pub fn is_internal(&self) -> bool {
        self.code() == Some(500)
    }

    /// The connection was refused.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// The connection failed, which does not depend on the request.
    pub fn is_transport(&self) -> bool {
        matches!(self, Self::Transport(_))
    }

    /// The HTTP code of the answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(error) => Some(error.code()),
            _ => None,
        }
    }

    /// The server's `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Api(error) = self else { return None };
        let seconds = error.0.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }

    /// Classifies an error of a transport by its root cause.
    pub(crate) fn transport(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let error = error.into();
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*error);
        while let Some(one) = cause {
            if let Some(io) = one.downcast_ref::<std::io::Error>()
                && io.kind() == std::io::ErrorKind::ConnectionRefused
            {
                return Self::Refused(error);
            }
            cause = one.source();
        }
        Self::Transport(error)
    }

    /// The failure of an HTTP answer: its `Status`, or one by the code if the body is something
    /// else. The `Retry-After` header counts if the `Status` has none.
    pub(crate) fn from_answer(code: u16, retry_after_seconds: Option<u32>, body: &[u8]) -> Self {
        if let Ok(mut status) = serde_json::from_slice::<setpoint_object::Status>(body)
            && (!status.message.is_empty() || !status.reason.is_empty())
        {
            status.code.get_or_insert(code);
            return Self::Api(ApiError(Box::new(status))).retry_later(retry_after_seconds);
        }
        let text = String::from_utf8_lossy(&body[..body.len().min(512)]).trim().to_owned();
        Self::Api(match code {
            // Some servers answer an unknown path in plain text; clients recognize this sentence.
            404 => ApiError::no_route(),
            401 => ApiError::unauthorized(),
            410 => ApiError::expired(text),
            429 => ApiError::too_many_requests(text, 0),
            500 => ApiError::new(500, Reason::InternalError, text),
            503 => ApiError::new(503, Reason::ServiceUnavailable, text),
            _ => ApiError::new(code, Reason::Unknown, text),
        })
        .retry_later(retry_after_seconds)
    }

    fn retry_later(mut self, seconds: Option<u32>) -> Self {
        if let (Self::Api(error), Some(seconds)) = (&mut self, seconds) {
            let details = error.0.details.get_or_insert_default();
            if details.retry_after_seconds == 0 {
                details.retry_after_seconds = seconds;
            }
        }
        self
    }
}
