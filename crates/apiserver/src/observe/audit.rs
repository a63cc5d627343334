//! What audit sinks receive.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use parking_lot::Mutex;
use setpoint_object::Status;
use setpoint_object::time::Timestamp;
use setpoint_registry::{Attributes, Format, Identity};
use setpoint_serve::PeerAddress;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Maximum number of addresses of proxies that are recorded for audit.
const FORWARDED_MAX: usize = 16;

/// The stage of a request in an audit event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The user is known and nothing else has been done.
    RequestReceived,
    /// The head of the answer to a watch or a stream is ready, or the refusal of a request whose
    /// user is not known, of which nothing else is recorded.
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

/// How much of a request a sink records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AuditLevel {
    /// Nothing.
    None,
    /// Who did what, without bodies.
    #[default]
    Metadata,
    /// Also the body of the request, if it is about a resource.
    Request,
    /// Also the body of the answer.
    RequestResponse,
}

/// Maximum size in bytes of a list in an audit event: 1 MiB. Making it must not delay others.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The body of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditBody {
    /// The bytes, at most [`BODY_BYTES_MAX`](crate::BODY_BYTES_MAX).
    pub bytes: Bytes,
    /// Its encoding.
    pub format: Format,
}

/// Where a request came from. Empty in process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditSource {
    /// Path and query.
    pub uri: String,
    /// The address of the client: what proxies report (`X-Forwarded-For`, `X-Real-Ip`), then the
    /// connection's.
    pub addresses: Vec<IpAddr>,
}

impl AuditSource {
    /// Of a request over HTTP. What proxies report cannot be verified: it is for people who read
    /// the audit log.
    pub(crate) fn of(parts: &Parts) -> Self {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let forwarded = header("x-forwarded-for").unwrap_or_default().split(',');
        let mut addresses: Vec<IpAddr> = forwarded
            .chain(header("x-real-ip"))
            .filter_map(|text| text.trim().parse().ok())
            .take(FORWARDED_MAX)
            .collect();
        let peer = parts.extensions.get::<PeerAddress>().map(|peer| peer.0.ip());
        if let Some(peer) = peer.filter(|peer| addresses.last() != Some(peer)) {
            addresses.push(peer);
        }
        let uri = parts.uri.path_and_query().map_or("", |uri| uri.as_str());
        Self { uri: uri.to_owned(), addresses }
    }
}

/// One stage of one request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditEvent {
    /// The stage.
    pub stage: Stage,
    /// The request, with its id and its annotations.
    pub request: Arc<Attributes>,
    /// How many annotations it had at this stage: the first ones. Later ones are those of later
    /// stages.
    pub n_annotations: usize,
    /// The HTTP code, once it is known. Absent at the end if the client disconnected before.
    pub code: Option<u16>,
    /// When the request arrived.
    pub received: Timestamp,
    /// When this stage was reached: for `RequestReceived`, when the request arrived.
    pub reached: Timestamp,
    /// The authenticated user; the request's is another one if it is impersonated.
    pub user: Identity,
    /// Where the request came from.
    pub source: Arc<AuditSource>,
    /// The body of a write. An object: once it is decoded, and never if it is refused. If a sink
    /// has [`AuditLevel::Request`], one of a built-in kind has its defaults. Patches and options of
    /// deletions: once they are read, as they were sent.
    pub sent: Option<AuditBody>,
    /// The object or the list of the answer as JSON, for sinks with
    /// [`AuditLevel::RequestResponse`]. Absent for watches, documents and other servers' answers.
    pub answer: Option<Bytes>,
    /// The answer is a list of more than [`ANSWER_BYTES_MAX`] bytes, which is not here.
    pub answer_left_out: bool,
    /// Why the request failed.
    pub failure: Option<Arc<Status>>,
    /// The answer of a deletion, binding or eviction that succeeded, if it is a `Status` in place
    /// of an object.
    pub success: Option<Arc<Status>>,
}

/// An event that had to be stored was not: the request that it is about is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed to store audit event")]
pub struct EventLost;

/// What a request waits for: the result of storing its event. Must end within a bounded time.
pub type EventStored = BoxFuture<'static, Result<(), EventLost>>;

/// Receives audit events. The sink decides what it records of which request (the policy's level).
///
/// It is called while the request is served, so it must return at once: it may inspect, count and
/// forward. [`AuditQueue`] is a sink that forwards without waiting. A sink that has requests wait
/// for their events implements [`AuditSink::record_for`].
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
    /// How much it will record of a request, whose user is authenticated and not yet impersonated.
    /// Called once per request. Default: [`AuditLevel::Metadata`].
    fn level(&self, _request: &Attributes) -> AuditLevel {
        AuditLevel::Metadata
    }

    /// Records an event. Must not block.
    fn record(&self, event: AuditEvent);

    /// Records an event of a request that can wait. `None`, the default after
    /// [`record`](AuditSink::record): it does not. Must not block itself.
    ///
    /// | the stage | the request waits | [`EventLost`] |
    /// |---|---|---|
    /// | `RequestReceived` | before anything is done | refuses it with 500 |
    /// | `ResponseStarted` | before the head is sent | is ignored |
    /// | `ResponseComplete` | before the answer is sent, within its deadline | is ignored |
    ///
    /// Whoever cannot wait is recorded with `record`: watches and streams that end, clients that
    /// disconnected, requests that panicked or ran out of time.
    fn record_for(&self, event: AuditEvent) -> Option<EventStored> {
        self.record(event);
        None
    }
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
