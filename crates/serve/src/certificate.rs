//! The certificate that a server shows, and how it is replaced while the server runs.
//!
//! # Theory
//!
//! A [`CertificateWatcher`] has two files and reads them again every [`POLL_INTERVAL`] of tokio
//! time. A pair that reads, parses and fits together becomes the [`CurrentCertificate`], which
//! servers ask at every handshake; of anything else the owner is told, and the pair before it
//! stays. A certificate and its key are two files, so between two writes they do not fit: that
//! heals at the next poll.
//!
//! What the files hold is compared, not times or names: the way Kubernetes swaps the folder of a
//! mounted Secret behind a link, a copy over the file, and a rename are all the same to it. File
//! notifications are not used; a certificate that is good for months may be taken up ten seconds
//! late. The files are small and are read in place.

mod current;
mod watcher;

pub use current::CurrentCertificate;
pub use watcher::{CertificateWatcher, POLL_INTERVAL};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::sign::CertifiedKey;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
/// The largest file that is read, bytes: 1 MiB, as the largest Secret.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The longest chain, certificates; a browser gives up at ten.
pub const CHAIN_MAX: usize = 32;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
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
    /// The key is none that can be used, or not the certificate's.
    #[error("the key does not fit the certificate")]
    Mismatch(#[source] rustls::Error),
}

/// A certificate chain with its key. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Certificate(Arc<CertifiedKey>);

impl Certificate {
    /// From PEM text: the chain, the server's own certificate first; and the key (PKCS#8, SEC1 or
    /// PKCS#1).
    ///
    /// # Errors
    ///
    /// When either is missing or they do not fit together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let key = || PrivateKeyDer::from_pem_slice(key).map_err(CertificateError::NoKey);
        Self::from_der(read_chain(chain)?, key()?)
    }

    /// From what PEM encodes: the chain, the server's own certificate first; and the key.
    ///
    /// # Errors
    ///
    /// When there is no certificate or the key does not fit it.
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertificateError> {
        let provider = rustls::crypto::ring::default_provider();
        let pair = CertifiedKey::from_der(chain, key, &provider);
        Ok(Self(Arc::new(pair.map_err(CertificateError::Mismatch)?)))
    }

    /// The chain, the server's own certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.cert
    }

    pub(crate) fn pair(&self) -> &Arc<CertifiedKey> {
        &self.0
    }
}

/// The certificates in a PEM text: at least one.
///
/// # Errors
///
/// When there is none, there are more than [`CHAIN_MAX`], or the text is broken.
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

/// Where a certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, PEM.
    pub certificate: PathBuf,
    /// The key, PEM.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// `tls.crt` and `tls.key` in a folder: what a mounted TLS Secret looks like.
    pub fn in_folder(folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        Self { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
    }
}

/// `k8s-webhook-server/serving-certs` in the system's folder for temporary files, where the field's
/// tools mount a webhook's.
impl Default for CertificateFiles {
    fn default() -> Self {
        Self::in_folder(std::env::temp_dir().join("k8s-webhook-server").join("serving-certs"))
    }
}

/// A file, if it is not too large. Read in place.
///
/// # Errors
///
/// When it cannot be read, or is larger than [`FILE_BYTES_MAX`].
pub fn read_file(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let failed = |source| CertificateError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut content = Vec::new();
    // One byte more, to see that there is more.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(CertificateError::TooLarge { path: path.to_owned() });
    }
    Ok(content)
}
