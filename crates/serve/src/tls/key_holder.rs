//! Client certificates that the server itself looks at.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use std::sync::Arc;

/// Requests a client certificate, and requires only that the client has its key.
///
/// For servers that decide about the certificate per request, from
/// [`PeerCertificate`](super::PeerCertificate). A client without a certificate is accepted too.
#[derive(Debug)]
pub struct KeyHolder {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

/// The longest list of names that is sent to clients, in bytes: TLS has room for 64 KiB.
const HINTS_BYTES_MAX: usize = 32 << 10;

impl KeyHolder {
    /// Verifies signatures with the algorithms of `provider`. `hints` names the authorities whose
    /// certificates the server knows, so that a client with several certificates can choose; names
    /// of more than 32 KiB in sum are not sent. A client may send nothing if it has no certificate
    /// of theirs.
    pub fn new(provider: Arc<CryptoProvider>, mut hints: Vec<DistinguishedName>) -> Self {
        if hints.iter().map(|name| 2 + name.as_ref().len()).sum::<usize>() > HINTS_BYTES_MAX {
            hints.clear();
        }
        Self { provider, hints }
    }
}

impl ClientCertVerifier for KeyHolder {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, own, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, own, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
