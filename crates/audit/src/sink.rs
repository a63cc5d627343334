//! The sink of the API server, and the worker that writes.

use crate::batch::{self, AuditMode, BatchOptions, Receiver};
use crate::event::{self, Truncation};
use crate::log_file::LogFile;
use crate::old_files::OldFiles;
use crate::policy::Policy;
use crate::webhook::{AuditWebhookOptions, Webhook};
use futures::FutureExt as _;
use parking_lot::Mutex;
use setpoint_apiserver::{AuditEvent, AuditLevel, AuditSink, EventLost, EventStored, Stage};
use setpoint_object::error::chain;
use setpoint_registry::{Attributes, Decoded};
use setpoint_remote::Remote;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Maximum number of events that wait to be written.
pub const EVENTS_MAX: usize = 16_384;
/// Maximum bytes of events that wait to be written: 64 MiB. Counts bodies, statuses, and all texts
/// of requests, of their users and of what is noted on them.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// How long a request waits for an event at most: 60 s, as long as a request takes.
pub const BLOCKING_MAX: Duration = Duration::from_secs(60);

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

/// How lines are written.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditLogOptions {
    /// Whether requests wait. Default: they do not, [`BatchOptions::LOG`].
    pub mode: AuditMode,
    /// Leaves out the objects of large events. Default: up to
    /// [`OBJECT_BYTES_MAX`](crate::OBJECT_BYTES_MAX) each.
    pub truncation: Option<Truncation>,
    /// What a line is. Default: JSON.
    pub format: LogFormat,
}

/// What a line of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// An `Event` of `audit.k8s.io/v1` as JSON.
    #[default]
    Json,
    /// Some of an event's members as text, as in old versions of Kubernetes. Without bodies.
    Legacy,
}

impl Default for AuditLogOptions {
    fn default() -> Self {
        let mode = AuditMode::Batch(BatchOptions::LOG);
        Self { mode, truncation: None, format: LogFormat::Json }
    }
}

/// The sink. [`Audit::log`] and [`Audit::webhook`] return it with the worker that stores what it
/// receives.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    /// `log` or `webhook`.
    plugin: &'static str,
    waiting: Waiting,
    queue: Mutex<Queue>,
    events_max: usize,
    pub(crate) added: Notify,
    counts: Arc<Counts>,
}

/// Who waits until an event is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nobody,
    Requests,
    /// And a request is refused if its arrival is not stored.
    Strictly,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Entry>,
    n_bytes: usize,
    /// The worker has ended.
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Counts {
    events: AtomicU64,
    /// Requests by level.
    levels: [AtomicU64; AuditStats::LEVELS.len()],
    overflown: AtomicU64,
    too_large: AtomicU64,
    undelivered: AtomicU64,
    refused: AtomicU64,
}

/// What an [`Audit`] has done since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AuditStats {
    /// Events that the policy selects.
    pub events: u64,
    /// Requests by their level, in the order of [`AuditStats::LEVELS`].
    pub levels: [u64; Self::LEVELS.len()],
    /// Events that are lost because they found the queue full.
    pub overflown: u64,
    /// Events that are lost because they are too large even without their objects
    /// ([`Truncation`]).
    pub too_large: u64,
    /// Events that are lost because the receiver did not take them.
    pub undelivered: u64,
    /// Requests that were refused because their arrival could not be stored.
    pub refused: u64,
}

impl AuditStats {
    /// The levels of a policy.
    pub const LEVELS: [AuditLevel; 4] =
        [AuditLevel::None, AuditLevel::Metadata, AuditLevel::Request, AuditLevel::RequestResponse];
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Stored,
    /// It is too large even without its objects.
    TooLarge,
    /// The receiver did not take it.
    Lost,
}

/// An event that waits.
#[derive(Debug)]
pub(crate) struct Entry {
    event: AuditEvent,
    level: AuditLevel,
    omits_managed_fields: bool,
    /// What it keeps in memory, of what a client or its answer may make large.
    n_bytes: usize,
    /// Receives whether it was stored.
    waiting: Option<oneshot::Sender<bool>>,
}

