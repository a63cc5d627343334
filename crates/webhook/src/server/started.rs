//! A check that the server answers.

use crate::certificate::CurrentCertificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Maximum time of the check: 10 s (WHK-1).
pub const DIAL_MAX: Duration = Duration::from_secs(10);

/// Why the server does not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotStarted {
    /// The connection or the TLS handshake failed.
    #[error("dial the webhook server at {address}")]
    Dial {
        /// The server's address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The server did not answer within [`DIAL_MAX`].
    #[error("the webhook server at {address} does not answer")]
    TimedOut {
        /// The server's address.
        address: SocketAddr,
    },
}

/// Connects to the server over TLS, as a client would (WHK-1). The server must present the
/// certificate in use; trust in the certificate is not checked. A disabled server counts as
/// started. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StartedCheck(Option<Target>);

#[derive(Debug, Clone)]
struct Target {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl StartedCheck {
    pub(super) fn disabled() -> Self {
        Self(None)
    }

    pub(super) fn of(
        mut address: SocketAddr,
        current: CurrentCertificate,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, Error> {
        match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(Pinned { current, provider: provider.clone() });
        let config = ClientConfig::builder_with_details(provider, clock)
            .with_safe_default_protocol_versions()?
            // Stricter than a root CA: accepts only the one certificate.
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Some(Target { address, config: Arc::new(config) })))
    }

    /// Connects. Dropping it closes the connection.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or another server does.
    pub async fn check(&self) -> Result<(), NotStarted> {
        let Some(Target { address, config }) = &self.0 else { return Ok(()) };
        let address = *address;
        let dial = async {
            let stream = TcpStream::connect(address).await?;
            let name = ServerName::IpAddress(address.ip().into());
            TlsConnector::from(config.clone()).connect(name, stream).await.map(drop)
        };
        match tokio::time::timeout(DIAL_MAX, dial).await {
            Ok(dialed) => dialed.map_err(|source| NotStarted::Dial { address, source }),
            Err(_) => Err(NotStarted::TimedOut { address }),
        }
    }
}

/// Accepts the certificate in use and no other.
#[derive(Debug)]
struct Pinned {
    current: CurrentCertificate,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.current.get().chain().first() == Some(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
