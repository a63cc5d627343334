//! Observers: audit sinks and metrics. They are called for every request. A sink may have it wait
//! until its events are stored; nothing else affects it.

mod audit;

pub use audit::{
    ANSWER_BYTES_MAX, AuditBody, AuditEvent, AuditLevel, AuditQueue, AuditSink, AuditSource,
    EventLost, EventStored, Stage,
};

use crate::body::Body;
use crate::filter::watches::OpenWatch;
use crate::trace;
use bytes::Bytes;
use futures::future::try_join_all;
use futures::{FutureExt as _, TryStreamExt as _};
use http_body_util::BodyDataStream;
use setpoint_object::ApiError;
use setpoint_object::Status;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_registry::{Attributes, Decoded, Format, Identity, Resource, Verb};
use setpoint_spans::Span;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Counts requests. Called while the request is served: must return at once. By default, every
/// method does nothing.
pub trait Metrics: Debug + Send + Sync {
    /// A request starts.
    fn begun(&self, _request: &Attributes) {}
    /// The head of the answer is ready, `latency` after the request arrived. The events of a watch
    /// follow.
    fn answered(&self, _request: &Attributes, _code: u16, _latency: Duration) {}
    /// A request ends: the answer is sent, the watch has ended, or the client disconnected. Called
    /// once for each [`Metrics::begun`].
    fn ended(&self, _request: &Attributes, _ended: &Ended) {}
    /// The user of a request is known after `_took`; `None`: its credentials are refused, or it
    /// needs some and not `_has_credentials`. For a request in process, nothing is authenticated.
    fn authenticated(&self, _identity: Option<&Identity>, _has_credentials: bool, _took: Duration) {
    }
    /// A watch of a resource begins. Returns what counts its events; `None`: nothing does. Default:
    /// `None`.
    fn watch(&self, _resource: &Resource) -> Option<Arc<dyn WatchMetrics>> {
        None
    }
}

/// How a request has ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Ended {
    /// The status code. `None`: the client disconnected before the answer.
    pub code: Option<u16>,
    /// Time since the request arrived.
    pub elapsed: Duration,
    /// Bytes of the answer's body that were sent over HTTP, as they were encoded.
    pub n_bytes: u64,
    /// The server ended it to protect itself: too many requests, or the deadline.
    pub is_terminated: bool,
}

/// Counts the events of watches over HTTP, of one resource. Called for every event and watcher:
/// must not wait.
pub trait WatchMetrics: Debug + Send + Sync {
    /// An event of this many bytes is sent.
    fn sent(&self, n_bytes: usize);
}

/// All observers.
#[derive(Debug)]
pub(crate) struct Observers {
    pub(crate) audit: Vec<Arc<dyn AuditSink>>,
    pub(crate) metrics: Vec<Arc<dyn Metrics>>,
    pub(crate) clock: Clock,
}

impl Observers {
    /// The user of a request is known.
    pub(crate) fn authenticated(
        &self,
        identity: Option<&Identity>,
        has_credentials: bool,
        took: Duration,
    ) {
        let all = self.metrics.iter();
        all.for_each(|metrics| metrics.authenticated(identity, has_credentials, took));
    }

    /// What counts the events of a watch.
    pub(crate) fn watch(&self, resource: &Resource) -> Vec<Arc<dyn WatchMetrics>> {
        self.metrics.iter().filter_map(|metrics| metrics.watch(resource)).collect()
    }

