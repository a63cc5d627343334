//! The options of the audit log, named as kube-apiserver's.

use crate::booleans::boolean;
use crate::durations::any_duration;
use anyhow::{Context as _, bail};
use clap::{ArgAction, Args, ValueEnum};
use setpoint::audit::{
    Audit, AuditLogOptions, AuditMode, AuditWebhookOptions, AuditWorker, BatchOptions, Destination,
    LogFile, LogFileOptions, LogFormat, Policy, Throttle, Truncation,
};
use setpoint::egress::Dialer;
use setpoint::object::time::Clock;
use setpoint::remote::Remote;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where requests are recorded, and which.
#[derive(Debug, Args)]
pub(crate) struct AuditOptions {
    /// The policy (`audit.k8s.io/v1`): which requests are recorded, and at which level.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// The file of the audit log, one line for each event; `-` is standard output. Without a
    /// policy, nothing is recorded.
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// The size in MiB from which the file is rotated; 0: never.
    #[arg(long, value_name = "MIB", default_value_t = 100)]
    audit_log_maxsize: u64,
    /// The number of old files that are kept; 0 keeps all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Days after which old files are removed; 0: never.
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    audit_log_maxage: u32,
    /// Compresses old files with gzip.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    audit_log_compress: bool,
    /// What a line of the file is.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "json")]
    audit_log_format: Format,
    /// Whether requests wait until their events are in the file. Blocking modes write events at
    /// once, those of several requests together.
    #[arg(long, value_enum, value_name = "MODE", default_value = "batch")]
    audit_log_mode: Mode,
    /// How many events may wait to be written. Further ones are lost.
    #[arg(long, value_name = "N", default_value_t = BatchOptions::LOG.buffer_events_max)]
    audit_log_batch_buffer_size: usize,
    /// How many events are written at once.
    #[arg(long, value_name = "N", default_value_t = BatchOptions::LOG.batch_events_max)]
    audit_log_batch_max_size: usize,
    /// How long an event waits for others.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = any_duration)]
    audit_log_batch_max_wait: Duration,
    /// Whether the number of batches per second is limited.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    audit_log_batch_throttle_enable: bool,
    /// How many batches are written per second.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    audit_log_batch_throttle_qps: f64,
    /// How many batches are written at once after a pause.
    #[arg(long, value_name = "N", default_value_t = 0)]
    audit_log_batch_throttle_burst: u32,
    /// Leaves out the objects of large events of the file.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    audit_log_truncate_enabled: bool,
    /// From how many bytes an event is large.
    #[arg(long, value_name = "BYTES", default_value_t = Truncation::default().event_bytes_max)]
    audit_log_truncate_max_event_size: usize,
    #[command(flatten)]
    webhook: WebhookOptions,
}

/// The server that gets audit events.
#[derive(Debug, Args)]
struct WebhookOptions {
    /// A kubeconfig with a server that gets the events in batches (`EventList` of
    /// `audit.k8s.io/v1`). Without a policy, it gets none.
    #[arg(long, value_name = "FILE")]
    audit_webhook_config_file: Option<PathBuf>,
    /// Whether requests wait until the server has their events. Blocking modes send events at once.
    #[arg(long, value_enum, value_name = "MODE", default_value = "batch")]
    audit_webhook_mode: Mode,
    /// The pause after the first failed attempt to send a batch.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = any_duration)]
    audit_webhook_initial_backoff: Duration,
    /// How many events may wait to be sent. Further ones are lost.
    #[arg(long, value_name = "N", default_value_t = BatchOptions::WEBHOOK.buffer_events_max)]
    audit_webhook_batch_buffer_size: usize,
    /// How many events are sent at once.
    #[arg(long, value_name = "N", default_value_t = BatchOptions::WEBHOOK.batch_events_max)]
    audit_webhook_batch_max_size: usize,
    /// How long an event waits for others.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = any_duration)]
    audit_webhook_batch_max_wait: Duration,
    /// Whether the number of batches per second is limited.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true)]
    audit_webhook_batch_throttle_enable: bool,
    /// How many batches are sent per second.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f64,
    /// How many batches are sent at once after a pause.
    #[arg(long, value_name = "N", default_value_t = 15)]
    audit_webhook_batch_throttle_burst: u32,
    /// Leaves out the objects of large events.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    audit_webhook_truncate_enabled: bool,
    /// From how many bytes an event is large.
    #[arg(long, value_name = "BYTES", default_value_t = Truncation::default().event_bytes_max)]
    audit_webhook_truncate_max_event_size: usize,
    /// How many bytes of events are sent at once.
    #[arg(long, value_name = "BYTES", default_value_t = Truncation::default().batch_bytes_max)]
    audit_webhook_truncate_max_batch_size: usize,
}

/// What a line of the audit log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The event as JSON.
    Json,
    /// Some of its members as text.
    Legacy,
}

/// Whether requests wait for an event to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// They do not.
    Batch,
    /// They do, and go on if it cannot be stored.
    Blocking,
    /// They do, and are refused if their arrival cannot be stored.
    BlockingStrict,
}

