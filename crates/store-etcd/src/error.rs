//! Why a cluster could not be reached or understood, apart from what the store's contract says of
//! single calls.

use std::{io, path::PathBuf};

/// Why there is no store.
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
        /// As given.
        endpoint: String,
    },
    /// An `https` endpoint needs to know whom to trust.
    #[error("the etcd endpoint {endpoint:?} needs a CA")]
    NoCa {
        /// As given.
        endpoint: String,
    },
    /// A certificate or key file cannot be read.
    #[error("read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A certificate or key is not as it should be.
    #[error("the {what} for etcd: {problem}")]
    Certificate {
        /// Which one.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// No member could serve in time.
    #[error("no etcd member of {} can serve: {problem}", endpoints.join(", "))]
    Unreachable {
        /// Those that were tried.
        endpoints: Vec<String>,
        /// What the last one said.
        problem: String,
    },
    /// The name and password are wrong, or the user may not do what is needed.
    #[error("etcd refused: {problem}")]
    Refused {
        /// etcd's own words.
        problem: String,
    },
    /// A member is older than [`VERSION_MIN`](crate::VERSION_MIN).
    #[error("etcd {version} is too old: 3.4 is the oldest that works")]
    TooOld {
        /// Its version.
        version: String,
    },
}
