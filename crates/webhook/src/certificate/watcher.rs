//! Following files, with those who are told.

use super::{Certificate, CertificateError, CertificateFiles, CurrentCertificate};
use crate::metrics::Metrics;
use setpoint_serve::certificate as serve;
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Told of a certificate.
pub(crate) type Callback = Box<dyn Fn(&Certificate) + Send + Sync>;

/// Follows the files of a certificate. The one who may replace the [`CurrentCertificate`].
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
    /// When they cannot be read or do not fit together: there is no pair before them that could
    /// stay.
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

    /// Calls `callback` with the present certificate now, and with each that replaces it. A file
    /// that is written again with the same content is no change.
    pub fn on_change(&mut self, callback: impl Fn(&Certificate) + Send + Sync + 'static) {
        callback(&self.current().get());
        self.callbacks.push(Box::new(callback));
    }

    /// Reads the files now; whether the certificate was replaced.
    ///
    /// # Errors
    ///
    /// When they cannot be read or do not fit together; the certificate before them stays.
    pub async fn poll(&mut self) -> Result<bool, CertificateError> {
        let polled = self.watcher.poll();
        self.tell(&polled);
        polled
    }

    /// Polls until `stop`. Dropping it stops it too.
    pub async fn run(self, stop: CancellationToken) {
        self.watcher.run(stop, |polled| self.tell(polled)).await;
    }

    fn tell(&self, polled: &Result<bool, CertificateError>) {
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
