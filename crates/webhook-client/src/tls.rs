//! TLS of connections: whom to trust, the client's certificate, the clock.

use crate::config::ConfigError;
use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use setpoint_object::time::Clock;
use setpoint_serve::tls::TlsClock;
use std::fmt;
use std::sync::Arc;

/// A client certificate, for servers that require one.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate chain in PEM, leaf first.
    pub certificates: Bytes,
    /// The private key in PEM.
    pub key: Bytes,
}

/// Does not show the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

/// Whom to trust: authorities, and certificates without one. Go accepts a server's certificate that
/// is itself among the roots, and controller-runtime's envtest passes no other for its webhooks.
#[derive(Debug, Clone)]
pub struct Roots {
    authorities: Arc<RootCertStore>,
    certificates: Arc<[CertificateDer<'static>]>,
}

/// The configuration of connections, for HTTP/2 and HTTP/1.1. Without roots, every certificate is
/// accepted.
///
/// # Errors
///
/// The client's certificate or key cannot be used.
pub(crate) fn config(
    roots: Option<Roots>,
    identity: Option<&Identity>,
    clock: &Clock,
) -> Result<ClientConfig, ConfigError> {
    let wrong = |error: rustls::Error| ConfigError::Tls(error.to_string());
    let clock = clock.clone();
    let clock: Arc<dyn TimeProvider> = Arc::new(TlsClock(move || clock.now().0));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_details(provider.clone(), clock)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    let builder = match roots {
        Some(Roots { authorities, certificates }) if certificates.is_empty() => {
            builder.with_root_certificates(authorities)
        }
        Some(roots) => {
            let verifier = roots.verifier(provider)?;
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
        None => {
            let verifier = Arc::new(Verifier { provider, trusted: Trusted::Anyone });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let mut tls = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = key_pair(identity).map_err(ConfigError::Tls)?;
            builder.with_client_auth_cert(chain, key).map_err(wrong)?
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

impl Roots {
    /// The certificates of a PEM text.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn parse(pem: &[u8]) -> Result<Self, ConfigError> {
        let mut authorities = RootCertStore::empty();
        // Like Go, ignores blocks that are not certificates.
        let mut certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).flatten().collect();
        certificates.retain(|certificate| authorities.add(certificate.clone()).is_ok());
        if certificates.is_empty() {
            return Err(ConfigError::CaBundle);
        }
        Ok(Self { authorities: Arc::new(authorities), certificates: certificates.into() })
    }

    /// Verifies servers.
    ///
    /// # Errors
    ///
    /// TLS cannot be set up.
    pub fn verifier(
        self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
        let Self { authorities, certificates } = self;
        let verifier = WebPkiServerVerifier::builder_with_provider(authorities, provider.clone());
        let verifier = verifier.build().map_err(|error| ConfigError::Tls(error.to_string()))?;
        let trusted = Trusted::Roots { verifier, certificates };
        Ok(Arc::new(Verifier { provider, trusted }))
    }
}

/// The certificates of the system.
///
/// # Errors
///
/// They cannot be read.
pub(crate) async fn system_roots() -> Result<Roots, ConfigError> {
    // Reads files.
    let found = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
    let found = found.map_err(|error| ConfigError::SystemRoots(error.to_string()))?;
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(found.certs);
    Ok(Roots { authorities: Arc::new(authorities), certificates: Arc::default() })
}

type KeyPair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn key_pair(identity: &Identity) -> Result<KeyPair, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&identity.certificates).collect();
    let chain = chain.map_err(|error| format!("client certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key);
    Ok((chain, key.map_err(|error| format!("client key: {error}"))?))
}

/// Whose certificates are accepted.
#[derive(Debug)]
enum Trusted {
    /// Everyone's: `insecureSkipTLSVerify`.
    Anyone,
    /// Those that an authority has signed, and these.
    Roots { verifier: Arc<WebPkiServerVerifier>, certificates: Arc<[CertificateDer<'static>]> },
}

/// Accepts what rustls does not by itself. The server must have the certificate's key in any case.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trusted: Trusted,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Trusted::Roots { verifier, certificates } = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // These come behind the check of its time: no authority has signed it, or it is itself
            // one, which Go allows.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer
                | CertificateError::BadSignature
                | CertificateError::Other(_),
            )) if certificates.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
