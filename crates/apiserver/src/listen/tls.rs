//! TLS of a listener: what it shows, and whose client certificates it takes.

use super::pki::{Pki, PkiError};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use setpoint_object::time::Clock;
use setpoint_serve::certificate::CurrentCertificate;
use std::sync::Arc;

/// The certificate that a listener shows, read at each handshake, and the authorities of client
/// certificates. A client certificate is asked for and verified when shown.
#[derive(Debug, Clone)]
#[must_use]
pub struct Tls {
    current: CurrentCertificate,
    client_cas: Vec<CertificateDer<'static>>,
}

impl Tls {
    /// Shows this certificate and takes no client certificates.
    pub fn new(current: CurrentCertificate) -> Self {
        Self { current, client_cas: Vec::new() }
    }

    /// Also takes client certificates that one of these authorities has signed.
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

/// Shows the server's certificate and takes those that the CA has signed.
impl From<&Pki> for Tls {
    fn from(pki: &Pki) -> Self {
        Self::new(pki.current()).client_ca([pki.ca_certificate().clone()])
    }
}

/// TLS asks the same clock as everyone.
#[derive(Debug)]
struct TlsClock(Clock);

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.now().0))
    }
}
