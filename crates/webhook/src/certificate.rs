//! The server's certificate, and its replacement while the server runs.
//!
//! # Theory
//!
//! A [`CertificateWatcher`] reads two files within a second after they have changed, and every
//! [`POLL_INTERVAL`]. A certificate and key that can be read and that match become the
//! [`CurrentCertificate`], which servers use at every handshake.
//! Anything else is counted and logged, and the previous pair remains in use. Certificate and key
//! are separate files, so they do not match between two writes; the next poll resolves that.
//!
//! The watcher compares the content of the files, not times or names;
//! [`setpoint_serve::certificate`] explains why.

mod issue;

pub use issue::{IssueError, Issued};
pub use setpoint_serve::certificate::{
    CHAIN_MAX, Certificate, CertificateError, CertificateFiles, CurrentCertificate, FILE_BYTES_MAX,
    POLL_INTERVAL,
};

use crate::metrics::Metrics;
use setpoint_serve::certificate as serve;
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Called with a certificate.
pub(crate) type Callback = Box<dyn Fn(&Certificate) + Send + Sync>;

/// Watches the files of a certificate and replaces the [`CurrentCertificate`].
pub struct CertificateWatcher {
    watcher: serve::CertificateWatcher,
    callbacks: Vec<Callback>,
    metrics: Arc<dyn Metrics>,
}

impl fmt::Debug for CertificateWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateWatcher")
            .field("files", self.watcher.files())
            .finish_non_exhaustive()
    }
}

impl CertificateWatcher {
    /// Reads the files for the first time.
    ///
    /// # Errors
    ///
    /// If they cannot be read or do not match: there is no previous pair to fall back to.
    pub async fn open(
        files: CertificateFiles,
        metrics: Arc<dyn Metrics>,
    ) -> Result<Self, CertificateError> {
        let opened = serve::CertificateWatcher::open(files);
        count(&*metrics, opened.is_ok());
        Ok(Self { watcher: opened?, callbacks: Vec::new(), metrics })
    }

    /// The certificate in use, for a server.
    pub fn current(&self) -> CurrentCertificate {
        self.watcher.current()
    }

    /// Calls `callback` with the current certificate now, and with each replacement. Rewriting a
    /// file with the same content is no change.
    pub fn on_change(&mut self, callback: impl Fn(&Certificate) + Send + Sync + 'static) {
        callback(&self.current().get());
        self.callbacks.push(Box::new(callback));
    }

    /// Reads the files now; returns whether the certificate was replaced.
    ///
    /// # Errors
    ///
    /// If they cannot be read or do not match. The previous certificate remains in use.
    pub async fn poll(&mut self) -> Result<bool, CertificateError> {
        let polled = self.watcher.poll().await;
        self.notify(&polled);
        polled
    }

    /// Polls until `stop`. Dropping it stops it too.
    pub async fn run(self, stop: CancellationToken) {
        self.watcher.run(stop, |polled| self.notify(polled)).await;
    }

    fn notify(&self, polled: &Result<bool, CertificateError>) {
        count(&*self.metrics, polled.is_ok());
        if matches!(polled, Ok(true)) {
            let certificate = self.current().get();
            self.callbacks.iter().for_each(|callback| callback(&certificate));
        }
    }
}

fn count(metrics: &dyn Metrics, is_good: bool) {
    metrics.certificate_read();
    if !is_good {
        metrics.certificate_read_failed();
    }
}
