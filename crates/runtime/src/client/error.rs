//! Why a read or a write failed.

use std::{fmt, sync::Arc, time::Duration};

use setpoint_informer::{AtLeastError, DecodeError};
use setpoint_object::ApiError;

use super::layer::LayerError;
use crate::{cache::NamespaceNotCached, error::BoxError, fence::Fenced, pass::WriteOutcome};

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
    /// A layer of the client refused the request: it was not sent.
    #[error("{call}")]
    Layer {
        /// What was asked.
        call: Call,
        /// What the layer says.
        #[source]
        source: LayerError,
    },
    /// The lease under which this client may write is not held any more: the request was not sent,
    /// or not completely.
    #[error("{call}")]
    Fenced {
        /// What was asked.
        call: Call,
        /// Why it was held back.
        #[source]
        source: Fenced,
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
    /// A key that cannot be part of a path: its name is empty, or a part holds `/` or `%`, or is
    /// `.` or `..`.
    #[error("{call}: {part:?} cannot be part of a path")]
    Key {
        /// What was asked.
        call: Call,
        /// The namespace, name or subresource.
        part: String,
    },
    /// Objects that are metadata alone can be neither created nor replaced: what is missing would
    /// be lost (CLI-4).
    #[error("{call}: only the metadata is known")]
    MetadataOnly {
        /// What was asked.
        call: Call,
    },
    /// "Only if nobody wrote in between" was asked of an object that has no resourceVersion
    /// (CLI-5).
    #[error("{call}: the base has no resourceVersion to lock")]
    NoVersion {
        /// What was asked.
        call: Call,
    },
    /// A cached read by a field for which no index was declared, or by a comparison other than
    /// equality (CCH-8).
    #[error(
        "read {resource} from the cache by {field:?}: no index of that name, or no exact match"
    )]
    NotIndexed {
        /// The resource, with its group.
        resource: Arc<str>,
        /// The index, or the term of the field selector.
        field: String,
    },
    /// A cached read of a type that has no informer.
    #[error(
        "read {resource} from the cache: it is not cached. Watch it (ControllerBuilder::watches, \
         Cache::informer), or read it live (Api::get_live, Api::list_live)"
    )]
    NotCached {
        /// The resource, with its group.
        resource: Arc<str>,
    },
    /// A cached read of a namespace that the cache's rules leave out: that is no answer about the
    /// object (CCH-4).
    #[error(transparent)]
    NamespaceNotCached(#[from] NamespaceNotCached),
    /// A cached read before the first list has arrived: nothing can be said about absence yet.
    #[error("read {resource} from the cache: it has not synced")]
    NotSynced {
        /// The resource, with its group.
        resource: Arc<str>,
    },
    /// The cache does not show a write that a read demanded to see: come back later.
    #[error(
        "read {resource} {object} from the cache: it does not show it {wanted} after {waited:?}"
    )]
    Behind {
        /// The resource, with its group.
        resource: Arc<str>,
        /// The object's key; empty for a list.
        object: String,
        /// What was to be seen.
        wanted: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Whether the cache shows a write cannot be told, or it has stopped.
    #[error("read {resource} {object} from the cache, as it was written")]
    Unordered {
        /// The resource, with its group.
        resource: Arc<str>,
        /// The object's key; empty for a list.
        object: String,
        /// Why not.
        #[source]
        source: AtLeastError,
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

/// `None` for an object that is not there: 404 is no error (CLI-12).
///
/// # Errors
///
/// Any other failure.
pub fn ignore_not_found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Err(error) if error.is_not_found() => Ok(None),
        answer => answer.map(Some),
    }
}

/// `None` for an object that is there already: that a create finds one is no error (CLI-12).
///
/// # Errors
///
/// Any other failure.
pub fn ignore_already_exists<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Err(error) if error.is_already_exists() => Ok(None),
        answer => answer.map(Some),
    }
}

impl WriteOutcome {
    /// What came of a write that ended so.
    pub(crate) fn of<T>(result: &Result<T, ClientError>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(ClientError::Api { source, .. }) => Self::Refused(source.code()),
            Err(ClientError::Request { .. } | ClientError::Layer { .. }) => Self::NotSent,
            Err(_) => Self::Unknown,
        }
    }
}
