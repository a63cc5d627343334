//! Why a cluster cannot be used. Errors of single calls are the contract's.

use crate::tls::PEM_BYTES_MAX;
use std::{io, path::PathBuf};

/// Why connecting to a cluster failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// No endpoint was given.
    #[error("no etcd endpoint is given")]
    NoEndpoint,
    /// An endpoint is not `[http[s]://]host:port`.
    #[error(
        "the etcd endpoint {endpoint:?} is not http://host:port, https://host:port or host:port"
    )]
    Endpoint {
        /// The endpoint, as configured.
        endpoint: String,
    },
    /// An `https` endpoint without a CA.
    #[error("the etcd endpoint {endpoint:?} needs a CA")]
    NoCa {
        /// The endpoint, as configured.
        endpoint: String,
    },
    /// A certificate or key file cannot be read.
    #[error("read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A certificate or key file has more than [`PEM_BYTES_MAX`](crate::PEM_BYTES_MAX) bytes.
    #[error("{} has more than {PEM_BYTES_MAX} bytes", path.display())]
    LongFile {
        /// The file.
        path: PathBuf,
    },
    /// A certificate or key is invalid.
    #[error("the {what} for etcd: {problem}")]
    Certificate {
        /// Which certificate or key.
        what: &'static str,
        /// The problem.
        problem: String,
    },
    /// No member could serve in time.
    #[error("no etcd member of {} can serve: {problem}", endpoints.join(", "))]
    Unreachable {
        /// The endpoints that were tried.
        endpoints: Vec<String>,
        /// The last one's problem.
        problem: String,
    },
    /// The name and password are wrong, or the user lacks a permission.
    #[error("etcd refused: {problem}")]
    Refused {
        /// etcd's message.
        problem: String,
    },
    /// A member is older than [`VERSION_MIN`](crate::VERSION_MIN).
    #[error("etcd {version} is too old: 3.4 is the oldest that works")]
    TooOld {
        /// Its version.
        version: String,
    },
}
