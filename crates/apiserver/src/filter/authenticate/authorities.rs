//! The authorities of client certificates, which can be replaced while the server runs.
//!
//! A certificate is verified for each request, so that it ends with its authority and with its own
//! time, also on connections that are open. Results are remembered for a few seconds.

use super::subject::{identity, valid_until};
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DistinguishedName, RootCertStore};
use setpoint_object::bounded::Expiring;
use setpoint_object::time::Timestamp;
use setpoint_registry::Identity;
use setpoint_serve::tls::PeerCertificate;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a verified certificate is not verified again.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Maximum number of certificates that are remembered.
const CERTIFICATES_MAX: usize = 4096;

/// Why certificates cannot be authorities.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A certificate is damaged.
    #[error("use the certificate of an authority")]
    Use(#[from] rustls::Error),
    /// There are none.
    #[error("verify client certificates")]
    Verifier(#[from] VerifierBuilderError),
}

/// Authorities of client certificates. Cheap to clone; all clones have the same ones.
#[derive(Clone)]
pub struct ClientAuthorities(Arc<Inner>);

struct Inner {
    current: RwLock<Arc<Current>>,
}

struct Current {
    certificates: Vec<CertificateDer<'static>>,
    /// Their names.
    subjects: Arc<[DistinguishedName]>,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Verified chains by their digests.
    remembered: Mutex<Expiring<[u8; 32], Verified, Timestamp>>,
}

/// A chain that an authority has signed.
#[derive(Clone)]
struct Verified {
    at: Timestamp,
    /// The user it names, if any.
    user: Option<Identity>,
    /// The end of its time, if it can be read.
    until: Option<Timestamp>,
}

impl Current {
    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, AuthorityError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone())?;
        }
        let subjects = roots.subjects().into();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        let remembered = Mutex::new(Expiring::new(CERTIFICATES_MAX));
        Ok(Self { certificates, subjects, verifier, remembered })
    }
}

impl ClientAuthorities {
    /// These authorities.
    ///
    /// # Errors
    ///
    /// There is none, or one is damaged.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, AuthorityError> {
        let current = RwLock::new(Arc::new(Current::new(certificates)?));
        Ok(Self(Arc::new(Inner { current })))
    }

    /// Replaces the authorities. Certificates of former ones are refused from now on. Returns
    /// whether they differ.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); the former ones stay.
    pub fn set(&self, certificates: Vec<CertificateDer<'static>>) -> Result<bool, AuthorityError> {
        if self.0.current.read().certificates == certificates {
            return Ok(false);
        }
        let current = Arc::new(Current::new(certificates)?);
        let former = std::mem::replace(&mut *self.0.current.write(), current);
        drop(former);
        Ok(true)
    }

    /// The present ones.
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.0.current.read().certificates.clone()
    }

    /// The names of the present ones: the same `Arc` until they are replaced.
    pub(crate) fn subjects(&self) -> Arc<[DistinguishedName]> {
        self.0.current.read().subjects.clone()
    }

    /// Whether one of them has signed a peer's chain, for clients and for this time. Takes some
    /// tenths of a millisecond for a chain that is not remembered.
    pub fn verify(&self, peer: &PeerCertificate, now: Timestamp) -> bool {
        self.verified(peer, now).is_some()
    }

    /// The user that a peer's chain names, if one of them has signed it: see
    /// [`verify`](Self::verify) and [`identity`]. With the end of its time.
    pub(crate) fn user(
        &self,
        peer: &PeerCertificate,
        now: Timestamp,
    ) -> Option<(Identity, Option<Timestamp>)> {
        let Verified { user, until, .. } = self.verified(peer, now)?;
        Some((user?, until))
    }

    fn verified(&self, peer: &PeerCertificate, now: Timestamp) -> Option<Verified> {
        let (own, others) = peer.chain().split_first()?;
        let current = self.0.current.read().clone();
        // After the clock was set back, it is verified again.
        let remembered = current.remembered.lock().get(peer.digest(), now).cloned();
        if let Some(verified) = remembered.filter(|verified| verified.at <= now) {
            return Some(verified);
        }
        let time = UnixTime::since_unix_epoch(now.0);
        current.verifier.verify_client_cert(own, others, time).ok()?;
        let verified = Verified { at: now, user: identity(own), until: valid_until(own) };
        current.remembered.lock().put(*peer.digest(), verified.clone(), now + REMEMBERED);
        Some(verified)
    }
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.current.read().certificates.len();
        f.debug_struct("ClientAuthorities").field("n", &n).finish()
    }
}

#[cfg(test)]
mod tests;
