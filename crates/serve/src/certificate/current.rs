//! The pair in use.

use super::Certificate;
use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// The certificate in use, for those who show it: read at every handshake. Cheap to clone; all
/// clones see the same.
#[derive(Debug, Clone)]
pub struct CurrentCertificate(Arc<RwLock<Certificate>>);

impl CurrentCertificate {
    /// A certificate that stays until it is [`set`](Self::set). One whose files are followed is its
    /// watcher's.
    pub fn new(certificate: Certificate) -> Self {
        Self(Arc::new(RwLock::new(certificate)))
    }

    /// The certificate now.
    pub fn get(&self) -> Certificate {
        self.0.read().clone()
    }

    /// Replaces it: handshakes from now on show the new one.
    pub fn set(&self, certificate: Certificate) {
        *self.0.write() = certificate;
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get().pair().clone())
    }
}
