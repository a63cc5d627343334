//! Why a read or a write failed.

use std::{fmt, sync::Arc};

use setpoint_informer::DecodeError;
use setpoint_object::ApiError;

use crate::reconciler::BoxError;

/// What was asked: `update networks.samplecrd.k8s.io default/example`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The verb: `get`, `create`, `patch status` …
    pub verb: &'static str,
    /// The resource, with its group.
    pub resource: Arc<str>,
    /// The object's key, or the namespace of a list; may be empty.
    pub object: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.object.is_empty() {
            write!(f, " {}", self.object)?;
        }
        Ok(())
    }
}

/// Why a read or a write failed. The causes are in [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused: its `Status` says why.
    #[error("{call}")]
    Api {
        /// What was asked.
        call: Call,
        /// The server's answer.
        #[source]
        source: ApiError,
    },
    /// The request or its answer broke on the way.
    #[error("{call}: reach the server")]
    Transport {
        /// What was asked.
        call: Call,
        /// What the transport says.
        #[source]
        source: BoxError,
    },
    /// The answer is larger than a client reads.
    #[error("{call}: the answer is larger than {bytes_max} bytes")]
    TooLarge {
        /// What was asked.
        call: Call,
        /// How much would have been read.
        bytes_max: usize,
    },
    /// The answer does not fit the type.
    #[error("{call}: decode the answer")]
    Decode {
        /// What was asked.
        call: Call,
        /// What the decoder says.
        #[source]
        source: serde_json::Error,
    },
    /// No request could be made of the arguments.
    #[error("{call}: make the request")]
    Request {
        /// What was asked.
        call: Call,
        /// What is wrong with it.
        #[source]
        source: BoxError,
    },
    /// A cached read of a type that has no informer: let the controller watch it, request its informer, or read live.
    #[error("read {resource} from the cache: it is not watched")]
    NotCached {
        /// The resource, with its group.
        resource: Arc<str>,
    },
    /// A cached read before the first list has arrived: nothing can be said about absence yet.
    #[error("read {resource} from the cache: it has not synced")]
    NotSynced {
        /// The resource, with its group.
        resource: Arc<str>,
    },
    /// A cached object does not fit its type.
    #[error("read from the cache")]
    CachedDecode(#[from] DecodeError),
}

impl ClientError {
    /// The server's answer, if it gave one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The HTTP code of the server's answer.
    pub fn code(&self) -> Option<u16> {
        self.api().map(ApiError::code)
    }

    /// 404: there is no such object, or no such resource.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 409 `AlreadyExists`.
    pub fn is_already_exists(&self) -> bool {
        self.api().is_some_and(|error| error.0.reason == "AlreadyExists")
    }

    /// 409 `Conflict`: somebody else wrote in between; read again.
    pub fn is_conflict(&self) -> bool {
        self.api().is_some_and(|error| error.code() == 409 && error.0.reason == "Conflict")
    }

    /// 422: the object is invalid, or a JSON patch's test failed.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }
}
