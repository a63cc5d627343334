//! The certificate of a server, and its replacement while the server runs.
//!
//! # Theory
//!
//! A [`CertificateWatcher`] reads two files within a second after they have changed, and every
//! [`POLL_INTERVAL`] of tokio time. A pair that is readable, valid and matching becomes the
//! [`CurrentCertificate`], which servers read at every handshake. Otherwise the owner gets an error
//! and the earlier pair stays. The certificate and the key are two files, so they do not match
//! between two writes; the next poll fixes that.
//!
//! Contents are compared; times and names only say when to read them
//! ([`FileChanges`](setpoint_small_file::FileChanges)). So it works with the way Kubernetes swaps
//! the folder of a mounted Secret behind a link, with a copy over the file, and with a rename. The
//! files are small. While the server runs, they are read on a thread that may block.

mod watcher;

pub use watcher::{CertificateWatcher, POLL_INTERVAL};

use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use setpoint_small_file::SmallFileError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
/// Maximum size of a file in bytes: 1 MiB, like the largest Secret.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of certificates in a chain; browsers allow ten.
pub const CHAIN_MAX: usize = 32;

/// Why a certificate could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// A file is larger than [`FILE_BYTES_MAX`].
    #[error("{} is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The text has no certificate.
    #[error("no PEM certificate")]
    NoCertificate(#[source] Option<pem::Error>),
    /// More than [`CHAIN_MAX`] certificates.
    #[error("more than {CHAIN_MAX} certificates in a chain")]
    ChainTooLong,
    /// The text has no private key.
    #[error("no PEM private key")]
    NoKey(#[source] pem::Error),
    /// The key is of an unsupported kind, or not the certificate's.
    #[error("the key does not fit the certificate")]
    Mismatch(#[source] rustls::Error),
}

/// A certificate chain with its key. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Certificate(Arc<CertifiedKey>);

impl Certificate {
    /// Parses PEM: the chain, with the server's own certificate first; and the key (PKCS#8, SEC1 or
    /// PKCS#1).
    ///
    /// # Errors
    ///
    /// Either is missing, or they do not match.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let key = || PrivateKeyDer::from_pem_slice(key).map_err(CertificateError::NoKey);
        Self::from_der(read_chain(chain)?, key()?)
    }

    /// Takes DER: the chain, with the server's own certificate first; and the key.
    ///
    /// # Errors
    ///
    /// There is no certificate, or the key does not match it.
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertificateError> {
        let provider = rustls::crypto::ring::default_provider();
        let pair = CertifiedKey::from_der(chain, key, &provider);
        Ok(Self(Arc::new(pair.map_err(CertificateError::Mismatch)?)))
    }

    /// The chain, with the server's own certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.cert
    }

    pub(crate) fn pair(&self) -> &Arc<CertifiedKey> {
        &self.0
    }
}

/// The certificates in a PEM text, at least one.
///
/// # Errors
///
/// There is none, there are more than [`CHAIN_MAX`], or the text is invalid.
pub fn read_chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(text) {
        chain.push(certificate.map_err(|error| CertificateError::NoCertificate(Some(error)))?);
        if chain.len() > CHAIN_MAX {
            return Err(CertificateError::ChainTooLong);
        }
    }
    if chain.is_empty() {
        return Err(CertificateError::NoCertificate(None));
    }
    Ok(chain)
}

/// The paths of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain in PEM.
    pub certificate: PathBuf,
    /// The key in PEM.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// `tls.crt` and `tls.key` in a folder, as in a mounted TLS Secret.
    pub fn in_folder(folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        Self { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
    }
}

/// `k8s-webhook-server/serving-certs` in the system's folder for temporary files, the default of
/// controller-runtime.
impl Default for CertificateFiles {
    fn default() -> Self {
        Self::in_folder(std::env::temp_dir().join("k8s-webhook-server").join("serving-certs"))
    }
}

/// Reads a file if it is not too large. Blocks: a pipe up to
/// [`WAIT_MAX`](setpoint_small_file::WAIT_MAX).
///
/// # Errors
///
/// It cannot be read, or is larger than [`FILE_BYTES_MAX`].
pub fn read_file(path: &Path) -> Result<Vec<u8>, CertificateError> {
    Ok(setpoint_small_file::read(path, FILE_BYTES_MAX)?)
}

/// As [`read_file`], on a thread that may block. Call it within a tokio runtime.
///
/// # Errors
///
/// As [`read_file`].
pub async fn read_file_async(path: &Path) -> Result<Vec<u8>, CertificateError> {
    Ok(setpoint_small_file::read_async(path, FILE_BYTES_MAX).await?)
}

impl From<SmallFileError> for CertificateError {
    fn from(error: SmallFileError) -> Self {
        match error {
            SmallFileError::Read { path, source } => Self::Read { path, source },
            SmallFileError::TooLong { path, .. } => Self::TooLarge { path },
        }
    }
}

/// The certificate that servers present. Read at every handshake. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct CurrentCertificate(Arc<RwLock<Certificate>>);

impl CurrentCertificate {
    /// A certificate that stays until [`set`](Self::set). To follow files, use a watcher's.
    pub fn new(certificate: Certificate) -> Self {
        Self(Arc::new(RwLock::new(certificate)))
    }

    /// The current certificate.
    pub fn get(&self) -> Certificate {
        self.0.read().clone()
    }

    /// Replaces the certificate for later handshakes.
    pub fn set(&self, certificate: Certificate) {
        *self.0.write() = certificate;
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get().pair().clone())
    }
}
