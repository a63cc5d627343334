//! TLS of connections: whom to trust, the client's certificate, the clock.

use crate::config::ConfigError;
use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
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

/// The configuration of connections, for HTTP/2 and HTTP/1.1. Without roots, every certificate is
/// accepted.
///
/// # Errors
///
/// The client's certificate or key cannot be used.
pub(crate) fn config(
    roots: Option<Arc<RootCertStore>>,
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
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider))),
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

/// The certificates of a PEM text.
///
/// # Errors
///
/// There is none.
pub(crate) fn roots(pem: &[u8]) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem).flatten() {
        // Like Go, ignores blocks that are not certificates.
        drop(roots.add(certificate));
    }
    if roots.is_empty() { Err(ConfigError::CaBundle) } else { Ok(roots) }
}

/// The certificates of the system.
///
/// # Errors
///
/// They cannot be read.
pub(crate) async fn system_roots() -> Result<Arc<RootCertStore>, ConfigError> {
    // Reads files.
    let found = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
    let found = found.map_err(|error| ConfigError::SystemRoots(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    Ok(Arc::new(roots))
}

type KeyPair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn key_pair(identity: &Identity) -> Result<KeyPair, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&identity.certificates).collect();
    let chain = chain.map_err(|error| format!("client certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key);
    Ok((chain, key.map_err(|error| format!("client key: {error}"))?))
}

/// Accepts every certificate: `insecureSkipTLSVerify`. The server must have its key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
