//! The sink of the API server, and the worker that writes.

use crate::event::{self, Truncation};
use crate::log_file::LogFile;
use crate::policy::Policy;
use crate::webhook::{self, AuditWebhookOptions};
use parking_lot::Mutex;
use setpoint_apiserver::{AuditEvent, AuditLevel, AuditSink};
use setpoint_registry::Attributes;
use setpoint_remote::Remote;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Maximum number of events that wait to be written.
pub const EVENTS_MAX: usize = 16_384;
/// Maximum bytes of bodies of events that wait to be written: 64 MiB.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Events that are encoded and written at once.
const BATCH: usize = 512;

/// Where the lines go.
#[derive(Debug)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A file.
    File(LogFile),
}

impl Destination {
    fn write(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                for line in lines {
                    out.write_all(line)?;
                }
                out.flush()
            }
            Self::File(file) => file.write(lines),
        }
    }
}

/// The sink. [`Audit::new`] returns it with the worker that writes what it receives.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    queue: Mutex<Queue>,
    events_max: usize,
    pub(crate) added: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Entry>,
    n_bytes: usize,
}

/// An event that waits.
#[derive(Debug)]
pub(crate) struct Entry {
    event: AuditEvent,
    level: AuditLevel,
    omits_managed_fields: bool,
}

impl Entry {
    /// The bodies that it keeps in memory.
    fn n_bytes(&self) -> usize {
        let sent = self.event.sent.as_ref().map_or(0, |sent| sent.bytes.len());
        sent + self.event.answer.as_ref().map_or(0, |answer| answer.len())
    }

    /// The event as JSON; `None` if it is too large.
    pub(crate) fn encode(&self, truncation: Option<Truncation>) -> Option<Vec<u8>> {
        event::encode(&self.event, self.level, self.omits_managed_fields, truncation)
    }
}

impl Audit {
    /// A sink that records what the policy says, and the worker that writes it. Nothing is written
    /// before the worker runs.
    pub fn new(policy: Policy, destination: Destination) -> (Arc<Self>, AuditWorker) {
        let audit = Self::queued(policy, EVENTS_MAX);
        let receiver = Receiver::Lines { destination, truncation: None };
        (audit.clone(), AuditWorker { audit, receiver })
    }

    /// The same for a server that gets batches of events (`EventList` of `audit.k8s.io/v1`).
    pub fn webhook(
        policy: Policy,
        remote: Remote,
        options: AuditWebhookOptions,
    ) -> (Arc<Self>, AuditWorker) {
        let audit = Self::queued(policy, options.buffer_events_max);
        (audit.clone(), AuditWorker { audit, receiver: Receiver::Webhook { remote, options } })
    }

    fn queued(policy: Policy, events_max: usize) -> Arc<Self> {
        Arc::new(Self {
            policy,
            queue: Mutex::default(),
            events_max,
            added: Notify::new(),
            dropped: AtomicU64::new(0),
        })
    }

    /// Number of events that were lost since the start: they found the queue full, or could not be
    /// written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn drop_events(&self, n: usize) {
        self.dropped.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// The number of events that wait.
    pub(crate) fn n_waiting(&self) -> usize {
        self.queue.lock().events.len()
    }

    /// Takes at most so many events.
    pub(crate) fn take(&self, n_max: usize) -> Vec<Entry> {
        let mut queue = self.queue.lock();
        let n = queue.events.len().min(n_max);
        let batch: Vec<_> = queue.events.drain(..n).collect();
        queue.n_bytes -= batch.iter().map(Entry::n_bytes).sum::<usize>();
        batch
    }
}

impl AuditSink for Audit {
    fn level(&self, request: &Attributes) -> AuditLevel {
        self.policy.verdict(&request.identity, request).level
    }

    fn record(&self, mut event: AuditEvent) {
        let verdict = self.policy.verdict(&event.user, &event.request);
        if !verdict.has(event.stage) {
            return;
        }
        // Another sink may have asked for more.
        if verdict.level < AuditLevel::RequestResponse {
            event.answer = None;
            event.answer_left_out = false;
        }
        let (level, omits_managed_fields) = (verdict.level, verdict.omits_managed_fields);
        let entry = Entry { event, level, omits_managed_fields };
        let mut queue = self.queue.lock();
        let n_bytes = queue.n_bytes + entry.n_bytes();
        if queue.events.len() >= self.events_max || n_bytes > QUEUE_BYTES_MAX {
            drop(queue);
            self.drop_events(1);
            return;
        }
        queue.n_bytes = n_bytes;
        queue.events.push_back(entry);
        drop(queue);
        self.added.notify_one();
    }
}

/// Writes the events of an [`Audit`].
#[must_use = "nothing is written until it runs"]
pub struct AuditWorker {
    audit: Arc<Audit>,
    receiver: Receiver,
}

/// Who gets the events.
#[derive(Debug)]
enum Receiver {
    Lines { destination: Destination, truncation: Option<Truncation> },
    Webhook { remote: Remote, options: AuditWebhookOptions },
}

impl fmt::Debug for AuditWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditWorker").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

impl AuditWorker {
    /// Leaves out the objects of large events of a file. Default: up to [`OBJECT_BYTES_MAX`] each.
    /// A webhook has this among its [options](AuditWebhookOptions).
    ///
    /// [`OBJECT_BYTES_MAX`]: crate::OBJECT_BYTES_MAX
    pub fn truncate(mut self, limits: Truncation) -> Self {
        if let Receiver::Lines { truncation, .. } = &mut self.receiver {
            *truncation = Some(limits);
        }
        self
    }

    /// Writes until `stop`, then what is still queued; a webhook gets it within
    /// [`ORDERLY_END_MAX`](crate::ORDERLY_END_MAX). Encodes and writes on threads that may block.
    /// An error of the destination is logged, and its events are lost: a full disk does not stop
    /// the server. Dropping the future loses what is queued.
    pub async fn run(self, stop: CancellationToken) {
        let Self { audit, receiver } = self;
        match receiver {
            Receiver::Lines { destination, truncation } => {
                Self::write(&audit, destination, truncation, stop).await;
            }
            Receiver::Webhook { remote, options } => {
                webhook::run(&audit, &remote, options, stop).await;
            }
        }
    }

    async fn write(
        audit: &Audit,
        mut destination: Destination,
        truncation: Option<Truncation>,
        stop: CancellationToken,
    ) {
        loop {
            let batch = audit.take(BATCH);
            if batch.is_empty() {
                if stop.is_cancelled() {
                    return;
                }
                tokio::select! {
                    // Cancel safe: a notification that is not taken stays.
                    () = audit.added.notified() => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            let n = batch.len();
            let written = tokio::task::spawn_blocking(move || {
                let lines = encode(&batch, truncation);
                let written = destination.write(&lines).map(|()| lines.len());
                (destination, written)
            });
            match written.await {
                Ok((returned, Ok(n_written))) => {
                    destination = returned;
                    audit.drop_events(n - n_written);
                }
                Ok((returned, Err(error))) => {
                    destination = returned;
                    audit.drop_events(n);
                    tracing::error!(%error, events = n, "write the audit log");
                }
                Err(error) => {
                    audit.drop_events(n);
                    tracing::error!(%error, "the audit log ends");
                    return;
                }
            }
        }
    }
}

/// The lines of a batch.
fn encode(batch: &[Entry], truncation: Option<Truncation>) -> Vec<Vec<u8>> {
    let lines = batch.iter().filter_map(|entry| {
        let mut line = entry.encode(truncation)?;
        line.push(b'\n');
        Some(line)
    });
    lines.collect()
}