impl Entry {
    fn new(mut event: AuditEvent, level: AuditLevel, omits_managed_fields: bool) -> Self {
        if matches!(event.stage, Stage::RequestReceived | Stage::ResponseStarted) {
            // What later stages note on the request would be kept, and not be counted.
            event.request = Arc::new(event.request.so_far(event.n_annotations));
        }
        let sent = event.sent.as_ref().map(|sent| &sent.bytes);
        let decoded = match event.request.decoded() {
            Some(Decoded::Object(object)) => Some(object),
            Some(Decoded::Dropped) | None => None,
        };
        // In most cases, they are the same bytes.
        let decoded = decoded.filter(|one| sent.is_none_or(|sent| sent.as_ptr() != one.as_ptr()));
        let bodies = [sent, decoded, event.answer.as_ref()].into_iter().flatten();
        let bodies = bodies.map(|body| body.len());
        let statuses = event.failure.iter().chain(&event.success).map(|status| status.n_bytes());
        let texts = [event.source.uri.len(), event.request.n_bytes()];
        let n_bytes = bodies.chain(statuses).chain(texts).sum();
        Self { event, level, omits_managed_fields, n_bytes, waiting: None }
    }

    /// The event as an item of a list; `None` if it is too large.
    pub(crate) fn item(&self, truncation: Option<Truncation>) -> Option<Vec<u8>> {
        event::encode_item(&self.event, self.level, self.omits_managed_fields, truncation)
    }

    /// The event as a line of a log, without a line break; `None` if it is too large.
    fn line(&self, format: LogFormat, truncation: Option<Truncation>) -> Option<Vec<u8>> {
        match format {
            LogFormat::Json => {
                event::encode(&self.event, self.level, self.omits_managed_fields, truncation)
            }
            LogFormat::Legacy => event::encode_legacy(&self.event, self.level, truncation),
        }
    }

    pub(crate) fn take_waiting(&mut self) -> Option<oneshot::Sender<bool>> {
        self.waiting.take()
    }
}

impl Audit {
    /// A sink that records the requests that the policy selects as lines of JSON, and the worker
    /// that writes them. Nothing is written before the worker runs.
    pub fn log(
        policy: Policy,
        destination: Destination,
        options: AuditLogOptions,
    ) -> (Arc<Self>, AuditWorker) {
        let AuditLogOptions { mode, truncation, format } = options;
        let old = match &destination {
            Destination::Stdout => None,
            Destination::File(file) => Some(file.old()),
        };
        let destination = Arc::new(Mutex::new(destination));
        let lines = Lines { destination, old, truncation, format };
        Self::queued(policy, "log", mode, BatchOptions::LOG, |batches| {
            Delivery::Lines(lines, batches)
        })
    }

    /// The same for a server that gets batches of events (`EventList` of `audit.k8s.io/v1`).
    pub fn webhook(
        policy: Policy,
        remote: Remote,
        options: AuditWebhookOptions,
    ) -> (Arc<Self>, AuditWorker) {
        let AuditWebhookOptions { mode, initial_backoff, truncation } = options;
        let webhook = Webhook { remote, initial_backoff, truncation };
        Self::queued(policy, "webhook", mode, BatchOptions::WEBHOOK, |batches| {
            Delivery::Webhook(webhook, batches)
        })
    }

    /// `batches`: the defaults, of which a blocking mode takes the size.
    fn queued(
        policy: Policy,
        plugin: &'static str,
        mode: AuditMode,
        batches: BatchOptions,
        delivery: impl FnOnce(BatchOptions) -> Delivery,
    ) -> (Arc<Self>, AuditWorker) {
        let at_once = BatchOptions {
            buffer_events_max: EVENTS_MAX,
            batch_wait: Duration::ZERO,
            throttle: None,
            ..batches
        };
        let (waiting, batches) = match mode {
            AuditMode::Batch(batches) => (Waiting::Nobody, batches),
            AuditMode::Blocking => (Waiting::Requests, at_once),
            AuditMode::BlockingStrict => (Waiting::Strictly, at_once),
        };
        let audit = Arc::new(Self {
            policy,
            plugin,
            waiting,
            queue: Mutex::default(),
            events_max: batches.buffer_events_max,
            added: Notify::new(),
            counts: Arc::default(),
        });
        let worker = AuditWorker { audit: audit.clone(), delivery: delivery(batches) };
        (audit, worker)
    }

