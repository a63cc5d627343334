//! Errors of reads and writes.

use std::{fmt, sync::Arc, time::Duration};

use setpoint_informer::{AtLeastError, DecodeError};
use setpoint_object::ApiError;

use super::layer::LayerError;
use crate::{
    cache::NamespaceNotCached,
    error::{BoxError, chain},
    fence::Fenced,
    pass::WriteOutcome,
};

/// A call: `update networks.samplecrd.k8s.io default/example`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The verb: `get`, `create`, `patch status` …
    pub verb: &'static str,
    /// The resource, with its group.
    pub resource: Arc<str>,
    /// The object's key, or a list's namespace; may be empty.
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

/// Why a read or a write failed. The cause is the [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused; its `Status` gives the reason.
    #[error("{call}")]
    Api {
        /// The call.
        call: Call,
        /// The server's answer.
        #[source]
        source: ApiError,
    },
    /// The request or its answer failed on the way.
    #[error("{call}: reach the server")]
    Transport {
        /// The call.
        call: Call,
        /// The transport's error.
        #[source]
        source: BoxError,
    },
    /// A layer of the client refused the request. It was not sent.
    #[error("{call}")]
    Layer {
        /// The call.
        call: Call,
        /// The layer's error.
        #[source]
        source: LayerError,
    },
    /// The lease under which this client may write is no longer held, or its cluster was removed.
    /// The request was not sent, or not completely.
    #[error("{call}")]
    Fenced {
        /// The call.
        call: Call,
        /// The fence's reason.
        #[source]
        source: Fenced,
    },
    /// The answer is larger than the client's limit.
    #[error("{call}: the answer is larger than {bytes_max} bytes")]
    TooLarge {
        /// The call.
        call: Call,
        /// The limit.
        bytes_max: usize,
    },
    /// The answer does not fit the type.
    #[error("{call}: decode the answer")]
    Decode {
        /// The call.
        call: Call,
        /// The decoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// The arguments do not make a valid request.
    #[error("{call}: make the request")]
    Request {
        /// The call.
        call: Call,
        /// The reason.
        #[source]
        source: BoxError,
    },
    /// A key cannot be part of a path: its name is empty, or a part contains `/` or `%`, or is `.`
    /// or `..`.
    #[error("{call}: {part:?} cannot be part of a path")]
    Key {
        /// The call.
        call: Call,
        /// The namespace, name or subresource.
        part: String,
    },
    /// Metadata-only objects cannot be created or replaced: the rest of the object would be lost
    /// (CLI-4).
    #[error("{call}: only the metadata is known")]
    MetadataOnly {
        /// The call.
        call: Call,
    },
    /// A locked patch from a base object without a resourceVersion (CLI-5).
    #[error("{call}: the base has no resourceVersion to lock")]
    NoVersion {
        /// The call.
        call: Call,
    },
    /// A cached read by a field that has no index, or by a comparison other than equality (CCH-8).
    #[error(
        "read {resource} from the cache by {field:?}: no index of that name, or no exact match"
    )]
    NotIndexed {
        /// The resource, with its group.
        resource: Arc<str>,
        /// The name of the index, or the term of the field selector.
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
    /// A cached read of a namespace that the cache does not hold. It does not mean that the object
    /// is absent (CCH-4).
    #[error(transparent)]
    NamespaceNotCached(#[from] NamespaceNotCached),
    /// A cached read before the first list has arrived: an object may exist although the cache has
    /// none.
    #[error("read {resource} from the cache: it has not synced")]
    NotSynced {
        /// The resource, with its group.
        resource: Arc<str>,
    },
    /// The cache does not show a write yet that the read waits for: retry later.
    #[error("read {}", behind(.resource, .object, .wanted, *.waited))]
    Behind {
        /// The resource, with its group.
        resource: Arc<str>,
        /// The object's key; empty for a list.
        object: String,
        /// What the read waits for; `as it was written` for a list.
        wanted: String,
        /// How long it has waited.
        waited: Duration,
    },
    /// The versions cannot be compared, or the cache has stopped.
    #[error("read {}", unordered(.resource, .object))]
    Unordered {
        /// The resource, with its group.
        resource: Arc<str>,
        /// The object's key; empty for a list.
        object: String,
        /// The reason.
        #[source]
        source: AtLeastError,
    },
    /// A cached object cannot be decoded as its type.
    #[error("read from the cache")]
    CachedDecode(#[from] DecodeError),
}

fn behind(resource: &str, object: &str, wanted: &str, waited: Duration) -> String {
    match object {
        "" => format!(
            "{resource} from the cache: after {waited:?} it does not show this client's writes"
        ),
        _ => format!(
            "{resource} {object} from the cache: the object is not {wanted} after {waited:?}"
        ),
    }
}

fn unordered(resource: &str, object: &str) -> String {
    match object {
        "" => format!("{resource} from the cache, with this client's writes"),
        _ => format!("{resource} {object} from the cache, as it was written"),
    }
}

impl ClientError {
    /// The server's answer, if any.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The error as conditions and events show it: the server's message without the call, or the
    /// error with its causes ([`chain`]).
    pub fn message(&self) -> String {
        self.api().map_or_else(|| chain(self), |error| error.0.message.clone())
    }

    /// The HTTP code of the server's answer, if any.
    pub fn code(&self) -> Option<u16> {
        self.api().map(ApiError::code)
    }

    /// 404: the object, or its resource, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 409 `AlreadyExists`.
    pub fn is_already_exists(&self) -> bool {
        self.api().is_some_and(|error| error.0.reason == "AlreadyExists")
    }

    /// 409 `Conflict`: the object was changed since it was read; read it again.
    pub fn is_conflict(&self) -> bool {
        self.api().is_some_and(|error| error.code() == 409 && error.0.reason == "Conflict")
    }

    /// 422: the object is invalid, or a JSON patch's test failed.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }
}

/// Turns a 404 into `None` (CLI-12).
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

/// Turns a 409 `AlreadyExists` into `None` (CLI-12).
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
    /// The outcome of a write with this result.
    pub(crate) fn of<T>(result: &Result<T, ClientError>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(ClientError::Api { source, .. }) => Self::Refused(source.code()),
            Err(ClientError::Request { .. } | ClientError::Layer { .. }) => Self::NotSent,
            Err(_) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_object::GroupResource;

    #[test]
    fn message_is_the_servers_or_has_the_cause() {
        let call = || Call { verb: "get", resource: "pods".into(), object: "default/a".into() };
        let pods = GroupResource { group: "".into(), resource: "pods".into() };
        let source = ApiError::forbidden(&pods, "a", "no");
        let refused = ClientError::Api { call: call(), source };
        assert_eq!(refused.message(), r#"pods "a" is forbidden: no"#);
        let unsent = ClientError::Transport { call: call(), source: "connection refused".into() };
        assert_eq!(unsent.message(), "get pods default/a: reach the server: connection refused");
    }
}