    /// Starts the observation of a request whose user is known; [`Observation::received`] follows.
    /// `source` is called if there are audit sinks.
    pub(crate) fn begin(
        self: &Arc<Self>,
        request: &Arc<Attributes>,
        source: impl FnOnce() -> AuditSource,
    ) -> Arc<Observation> {
        let level = self.audit.iter().map(|sink| sink.level(request)).max();
        let level = level.unwrap_or(AuditLevel::None);
        if level >= AuditLevel::Request {
            request.keep_decoded();
        }
        let observation = Observation {
            level,
            source: match level {
                AuditLevel::None => Arc::default(),
                _ => Arc::new(source()),
            },
            sent: OnceLock::new(),
            answer: OnceLock::new(),
            answer_left_out: AtomicBool::new(false),
            failure: OnceLock::new(),
            success: OnceLock::new(),
            observers: self.clone(),
            request: request.clone(),
            impersonated: OnceLock::new(),
            received: self.clock.now(),
            begun: Instant::now(),
            code: AtomicU16::new(0),
            n_bytes: AtomicU64::new(0),
            is_terminated: AtomicBool::new(false),
            watch: OnceLock::new(),
            span: OnceLock::new(),
            answer_span: OnceLock::new(),
            is_recorded: AtomicBool::new(false),
            has_no_user: AtomicBool::new(false),
        };
        for metrics in &self.metrics {
            metrics.begun(request);
        }
        Arc::new(observation)
    }
}

/// A request in progress. It ends when all its references are dropped: by the pipeline and, for an
/// answer that is sent in pieces, by its body or its watch.
#[derive(Debug)]
pub(crate) struct Observation {
    observers: Arc<Observers>,
    request: Arc<Attributes>,
    /// The request as the user that its user acts as.
    impersonated: OnceLock<Arc<Attributes>>,
    received: Timestamp,
    begun: Instant,
    /// Zero: there is no answer yet.
    code: AtomicU16,
    /// Bytes of the answer so far.
    n_bytes: AtomicU64,
    /// The server ended the request to protect itself.
    is_terminated: AtomicBool,
    /// The highest of all audit sinks.
    level: AuditLevel,
    source: Arc<AuditSource>,
    sent: OnceLock<AuditBody>,
    answer: OnceLock<Bytes>,
    answer_left_out: AtomicBool,
    failure: OnceLock<Arc<Status>>,
    success: OnceLock<Arc<Status>>,
    /// The watch, as the limits count it.
    watch: OnceLock<OpenWatch>,
    /// The span of the request, if it is traced.
    span: OnceLock<Span>,
    /// The span of the answer that is sent in pieces.
    answer_span: OnceLock<Span>,
    /// The last stage is recorded, or is not to be.
    is_recorded: AtomicBool,
    /// Only the head of the answer is recorded.
    has_no_user: AtomicBool,
}

impl Observation {
    /// The request arrived. Returns what it waits for before anything is done.
    pub(crate) fn received(&self) -> Option<EventStored> {
        self.record_for(Stage::RequestReceived)
    }

    /// The request is refused because its arrival could not be recorded. Nothing more is.
    pub(crate) fn refused(&self) {
        self.is_recorded.store(true, Ordering::Relaxed);
    }

    /// Nobody knows the user. As in the reference, neither the arrival of the request nor the end
    /// of its answer is recorded, only the head of the answer.
    pub(crate) fn unauthenticated(&self) {
        self.has_no_user.store(true, Ordering::Relaxed);
        self.is_recorded.store(true, Ordering::Relaxed);
    }

    /// The answer is complete, and is sent afterwards. Returns what it waits for.
    pub(crate) fn completed(&self) -> Option<EventStored> {
        match self.is_recorded.swap(true, Ordering::Relaxed) {
            true => None,
            false => self.record_for(Stage::ResponseComplete),
        }
    }

    /// From now on, the request is that of the user that its user acts as.
    pub(crate) fn impersonated(&self, request: Arc<Attributes>) {
        // Once: a request names one user.
        let _ = self.impersonated.set(request);
    }

    /// The body of the request is read.
    pub(crate) fn sent(&self, bytes: &Bytes, format: Format) {
        if self.level >= AuditLevel::Metadata && !bytes.is_empty() {
            // Once: a request has one body.
            let _ = self.sent.set(AuditBody { bytes: bytes.clone(), format });
        }
    }

