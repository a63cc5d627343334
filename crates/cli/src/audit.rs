//! The options of the audit log, named as kube-apiserver's.

use anyhow::Context as _;
use clap::Args;
use setpoint::audit::{Audit, AuditWorker, Destination, LogFile, LogFileOptions, Policy};
use setpoint::object::time::Clock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where requests are recorded, and which.
#[derive(Debug, Args)]
pub(crate) struct AuditOptions {
    /// The policy (`audit.k8s.io/v1`) that says which requests are recorded and how much of them.
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// The file of the audit log, one line of JSON for each event; `-` is standard output. Without
    /// a policy, nothing is recorded.
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// The size in MiB from which the file is rotated.
    #[arg(long, value_name = "MIB", default_value_t = 100)]
    audit_log_maxsize: u64,
    /// The number of old files that are kept; 0 keeps all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    audit_log_maxbackup: usize,
    /// For how many days old files are kept; 0 keeps them for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    audit_log_maxage: u32,
    /// Compresses old files with gzip.
    #[arg(long)]
    audit_log_compress: bool,
}

impl AuditOptions {
    /// The sink and its worker; `None` if nothing is recorded.
    pub(crate) fn open(&self, clock: &Clock) -> anyhow::Result<Option<(Arc<Audit>, AuditWorker)>> {
        let Some(path) = &self.audit_log_path else { return Ok(None) };
        let Some(policy) = &self.audit_policy_file else {
            tracing::warn!("no --audit-policy-file: nothing is recorded in the audit log");
            return Ok(None);
        };
        let policy = Policy::read(policy)?;
        let options = LogFileOptions {
            bytes_max: self.audit_log_maxsize.saturating_mul(1 << 20),
            backups_max: self.audit_log_maxbackup,
            age_max: Duration::from_secs(u64::from(self.audit_log_maxage) * 24 * 3600),
            compress: self.audit_log_compress,
        };
        let destination = match path == Path::new("-") {
            true => Destination::Stdout,
            false => Destination::File(
                LogFile::open(path, options, clock.clone())
                    .with_context(|| format!("open the audit log {}", path.display()))?,
            ),
        };
        Ok(Some(Audit::new(policy, destination)))
    }
}