    /// Number of events that were lost since the start: they found the queue full, or could not be
    /// written.
    pub fn dropped(&self) -> u64 {
        let stats = self.stats();
        stats.overflown + stats.too_large + stats.undelivered
    }

    /// What it has done so far.
    pub fn stats(&self) -> AuditStats {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { events, levels, overflown, too_large, undelivered, refused } = &*self.counts;
        AuditStats {
            events: get(events),
            levels: levels.each_ref().map(get),
            overflown: get(overflown),
            too_large: get(too_large),
            undelivered: get(undelivered),
            refused: get(refused),
        }
    }

    /// `log` or `webhook`, as metrics name it.
    pub(crate) fn plugin(&self) -> &'static str {
        self.plugin
    }

    /// The fate of an event that was taken.
    pub(crate) fn settle(&self, waiting: Option<oneshot::Sender<bool>>, fate: Fate) {
        match fate {
            Fate::Stored => {}
            Fate::TooLarge => _ = self.counts.too_large.fetch_add(1, Ordering::Relaxed),
            Fate::Lost => _ = self.counts.undelivered.fetch_add(1, Ordering::Relaxed),
        }
        if let Some(waiting) = waiting {
            // The request may have gone on.
            let _ = waiting.send(fate == Fate::Stored);
        }
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
        queue.n_bytes -= batch.iter().map(|entry| entry.n_bytes).sum::<usize>();
        batch
    }

    /// Takes no more events. Returns how many are lost with the queue.
    pub(crate) fn close(&self) -> usize {
        let rest = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            std::mem::take(&mut queue.events)
        };
        let n_lost = rest.len();
        rest.into_iter().for_each(|entry| self.settle(entry.waiting, Fate::Lost));
        n_lost
    }

    /// The event as it will be recorded; `None`: it will not.
    fn entry(&self, mut event: AuditEvent) -> Option<Entry> {
        let verdict = self.policy.verdict(&event.user, &event.request);
        if !verdict.has(event.stage) {
            return None;
        }
        self.counts.events.fetch_add(1, Ordering::Relaxed);
        // Another sink may have asked for more.
        if verdict.level < AuditLevel::RequestResponse {
            event.answer = None;
            event.answer_left_out = false;
        }
        Some(Entry::new(event, verdict.level, verdict.omits_managed_fields))
    }

    /// Adds an event to the queue, unless that is full.
    fn push(&self, entry: Entry) {
        let mut queue = self.queue.lock();
        let n_bytes = queue.n_bytes + entry.n_bytes;
        let is_full = queue.events.len() >= self.events_max || n_bytes > QUEUE_BYTES_MAX;
        if is_full || queue.is_closed {
            drop(queue);
            // Dropping the entry tells whoever waits for it.
            self.counts.overflown.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.n_bytes = n_bytes;
        queue.events.push_back(entry);
        drop(queue);
        self.added.notify_one();
    }
}

impl AuditSink for Audit {
    fn level(&self, request: &Attributes) -> AuditLevel {
        let level = self.policy.verdict(&request.identity, request).level;
        if let Some(nth) = AuditStats::LEVELS.iter().position(|one| *one == level) {
            self.counts.levels[nth].fetch_add(1, Ordering::Relaxed);
        }
        level
    }

    fn record(&self, event: AuditEvent) {
        if let Some(entry) = self.entry(event) {
            self.push(entry);
        }
    }

