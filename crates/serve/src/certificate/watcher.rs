//! Watching the files of a certificate.

use super::{
    Certificate, CertificateError, CertificateFiles, CurrentCertificate, read_file, read_file_async,
};
use crate::error::chain;
use setpoint_small_file::FileChanges;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the files are read even if nothing seems to have changed: every 10 s, as by
/// controller-runtime's certificate watcher.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Reads the files of a certificate repeatedly, and updates its [`CurrentCertificate`].
#[derive(Debug)]
pub struct CertificateWatcher {
    files: CertificateFiles,
    current: CurrentCertificate,
}

impl CertificateWatcher {
    /// Reads the files for the first time.
    ///
    /// # Errors
    ///
    /// The files cannot be read or do not match: there is no earlier certificate to keep.
    pub fn open(files: CertificateFiles) -> Result<Self, CertificateError> {
        let current = CurrentCertificate::new(read(&files)?);
        Ok(Self { files, current })
    }

    /// The files.
    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }

    /// The certificate in use, for a server.
    pub fn current(&self) -> CurrentCertificate {
        self.current.clone()
    }

    /// Reads the files now. Returns whether the certificate was replaced. Rewriting the same
    /// certificates is no change.
    ///
    /// # Errors
    ///
    /// The files cannot be read or do not match. The earlier certificate stays.
    ///
    /// Dropping the future leaves the certificate as it is.
    pub async fn poll(&self) -> Result<bool, CertificateError> {
        let chain = read_file_async(&self.files.certificate).await?;
        let key = read_file_async(&self.files.key).await?;
        let certificate = Certificate::from_pem(&chain, &key)?;
        // The same certificate has the same key, so they match.
        if certificate.chain() == self.current.get().chain() {
            return Ok(false);
        }
        self.current.set(certificate);
        tracing::info!(files = ?self.files, "a new certificate is in use");
        Ok(true)
    }

    /// Polls within a second after a change of the files, and every [`POLL_INTERVAL`], until
    /// `stop`, and passes each result to `report`. Failures are also logged. Dropping the future
    /// also stops it.
    pub async fn run(
        &self,
        stop: CancellationToken,
        mut report: impl FnMut(&Result<bool, CertificateError>),
    ) {
        let CertificateFiles { certificate, key } = self.files.clone();
        let mut changes = FileChanges::new([certificate, key], POLL_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe.
                () = changes.next() => {}
            }
            let polled = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a certificate is replaced at the end, in one step.
                polled = self.poll() => polled,
            };
            report(&polled);
            if let Err(error) = polled {
                tracing::error!(
                    error = chain(&error),
                    "the certificate's files are not usable: the one in use stays"
                );
            }
        }
    }
}

/// Reads the certificate and its key.
fn read(files: &CertificateFiles) -> Result<Certificate, CertificateError> {
    Certificate::from_pem(&read_file(&files.certificate)?, &read_file(&files.key)?)
}
