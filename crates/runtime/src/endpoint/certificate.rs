//! Certificates of endpoints.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use setpoint_object::time::{Clock, Timestamp};
use setpoint_serve::{
    certificate::{
        Certificate, CertificateFiles, CertificateWatcher, CurrentCertificate, FILE_BYTES_MAX,
        POLL_INTERVAL,
    },
    tls::{TlsClock, TlsError, server_config},
};
use tokio_util::sync::CancellationToken;

use super::CertificateError;
use crate::metrics::CertificateReads;

/// How often the files are read without a change: 10 s, as by controller-runtime's certificate
/// watcher.
pub const RELOAD_PERIOD: Duration = POLL_INTERVAL;

/// The largest file in bytes: 1 MiB, far more than a chain needs.
pub const CERTIFICATE_BYTES_MAX: usize = FILE_BYTES_MAX;

/// The names of a self-signed certificate.
const SELF_SIGNED_NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
/// How long it is valid, in days.
const SELF_SIGNED_DAYS: u32 = 365;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate with its key: from files that may change while the program runs, or self-signed
/// for this run. Cheap to clone.
///
/// The first read must succeed. If a later one fails, or the pair does not match, that is logged
/// and counted, and the previous pair stays. Files are read within a second after a change, and
/// each [`RELOAD_PERIOD`] of tokio time.
#[derive(Clone)]
pub struct Certificates(Arc<Inner>);

struct Inner {
    // Inputs.
    /// `None` if self-signed.
    watcher: Option<CertificateWatcher>,
    clock: Clock,

    // State.
    current: CurrentCertificate,
    reads: CertificateReads,
}

/// How often certificates were read: the values of `certwatcher_read_certificate_total` and
/// `certwatcher_read_certificate_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CertificateStats {
    /// Reads, including failed ones.
    pub reads: u64,
    /// Reads that failed, or whose pair does not match.
    pub errors: u64,
}

impl Certificates {
    /// Reads the pair from these PEM files.
    ///
    /// # Errors
    ///
    /// They cannot be read, or do not match.
    pub fn files(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        clock: Clock,
    ) -> Result<Self, CertificateError> {
        let files = CertificateFiles { certificate: certificate.into(), key: key.into() };
        Self::followed(files, clock)
    }

    fn followed(files: CertificateFiles, clock: Clock) -> Result<Self, CertificateError> {
        let watcher = CertificateWatcher::open(files)?;
        let current = watcher.current();
        let certificates = Self::new(Some(watcher), clock, current);
        certificates.0.reads.add_read();
        Ok(certificates)
    }

    /// Reads the files `tls.crt` and `tls.key` of a directory. If neither exists, uses a
    /// self-signed certificate.
    ///
    /// # Errors
    ///
    /// They exist, and cannot be read or do not match.
    pub fn directory(directory: impl AsRef<Path>, clock: Clock) -> Result<Self, CertificateError> {
        let files = CertificateFiles::in_folder(directory);
        if !files.certificate.exists() && !files.key.exists() {
            return Self::self_signed(clock);
        }
        Self::followed(files, clock)
    }

    /// A self-signed certificate for `localhost` and `127.0.0.1`, valid for a year from now.
    ///
    /// # Errors
    ///
    /// None known.
    pub fn self_signed(clock: Clock) -> Result<Self, CertificateError> {
        let names: Vec<String> = SELF_SIGNED_NAMES.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, SELF_SIGNED_NAMES[0]);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = clock.now();
        // A day earlier, for clocks that are behind.
        let from = Timestamp(now.0.saturating_sub(DAY));
        set_days(&mut params, from, Timestamp(now.0 + DAY * SELF_SIGNED_DAYS));
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let certificate = Certificate::from_der(vec![certificate.der().clone()], key)?;
        Ok(Self::new(None, clock, CurrentCertificate::new(certificate)))
    }

    fn new(watcher: Option<CertificateWatcher>, clock: Clock, current: CurrentCertificate) -> Self {
        Self(Arc::new(Inner { watcher, clock, current, reads: CertificateReads::default() }))
    }

    /// How often files were read.
    pub fn stats(&self) -> CertificateStats {
        CertificateStats { reads: self.0.reads.reads(), errors: self.0.reads.errors() }
    }

    /// The counters of [`stats`](Self::stats).
    pub(crate) fn reads(&self) -> &CertificateReads {
        &self.0.reads
    }

    /// The current certificate, in DER.
    pub fn certificate(&self) -> CertificateDer<'static> {
        // The fallback is not reached: a certificate was checked to match its key.
        self.0
            .current
            .get()
            .chain()
            .first()
            .cloned()
            .unwrap_or_else(|| CertificateDer::from(Vec::new()))
    }

    /// A TLS configuration that uses the current pair at each handshake and prefers HTTP/2.
    pub(super) fn server_config(&self) -> Result<ServerConfig, TlsError> {
        let clock = self.0.clock.clone();
        let clock = Arc::new(TlsClock(move || clock.now().0));
        server_config(self.0.current.clone(), None, clock)
    }

    /// Reads the files periodically until `stop`.
    pub(super) async fn keep_fresh(self, stop: CancellationToken) {
        let Some(watcher) = &self.0.watcher else { return };
        let count = |read: &Result<_, _>| {
            self.0.reads.add_read();
            if read.is_err() {
                self.0.reads.add_error();
            }
        };
        watcher.run(stop, count).await;
    }
}

/// Sets the days on which a certificate is valid: from the start of the first to that of the last.
fn set_days(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let [from, to] = [from, to].map(|moment| {
        // `YYYY-MM-DD...`
        let text = moment.rfc3339();
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        rcgen::date_time_ymd(
            part(0, 4).parse().unwrap_or(1970),
            part(5, 7).parse().unwrap_or(1),
            part(8, 10).parse().unwrap_or(1),
        )
    });
    (params.not_before, params.not_after) = (from, to);
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("file", &self.0.watcher.as_ref().map(|watcher| &watcher.files().certificate))
            .field("stats", &self.stats())
            .finish()
    }
}
