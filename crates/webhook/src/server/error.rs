//! Errors of a server.

use crate::certificate::CertificateError;
use std::net::SocketAddr;

/// Why a server cannot be bound, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be bound.
    #[error("listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The server's certificate cannot be read.
    #[error("read the server's certificate")]
    Certificate(#[source] CertificateError),
    /// The CA of client certificates cannot be read.
    #[error("read the CA of client certificates")]
    ClientCa(#[source] CertificateError),
    /// The CA cannot verify clients.
    #[error("use the CA of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// TLS cannot be set up.
    #[error("set up TLS")]
    Tls(#[from] rustls::Error),
    /// A handler panicked, and panics are not recovered.
    #[error("a webhook's handler panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

impl From<setpoint_serve::tls::TlsError> for ServerError {
    fn from(error: setpoint_serve::tls::TlsError) -> Self {
        use setpoint_serve::tls::TlsError;
        match error {
            TlsError::Use(error) => Self::Tls(error),
            TlsError::Verifier(error) => Self::Verifier(error),
        }
    }
}