impl Mode {
    /// The mode with its batches. `backend`: `log` or `webhook`, for errors.
    fn with(self, backend: &str, batches: BatchOptions) -> anyhow::Result<AuditMode> {
        match self {
            Self::Blocking => return Ok(AuditMode::Blocking),
            Self::BlockingStrict => return Ok(AuditMode::BlockingStrict),
            Self::Batch => {}
        }
        let positive = |name: &str, is_positive: bool, shown: &dyn std::fmt::Display| {
            positive(&format!("batch {backend} {name}"), is_positive, shown)
        };
        let (n_waiting, n_batch) = (batches.buffer_events_max, batches.batch_events_max);
        positive("buffer size", n_waiting > 0, &n_waiting)?;
        positive("max batch size", n_batch > 0, &n_batch)?;
        if let Some(Throttle { per_second, burst }) = batches.throttle {
            positive("throttle QPS", per_second > 0.0, &per_second)?;
            positive("throttle burst", burst > 0, &burst)?;
        }
        Ok(AuditMode::Batch(batches))
    }
}

/// Refuses a value that is not positive, in kube-apiserver's words.
fn positive(what: &str, is_positive: bool, shown: &dyn std::fmt::Display) -> anyhow::Result<()> {
    match is_positive {
        true => Ok(()),
        false => bail!("invalid audit {what} {shown}, must be a positive number"),
    }
}

/// A sink and its worker.
pub(crate) type Log = (Arc<Audit>, AuditWorker);

impl AuditOptions {
    /// The sinks and their workers; none if nothing is recorded. The webhook is reached with the
    /// dialer.
    pub(crate) async fn open(&self, clock: &Clock, dialer: Dialer) -> anyhow::Result<Vec<Log>> {
        let has_receiver =
            self.audit_log_path.is_some() || self.webhook.audit_webhook_config_file.is_some();
        let policy = match &self.audit_policy_file {
            Some(policy) => Policy::read(policy)
                .with_context(|| format!("loading audit policy file: {}", policy.display()))?,
            None if has_receiver => {
                tracing::warn!("no --audit-policy-file: nothing is recorded in the audit log");
                return Ok(Vec::new());
            }
            None => return Ok(Vec::new()),
        };
        if !has_receiver {
            tracing::warn!(
                "no --audit-log-path or --audit-webhook-config-file: nothing is recorded"
            );
        }
        let mut logs = Vec::new();
        if let Some(path) = &self.audit_log_path {
            logs.push(self.file(path, policy.clone(), clock)?);
        }
        if let Some(path) = &self.webhook.audit_webhook_config_file {
            let options = self.webhook.options()?;
            let remote = Remote::open(path, dialer).await.context("open the audit webhook")?;
            logs.push(Audit::webhook(policy, remote, options));
        }
        Ok(logs)
    }

    fn file(&self, path: &Path, policy: Policy, clock: &Clock) -> anyhow::Result<Log> {
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
        let throttle = self.audit_log_batch_throttle_enable.then_some(Throttle {
            per_second: self.audit_log_batch_throttle_qps,
            burst: self.audit_log_batch_throttle_burst,
        });
        let batches = BatchOptions {
            buffer_events_max: self.audit_log_batch_buffer_size,
            batch_events_max: self.audit_log_batch_max_size,
            batch_wait: self.audit_log_batch_max_wait,
            throttle,
        };
        let event_bytes_max = self.audit_log_truncate_max_event_size;
        let truncation = self
            .audit_log_truncate_enabled
            .then_some(Truncation { event_bytes_max, ..Truncation::default() });
        positive("truncate log max event size", event_bytes_max > 0, &event_bytes_max)?;
        let mode = self.audit_log_mode.with("log", batches)?;
        let format = match self.audit_log_format {
            Format::Json => LogFormat::Json,
            Format::Legacy => LogFormat::Legacy,
        };
        Ok(Audit::log(policy, destination, AuditLogOptions { mode, truncation, format }))
    }
}

impl WebhookOptions {
    fn options(&self) -> anyhow::Result<AuditWebhookOptions> {
        let throttle = self.audit_webhook_batch_throttle_enable.then_some(Throttle {
            per_second: self.audit_webhook_batch_throttle_qps,
            burst: self.audit_webhook_batch_throttle_burst,
        });
        let batches = BatchOptions {
            buffer_events_max: self.audit_webhook_batch_buffer_size,
            batch_events_max: self.audit_webhook_batch_max_size,
            batch_wait: self.audit_webhook_batch_max_wait,
            throttle,
        };
        let event_bytes_max = self.audit_webhook_truncate_max_event_size;
        let batch_bytes_max = self.audit_webhook_truncate_max_batch_size;
        positive("truncate webhook max event size", event_bytes_max > 0, &event_bytes_max)?;
        if batch_bytes_max < event_bytes_max {
            bail!(
                "invalid audit truncate webhook max batch size {batch_bytes_max}, must be greater than max event size ({event_bytes_max})"
            );
        }
        Ok(AuditWebhookOptions {
            mode: self.audit_webhook_mode.with("webhook", batches)?,
            initial_backoff: self.audit_webhook_initial_backoff,
            truncation: self
                .audit_webhook_truncate_enabled
                .then_some(Truncation { event_bytes_max, batch_bytes_max }),
        })
    }
}