    /// The answer is this object, as JSON.
    pub(crate) fn object(&self, json: &Bytes) {
        if self.level >= AuditLevel::RequestResponse {
            // Once: a request has one answer.
            let _ = self.answer.set(json.clone());
        }
    }

    /// Whether a sink records answers.
    pub(crate) fn wants_answer(&self) -> bool {
        self.level >= AuditLevel::RequestResponse
    }

    /// The answer is this list; `None`: one that is too long.
    pub(crate) fn list(&self, json: Option<Vec<u8>>) {
        match json {
            Some(json) => self.object(&json.into()),
            None => self.answer_left_out.store(true, Ordering::Relaxed),
        }
    }

    /// The request has failed.
    pub(crate) fn failed(&self, error: &ApiError) {
        if self.level >= AuditLevel::Metadata {
            self.failed_with(&Arc::new((*error.0).clone()));
        }
    }

    /// The same with a `Status` that may be too large to be copied.
    pub(crate) fn failed_with(&self, status: &Arc<Status>) {
        if self.level >= AuditLevel::Metadata {
            // The first one is the answer.
            let _ = self.failure.set(status.clone());
        }
    }

    /// The answer is this `Status`: the object is gone, or a pod is bound or evicted.
    pub(crate) fn succeeded(&self, status: &Status) {
        if self.level >= AuditLevel::Metadata {
            // Once: a request has one answer.
            let _ = self.success.set(Arc::new(status.clone()));
        }
    }

    /// What counts the events of the watch.
    pub(crate) fn watch(&self, resource: &Resource) -> Vec<Arc<dyn WatchMetrics>> {
        self.observers.watch(resource)
    }

    /// The watch counts until the request ends.
    pub(crate) fn holds(&self, watch: OpenWatch) {
        // Once: a request is one watch.
        let _ = self.watch.set(watch);
    }

    /// The span of the request, which ends with it.
    pub(crate) fn traces(&self, span: Span) {
        // Once: a request has one.
        let _ = self.span.set(span);
    }

    /// The span of an answer, which ends when its last piece is sent.
    pub(crate) fn writes(&self, span: Option<Span>) {
        // Once: a request has one answer.
        let _ = span.map(|span| self.answer_span.set(span));
    }

    /// The server ends the request to protect itself.
    pub(crate) fn terminated(&self) {
        self.is_terminated.store(true, Ordering::Relaxed);
    }

    /// Counts the bytes of the answer's body. The request lasts until its last piece is sent.
    pub(crate) fn sends(self: &Arc<Self>, body: &mut Body) {
        if let Some(bytes) = body.as_bytes() {
            self.sent_bytes(bytes.len());
            return;
        }
        let pieces = BodyDataStream::new(std::mem::replace(body, Body::empty()));
        let observation = self.clone();
        *body =
            Body::try_stream(pieces.inspect_ok(move |piece| observation.sent_bytes(piece.len())));
    }

    fn sent_bytes(&self, n_bytes: usize) {
        self.n_bytes.fetch_add(n_bytes as u64, Ordering::Relaxed);
    }

    fn request(&self) -> &Arc<Attributes> {
        self.impersonated.get().unwrap_or(&self.request)
    }