    fn record_for(&self, event: AuditEvent) -> Option<EventStored> {
        let mut entry = self.entry(event)?;
        if self.waiting == Waiting::Nobody {
            self.push(entry);
            return None;
        }
        let may_refuse =
            self.waiting == Waiting::Strictly && entry.event.stage == Stage::RequestReceived;
        let (sender, receiver) = oneshot::channel();
        entry.waiting = Some(sender);
        self.push(entry);
        let counts = self.counts.clone();
        let stored = async move {
            let is_stored = matches!(timeout(BLOCKING_MAX, receiver).await, Ok(Ok(true)));
            if is_stored || !may_refuse {
                return Ok(());
            }
            counts.refused.fetch_add(1, Ordering::Relaxed);
            Err(EventLost)
        };
        Some(stored.boxed())
    }
}

/// Writes the events of an [`Audit`].
#[must_use = "nothing is written until it runs"]
pub struct AuditWorker {
    audit: Arc<Audit>,
    delivery: Delivery,
}

/// Who gets the events, and when.
#[derive(Debug)]
enum Delivery {
    Lines(Lines, BatchOptions),
    Webhook(Webhook, BatchOptions),
}

impl fmt::Debug for AuditWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditWorker").field("delivery", &self.delivery).finish_non_exhaustive()
    }
}

impl AuditWorker {
    /// Writes until `stop`, then what is still queued; a webhook gets it within
    /// [`ORDERLY_END_MAX`](crate::ORDERLY_END_MAX). Encodes and writes on threads that may block.
    /// An error of the destination is logged, and its events are lost: a full disk does not stop
    /// the server, unless the mode is [`AuditMode::BlockingStrict`]. Old files are compressed and
    /// removed beside; what is left of that at the end is done after the next start. Dropping the
    /// future loses what is queued. Events that are recorded after its end are lost.
    pub async fn run(self, stop: CancellationToken) {
        let Self { audit, delivery } = self;
        match delivery {
            Delivery::Lines(lines, batches) => lines.run(&audit, &batches, stop).await,
            Delivery::Webhook(webhook, batches) => {
                batch::run(&audit, &webhook, &batches, stop).await;
            }
        }
    }
}

/// Lines of a log.
#[derive(Debug)]
struct Lines {
    /// Locked while a batch is written, by one thread at a time.
    destination: Arc<Mutex<Destination>>,
    /// Those of a file.
    old: Option<OldFiles>,
    truncation: Option<Truncation>,
    format: LogFormat,
}

impl Lines {
    /// Writes, and keeps old files tidy beside, which ends with the last line.
    async fn run(&self, audit: &Audit, batches: &BatchOptions, stop: CancellationToken) {
        let ended = CancellationToken::new();
        let writing = async {
            batch::run(audit, self, batches, stop).await;
            ended.cancel();
        };
        let tidying = async {
            if let Some(old) = &self.old {
                old.keep_tidy(&ended).await;
            }
        };
        tokio::join!(writing, tidying);
    }
}

impl Receiver for Lines {
    const SENDING_MAX: usize = 1;
    const END_MAX: Option<Duration> = None;

    async fn deliver(&self, audit: &Audit, mut batch: Vec<Entry>, _: &CancellationToken) {
        let waiting: Vec<_> = batch.iter_mut().map(Entry::take_waiting).collect();
        let destination = self.destination.clone();
        let (truncation, format) = (self.truncation, self.format);
        let written = tokio::task::spawn_blocking(move || {
            let (mut lines, mut fits) = (Vec::with_capacity(batch.len()), Vec::new());
            for entry in &batch {
                let line = entry.line(format, truncation);
                fits.push(line.is_some());
                lines.extend(line.map(|mut line| {
                    line.push(b'\n');
                    line
                }));
            }
            let written = destination.lock().write(&lines);
            (written, fits)
        });
        let fits = match written.await {
            Ok((Ok(()), fits)) => fits,
            Ok((Err(error), _)) => {
                tracing::error!(
                    error = chain(&error),
                    events = waiting.len(),
                    "write the audit log"
                );
                Vec::new()
            }
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    events = waiting.len(),
                    "encode the audit log"
                );
                Vec::new()
            }
        };
        for (nth, waiting) in waiting.into_iter().enumerate() {
            let fate = match fits.get(nth) {
                Some(true) => Fate::Stored,
                Some(false) => Fate::TooLarge,
                None => Fate::Lost,
            };
            audit.settle(waiting, fate);
        }
    }
}
