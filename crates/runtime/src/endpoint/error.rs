//! Errors of endpoints.

use std::{net::SocketAddr, path::PathBuf};

/// Why an endpoint was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The address cannot be bound.
    #[error("listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A path must begin with `/` and have no query.
    #[error("{path:?} is not a valid path of an endpoint")]
    Path {
        /// The path.
        path: String,
    },
    /// The path is reserved: `/metrics`, `/healthz` and `/readyz`.
    #[error("{path:?} is reserved for the manager")]
    Reserved {
        /// The path.
        path: String,
    },
    /// The path already has a handler.
    #[error("{path:?} already has a handler")]
    DuplicatePath {
        /// The path.
        path: String,
    },
}

/// A certificate that is not usable for a TLS server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A file is larger than [`CERTIFICATE_BYTES_MAX`](super::CERTIFICATE_BYTES_MAX).
    #[error("{} is too large for a certificate", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The PEM text has no certificate or no key, or cannot be parsed.
    #[error("read {what} from PEM")]
    Pem {
        /// The certificate, or the private key.
        what: &'static str,
        /// The reason.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The key does not match the certificate, or TLS rejects it.
    #[error("use the certificate and its key")]
    Tls(#[from] rustls::Error),
    /// There are more than 32 certificates in a chain.
    #[error("use the chain of certificates")]
    Chain(#[source] setpoint_serve::certificate::CertificateError),
    /// A certificate could not be created.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
}

impl From<setpoint_serve::certificate::CertificateError> for CertificateError {
    fn from(error: setpoint_serve::certificate::CertificateError) -> Self {
        use rustls::pki_types::pem::Error::NoItemsFound;
        use setpoint_serve::certificate::CertificateError as Read;
        match error {
            Read::Read { path, source } => Self::Read { path, source },
            Read::TooLarge { path } => Self::TooLarge { path },
            Read::NoCertificate(source) => {
                Self::Pem { what: "the certificate", source: source.unwrap_or(NoItemsFound) }
            }
            Read::NoKey(source) => Self::Pem { what: "the private key", source },
            Read::Mismatch(error) => Self::Tls(error),
            other => Self::Chain(other),
        }
    }
}
