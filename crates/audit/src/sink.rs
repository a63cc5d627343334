//! The sink of the API server, and the worker that writes.

use crate::event;
use crate::log_file::LogFile;
use crate::policy::Policy;
use parking_lot::Mutex;
use setpoint_apiserver::{AuditEvent, AuditLevel, AuditSink};
use setpoint_registry::Attributes;
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
    added: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Entry>,
    n_bytes: usize,
}

#[derive(Debug)]
struct Entry {
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
}

impl Audit {
    /// A sink that records what the policy says, and the worker that writes it. Nothing is written
    /// before the worker runs.
    pub fn new(policy: Policy, destination: Destination) -> (Arc<Self>, AuditWorker) {
        let audit = Arc::new(Self {
            policy,
            queue: Mutex::default(),
            added: Notify::new(),
            dropped: AtomicU64::new(0),
        });
        (audit.clone(), AuditWorker { audit, destination })
    }

    /// Number of events that were lost since the start: they found the queue full, or could not be
    /// written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn drop_events(&self, n: usize) {
        self.dropped.fetch_add(n as u64, Ordering::Relaxed);
    }

    fn take(&self) -> Vec<Entry> {
        let mut queue = self.queue.lock();
        let n = queue.events.len().min(BATCH);
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
        }
        let (level, omits_managed_fields) = (verdict.level, verdict.omits_managed_fields);
        let entry = Entry { event, level, omits_managed_fields };
        let mut queue = self.queue.lock();
        let n_bytes = queue.n_bytes + entry.n_bytes();
        if queue.events.len() >= EVENTS_MAX || n_bytes > QUEUE_BYTES_MAX {
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
    destination: Destination,
}

impl fmt::Debug for AuditWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditWorker")
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}

impl AuditWorker {
    /// Writes until `stop`, then what is still queued. Encodes and writes on threads that may
    /// block. An error of the destination is logged, and its events are lost: a full disk does not
    /// stop the server. Dropping the future loses what is queued.
    pub async fn run(self, stop: CancellationToken) {
        let Self { audit, mut destination } = self;
        loop {
            let batch = audit.take();
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
                let written = destination.write(&encode(&batch));
                (destination, written)
            });
            match written.await {
                Ok((returned, Ok(()))) => destination = returned,
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
fn encode(batch: &[Entry]) -> Vec<Vec<u8>> {
    let lines = batch.iter().map(|entry| {
        let mut line = event::encode(&entry.event, entry.level, entry.omits_managed_fields);
        line.push(b'\n');
        line
    });
    lines.collect()
}