    /// The warnings so far.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.request().warnings()
    }

    /// The head of the answer is ready. `follows`: it is that of a watch or a stream. Returns what
    /// it waits for.
    pub(crate) fn answered(&self, code: u16, follows: bool) -> Option<EventStored> {
        self.code.store(code, Ordering::Relaxed);
        let latency = self.begun.elapsed();
        for metrics in &self.observers.metrics {
            metrics.answered(self.request(), code, latency);
        }
        match follows || self.has_no_user.load(Ordering::Relaxed) {
            true => self.record_for(Stage::ResponseStarted),
            false => None,
        }
    }

    fn code(&self) -> Option<u16> {
        Some(self.code.load(Ordering::Relaxed)).filter(|code| *code != 0)
    }

    fn event(&self, stage: Stage) -> AuditEvent {
        AuditEvent {
            stage,
            request: self.request().clone(),
            n_annotations: self.request().n_audit_annotations(),
            code: self.code(),
            received: self.received,
            reached: match stage {
                Stage::RequestReceived => self.received,
                _ => self.observers.clock.now(),
            },
            user: self.request.identity.clone(),
            source: self.source.clone(),
            sent: self.sent_body(),
            answer: self.answer.get().cloned(),
            answer_left_out: self.answer_left_out.load(Ordering::Relaxed),
            failure: self.failure.get().cloned(),
            success: self.success.get().cloned(),
        }
    }

    /// The body of the request, as the audit log has it.
    fn sent_body(&self) -> Option<AuditBody> {
        let request = self.request();
        match (&request.verb, request.decoded()) {
            (Verb::Create | Verb::Update, Some(Decoded::Object(bytes))) => {
                Some(AuditBody { bytes: bytes.clone(), format: Format::Json })
            }
            (Verb::Create | Verb::Update, None) => None,
            _ => self.sent.get().cloned(),
        }
    }

    /// The sinks that record the request.
    fn sinks(&self) -> &[Arc<dyn AuditSink>] {
        match self.level {
            AuditLevel::None => &[],
            _ => &self.observers.audit,
        }
    }

    /// Annotates a slow request at its end, unless it lasts as long as its client wants.
    fn note_latencies(&self, stage: Stage) {
        let request = self.request();
        let is_over = stage == Stage::ResponseComplete && !request.is_long_running();
        if is_over && self.level >= AuditLevel::Metadata {
            request.annotate_latencies(self.begun.elapsed());
        }
    }

    fn record(&self, stage: Stage) {
        self.note_latencies(stage);
        self.sinks().iter().for_each(|sink| sink.record(self.event(stage)));
    }

    fn record_for(&self, stage: Stage) -> Option<EventStored> {
        self.note_latencies(stage);
        let pending = self.sinks().iter().filter_map(|sink| sink.record_for(self.event(stage)));
        let pending: Vec<EventStored> = pending.collect();
        (!pending.is_empty()).then(|| try_join_all(pending).map(|all| all.map(drop)).boxed())
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let has_panicked = std::thread::panicking();
        if has_panicked {
            self.code.store(500, Ordering::Relaxed);
        }
        if !*self.is_recorded.get_mut() {
            self.record(if has_panicked { Stage::Panic } else { Stage::ResponseComplete });
        }
        let ended = Ended {
            code: self.code(),
            elapsed: self.begun.elapsed(),
            n_bytes: *self.n_bytes.get_mut(),
            is_terminated: *self.is_terminated.get_mut(),
        };
        drop(self.answer_span.take());
        if let Some(span) = self.span.take() {
            trace::end(&span, ended.code, ended.n_bytes);
        }
        for metrics in &self.observers.metrics {
            metrics.ended(self.request(), &ended);
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
        let observation = observers.begin(&request, AuditSource::default);
        assert!(observation.received().is_none());
        // What comes later is not of the first stage.
        request.annotate("a", "b");
        assert!(observation.answered(200, true).is_none());
        drop(observation);
        // Nobody reads: the next request finds the queue full.
        let observation = observers.begin(&request, AuditSource::default);
        assert!(observation.received().is_none());
        drop(observation);
        assert_eq!(queue.dropped(), 2);
        let mut stages = Vec::new();
        for _ in 0..3 {
            let event = queue.next().await;
            let annotations = event.request.first_audit_annotations(event.n_annotations);
            stages.push((event.stage, event.code, annotations.len()));
        }
        assert_eq!(
            stages,
            [
                (Stage::RequestReceived, None, 0),
                (Stage::ResponseStarted, Some(200), 1),
                (Stage::ResponseComplete, Some(200), 1),
            ]
        );
    }
}
