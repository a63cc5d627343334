//! Observers: audit sinks and metrics. They are called for every request and do not affect it.

use parking_lot::Mutex;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_registry::Attributes;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The stage of a request in an audit event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The user is known and nothing else has been done.
    RequestReceived,
    /// A watch starts to answer: its head is sent, its events follow.
    ResponseStarted,
    /// The answer is complete; a watch has ended.
    ResponseComplete,
    /// The handler panicked; the client gets a 500.
    Panic,
}

impl Stage {
    /// The name in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// One stage of one request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditEvent {
    /// The stage.
    pub stage: Stage,
    /// The request, with its id and its annotations so far.
    pub request: Arc<Attributes>,
    /// The HTTP code, once it is known. Absent at the end if the client disconnected before.
    pub code: Option<u16>,
    /// When the request arrived.
    pub received: Timestamp,
    /// When this stage was reached.
    pub reached: Timestamp,
}

/// Receives audit events. The sink decides what it records of which request (the policy's level).
///
/// It is called while the request is served, so it must return at once: it may inspect, count and
/// forward. [`AuditQueue`] is a sink that forwards without waiting.
///
/// ```
/// use setpoint_apiserver::{AuditEvent, AuditSink, Stage};
///
/// /// Logs all changes and their users.
/// #[derive(Debug)]
/// struct Changes;
///
/// impl AuditSink for Changes {
///     fn record(&self, event: AuditEvent) {
///         let request = &event.request;
///         if event.stage == Stage::ResponseComplete && !request.verb.is_read_only() {
///             println!("{} {} {}/{}", request.identity.user, request.verb, request.resource(), request.name());
///         }
///     }
/// }
/// ```
pub trait AuditSink: Debug + Send + Sync {
    /// Records an event. Must not block.
    fn record(&self, event: AuditEvent);
}

/// Counts requests. Called while the request is served: must return at once. By default, every
/// method does nothing.
pub trait Metrics: Debug + Send + Sync {
    /// A request starts.
    fn begun(&self, _request: &Attributes) {}
    /// The head of the answer is ready, `latency` after the request arrived. The events of a watch
    /// follow.
    fn answered(&self, _request: &Attributes, _code: u16, _latency: Duration) {}
    /// A request ends, `elapsed` after it arrived: the answer is complete, the watch has ended, or
    /// the client disconnected. There is no code if it disconnected before the answer. Called once
    /// for each [`Metrics::begun`].
    fn ended(&self, _request: &Attributes, _code: Option<u16>, _elapsed: Duration) {}
}

/// An audit sink with a queue of fixed length. The reader may wait; recording never waits. Events
/// that find the queue full are dropped and counted.
#[derive(Debug)]
pub struct AuditQueue {
    capacity: usize,
    events: Mutex<VecDeque<AuditEvent>>,
    added: Notify,
    dropped: AtomicU64,
}

impl AuditQueue {
    /// An empty queue of at most `capacity` events.
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity,
            events: Mutex::default(),
            added: Notify::new(),
            dropped: AtomicU64::new(0),
        })
    }

    /// Waits for the next event, in the order in which they were recorded. For one reader. Dropping
    /// the future loses nothing.
    pub async fn next(&self) -> AuditEvent {
        loop {
            let added = self.added.notified();
            if let Some(event) = self.events.lock().pop_front() {
                return event;
            }
            added.await;
        }
    }

    /// Number of events that were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl AuditSink for AuditQueue {
    fn record(&self, event: AuditEvent) {
        let mut events = self.events.lock();
        if events.len() >= self.capacity {
            drop(events);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        events.push_back(event);
        drop(events);
        self.added.notify_one();
    }
}

/// All observers.
#[derive(Debug)]
pub(crate) struct Observers {
    pub(crate) audit: Vec<Arc<dyn AuditSink>>,
    pub(crate) metrics: Vec<Arc<dyn Metrics>>,
    pub(crate) clock: Clock,
}

impl Observers {
    /// Starts the observation of a request whose user is known.
    pub(crate) fn begin(self: &Arc<Self>, request: &Arc<Attributes>) -> Arc<Observation> {
        let observation = Observation {
            observers: self.clone(),
            request: request.clone(),
            received: self.clock.now(),
            begun: Instant::now(),
            code: AtomicU16::new(0),
        };
        for metrics in &self.metrics {
            metrics.begun(request);
        }
        observation.record(Stage::RequestReceived);
        Arc::new(observation)
    }
}

/// A request in progress. It ends when all its references are dropped: by the pipeline and, for a
/// watch, by its stream.
#[derive(Debug)]
pub(crate) struct Observation {
    observers: Arc<Observers>,
    request: Arc<Attributes>,
    received: Timestamp,
    begun: Instant,
    /// Zero: there is no answer yet.
    code: AtomicU16,
}

impl Observation {
    /// The head of the answer is ready. `follows`: it is a watch, whose events follow.
    pub(crate) fn answered(&self, code: u16, follows: bool) {
        self.code.store(code, Ordering::Relaxed);
        let latency = self.begun.elapsed();
        for metrics in &self.observers.metrics {
            metrics.answered(&self.request, code, latency);
        }
        if follows {
            self.record(Stage::ResponseStarted);
        }
    }

    fn code(&self) -> Option<u16> {
        Some(self.code.load(Ordering::Relaxed)).filter(|code| *code != 0)
    }

    fn record(&self, stage: Stage) {
        let code = self.code();
        for sink in &self.observers.audit {
            sink.record(AuditEvent {
                stage,
                request: self.request.clone(),
                code,
                received: self.received,
                reached: self.observers.clock.now(),
            });
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let has_panicked = std::thread::panicking();
        if has_panicked {
            self.code.store(500, Ordering::Relaxed);
        }
        self.record(if has_panicked { Stage::Panic } else { Stage::ResponseComplete });
        let (code, elapsed) = (self.code(), self.begun.elapsed());
        for metrics in &self.observers.metrics {
            metrics.ended(&self.request, code, elapsed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_registry::{Identity, Requested, Verb};

    #[tokio::test]
    async fn a_full_queue_drops_and_counts_without_waiting() {
        let queue = AuditQueue::new(3);
        let observers = Arc::new(Observers {
            audit: vec![queue.clone()],
            metrics: Vec::new(),
            clock: Clock::starting_at(Timestamp::from_secs(1)),
        });
        let path = Requested::Path("/x".to_owned());
        let request = Arc::new(Attributes::new(Identity::admin(), Verb::Get, path));
        let observation = observers.begin(&request);
        observation.answered(200, true);
        drop(observation);
        // Nobody reads: the next request finds the queue full.
        drop(observers.begin(&request));
        assert_eq!(queue.dropped(), 2);
        let mut stages = Vec::new();
        for _ in 0..3 {
            let event = queue.next().await;
            stages.push((event.stage, event.code));
        }
        assert_eq!(
            stages,
            [
                (Stage::RequestReceived, None),
                (Stage::ResponseStarted, Some(200)),
                (Stage::ResponseComplete, Some(200)),
            ]
        );
    }
}
