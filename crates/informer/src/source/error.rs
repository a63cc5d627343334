//! What can go wrong between an informer and a server.
use setpoint_object::{ApiError, Reason};
use std::time::Duration;

/// Why a list or a watch failed, told apart as far as the reflector reacts differently.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The server answered with a failure, or sent one down the watch (REF-26).
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Nobody listens there: try the same request again later (REF-11 f, REF-30 b).
    #[error("connection refused")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request or its answer broke on the way.
    #[error("reach the server")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not what the API promises.
    #[error("unexpected answer: {what}")]
    Protocol {
        /// What is wrong with it.
        what: String,
    },
    /// The answer is larger than this end is ready to hold.
    #[error("the {what} is larger than {bytes_max} bytes")]
    TooLarge {
        /// What was being read.
        what: &'static str,
        /// How much it may be.
        bytes_max: usize,
    },
    /// A shard was asked for, and the server answered with another or with everything (KEP-5866):
    /// it does not know shards, or has them switched off. What it sent is not taken in, as it would
    /// be taken for the shard.
    #[error("the server has not honored the shard selector {asked:?}: it says {honored:?}")]
    NotSharded {
        /// The selector that was asked for.
        asked: String,
        /// The one that the list says it was made by.
        honored: Option<String>,
    },
}

impl SourceError {
    /// 410: the revision asked for is no longer kept.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Api(error) if error.code() == 410
            || matches!(error.0.reason.as_str(), "Expired" | "Gone"))
    }

    /// The server has not reached the revision asked for (REF-6): known by its cause, on old
    /// servers by its text.
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

    /// The bytes stopped coming, which says nothing about what was asked for.
    pub fn is_transport(&self) -> bool {
        matches!(self, Self::Transport(_))
    }

    /// The HTTP code of a server's answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(error) => Some(error.code()),
            _ => None,
        }
    }

    /// How long the server asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Api(error) = self else { return None };
        let seconds = error.0.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }

    /// Sorts an error of a transport by what is at its root.
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

    /// The failure that an HTTP answer means: its `Status`, or one made of the code when the body
    /// is something else. The `Retry-After` header counts where the `Status` says nothing.
    pub(crate) fn from_answer(code: u16, retry_after_seconds: Option<u32>, body: &[u8]) -> Self {
        if let Ok(mut status) = serde_json::from_slice::<setpoint_object::Status>(body)
            && (!status.message.is_empty() || !status.reason.is_empty())
        {
            status.code.get_or_insert(code);
            return Self::Api(ApiError(Box::new(status))).retry_later(retry_after_seconds);
        }
        let text = String::from_utf8_lossy(&body[..body.len().min(512)]).trim().to_owned();
        Self::Api(match code {
            // A path that nobody serves is answered in plain text by some servers; clients know it
            // by this sentence.
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
