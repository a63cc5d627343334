//! The TLS configuration of a listener: its certificate, and the authorities of client
//! certificates.

use super::pki::{Pki, PkiError};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use setpoint_object::time::Clock;
use setpoint_serve::certificate::CurrentCertificate;
use std::sync::Arc;

/// The certificate of a listener, read at each handshake, and the authorities of client
/// certificates. A client certificate is requested, and verified if sent.
#[derive(Debug, Clone)]
#[must_use]
pub struct Tls {
    current: CurrentCertificate,
    client_cas: Vec<CertificateDer<'static>>,
}

impl Tls {
    /// With this certificate, without client certificates.
    pub fn new(current: CurrentCertificate) -> Self {
        Self { current, client_cas: Vec::new() }
    }

    /// Also accepts client certificates that one of these authorities has signed.
    pub fn client_ca(
        mut self,
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Self {
        self.client_cas.extend(certificates);
        self
    }

    /// HTTP/2 is preferred.
    pub(super) fn config(self, clock: Clock) -> Result<rustls::ServerConfig, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_details(provider.clone(), Arc::new(TlsClock(clock)))
                .with_safe_default_protocol_versions()?;
        let builder = if self.client_cas.is_empty() {
            builder.with_no_client_auth()
        } else {
            let mut roots = RootCertStore::empty();
            for ca in self.client_cas {
                roots.add(ca)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()?;
            builder.with_client_cert_verifier(verifier)
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.current));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// With the server's certificate; accepts client certificates that the CA has signed.
impl From<&Pki> for Tls {
    fn from(pki: &Pki) -> Self {
        Self::new(pki.current()).client_ca([pki.ca_certificate().clone()])
    }
}

/// TLS uses the server's clock.
#[derive(Debug)]
struct TlsClock(Clock);

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.now().0))
    }
}
