//! Reading the files again.

use super::{Certificate, CertificateError, CertificateFiles, CurrentCertificate, read_file};
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often the files are read again: 10 s, as controller-runtime's certificate watcher.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Follows the files of a certificate. The one who replaces its [`CurrentCertificate`].
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
    /// When they cannot be read or do not fit together: there is no pair before them that could
    /// stay.
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

    /// Reads the files now; whether the certificate was replaced. The same certificates written
    /// again are no change.
    ///
    /// # Errors
    ///
    /// When they cannot be read or do not fit together; the certificate before them stays.
    pub fn poll(&self) -> Result<bool, CertificateError> {
        let certificate = read(&self.files)?;
        // The same certificate has the same key: they fit.
        if certificate.chain() == self.current.get().chain() {
            return Ok(false);
        }
        self.current.set(certificate);
        tracing::info!(files = ?self.files, "a new certificate is in use");
        Ok(true)
    }

    /// Polls every [`POLL_INTERVAL`] until `stop`, and tells what came of each. What failed is also
    /// logged. Dropping it stops it too.
    pub async fn run(
        &self,
        stop: CancellationToken,
        mut told: impl FnMut(&Result<bool, CertificateError>),
    ) {
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now, and the files have just been read.
        interval.reset();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a dropped `tick` fires next time.
                _ = interval.tick() => {}
            }
            let polled = self.poll();
            told(&polled);
            if let Err(error) = polled {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the certificate's files are not usable: the one in use stays"
                );
            }
        }
    }
}

/// The pair that the files make.
fn read(files: &CertificateFiles) -> Result<Certificate, CertificateError> {
    Certificate::from_pem(&read_file(&files.certificate)?, &read_file(&files.key)?)
}
