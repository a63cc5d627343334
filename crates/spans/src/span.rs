//! Spans in progress, and ended ones.

use crate::context::{SpanContext, SpanId, TraceId};
use crate::tracer::Tracer;
use parking_lot::Mutex;
use setpoint_object::time::Timestamp;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum attributes of a span or an event: 128, as OpenTelemetry's SDKs. Further ones are left
/// out.
pub const ATTRIBUTES_MAX: usize = 128;
/// Maximum events of a span: 128, as OpenTelemetry's SDKs. Further ones are left out.
pub const EVENTS_MAX: usize = 128;
/// Maximum bytes of a text: 1 KiB, as kube-apiserver's limit of user agents. Longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Maximum spans of one request beside its first: 1024, half of what the queue holds. A request
/// that deletes a large collection would leave no room for others. Further ones are lost.
pub const TRACE_SPANS_MAX: usize = 1024;

/// The side of a call that a span describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside the process.
    Internal,
    /// A request that is answered.
    Server,
    /// A request that is sent.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(mut text: String) -> Self {
        cut(&mut text);
        Self::Text(Cow::Owned(text))
    }
}

/// Cuts a text to its maximum.
fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.shrink_to_fit();
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Int(number.into())
    }
}

/// The name of an attribute: always one of the program.
pub type Key = &'static str;

/// Something that happened during a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub name: &'static str,
    /// When.
    pub at: Timestamp,
    /// Attributes.
    pub attributes: Vec<(Key, Value)>,
}

/// A span that is over.
#[derive(Debug, Clone)]
pub struct EndedSpan {
    /// Its ids.
    pub context: SpanContext,
    /// The span that contains it; `None`: it is the root of its trace.
    pub parent: Option<SpanId>,
    /// Whether the parent is a span of another process.
    pub is_parent_remote: bool,
    /// The context of a client that is not trusted with the trace.
    pub link: Option<SpanContext>,
    /// Name.
    pub name: Cow<'static, str>,
    /// Kind.
    pub kind: SpanKind,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Attributes.
    pub attributes: Vec<(Key, Value)>,
    /// Events, in order.
    pub events: Vec<Event>,
    /// Attributes and events that were left out.
    pub n_left_out: u32,
    /// Whether it has failed.
    pub has_failed: bool,
}

impl EndedSpan {
    /// An estimate of its memory in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        let of = |attributes: &Vec<(Key, Value)>| {
            let texts = attributes.iter().map(|(_, value)| match value {
                Value::Text(Cow::Owned(text)) => text.capacity(),
                _ => 0,
            });
            texts.sum::<usize>() + attributes.capacity() * size_of::<(Key, Value)>()
        };
        let events = self.events.iter().map(|event| of(&event.attributes)).sum::<usize>();
        let name = match &self.name {
            Cow::Owned(name) => name.capacity(),
            Cow::Borrowed(_) => 0,
        };
        let lists = of(&self.attributes) + events + self.events.capacity() * size_of::<Event>();
        size_of::<Self>() + name + lists
    }
}

/// The trace of one request: makes spans in it. Cheap to clone; all clones have the same current
/// span.
#[derive(Debug, Clone)]
pub struct Trace {
    inner: Arc<Inner>,
    /// The id of the current span.
    current: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Inner {
    tracer: Tracer,
    trace_id: TraceId,
    /// How many spans the request has so far.
    n_spans: AtomicUsize,
}

impl Trace {
    pub(crate) fn new(tracer: Tracer, trace_id: TraceId, root: SpanId) -> Self {
        let current = Arc::new(AtomicU64::new(u64::from_be_bytes(root.0)));
        let n_spans = AtomicUsize::new(0);
        Self { inner: Arc::new(Inner { tracer, trace_id, n_spans }), current }
    }

    /// The same trace for work that runs beside this: its current span is its own, and is now the
    /// same.
    #[must_use]
    pub fn branch(&self) -> Self {
        let current = Arc::new(AtomicU64::new(self.current.load(Ordering::Relaxed)));
        Self { inner: self.inner.clone(), current }
    }

    /// The context of the current span.
    pub fn context(&self) -> SpanContext {
        let current = self.current.load(Ordering::Relaxed);
        SpanContext {
            trace_id: self.inner.trace_id,
            span_id: SpanId(current.to_be_bytes()),
            is_sampled: true,
        }
    }

    /// Starts a span in the current one.
    pub fn child(&self, name: &'static str) -> Span {
        self.child_since(name, self.inner.tracer.now())
    }

    /// The same, of what has begun before.
    pub fn child_since(&self, name: &'static str, start: Timestamp) -> Span {
        let id = self.inner.tracer.span_id();
        let context = SpanContext { span_id: id, ..self.context() };
        let data = EndedSpan {
            parent: Some(self.context().span_id),
            ..EndedSpan::new(context, name, SpanKind::Internal, start)
        };
        let is_recorded = self.inner.n_spans.fetch_add(1, Ordering::Relaxed) < TRACE_SPANS_MAX;
        if !is_recorded {
            self.inner.tracer.queue().lost(1);
        }
        Span::new(context, self.clone(), is_recorded.then_some(data))
    }

    /// Starts a span in the current one, and makes it the current one until it ends. Stages end in
    /// the reverse order of their starts.
    pub fn stage(&self, name: &'static str) -> Span {
        let mut span = self.child(name);
        let own = u64::from_be_bytes(span.context().span_id.0);
        span.0.before = Some(self.current.swap(own, Ordering::Relaxed));
        span
    }
}

impl EndedSpan {
    pub(crate) fn new(
        context: SpanContext,
        name: &'static str,
        kind: SpanKind,
        start: Timestamp,
    ) -> Self {
        Self {
            context,
            parent: None,
            is_parent_remote: false,
            link: None,
            name: Cow::Borrowed(name),
            kind,
            start,
            end: start,
            attributes: Vec::new(),
            events: Vec::new(),
            n_left_out: 0,
            has_failed: false,
        }
    }
}

/// A span in progress. It ends when it is dropped. As small as a pointer, because futures of
/// requests that are not traced have room for it, too.
#[derive(Debug)]
#[must_use = "a span that is dropped is over"]
pub struct Span(Box<InProgress>);

#[derive(Debug)]
struct InProgress {
    context: SpanContext,
    trace: Trace,
    data: Mutex<Option<EndedSpan>>,
    /// The span that was current before this stage; `None`: it is no stage.
    before: Option<u64>,
}

impl Span {
    pub(crate) fn of(data: EndedSpan, trace: Trace) -> Self {
        Self::new(data.context, trace, Some(data))
    }

    fn new(context: SpanContext, trace: Trace, data: Option<EndedSpan>) -> Self {
        Self(Box::new(InProgress { context, trace, data: Mutex::new(data), before: None }))
    }

    /// Its ids.
    pub fn context(&self) -> SpanContext {
        self.0.context
    }

    /// Its trace.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Renames the span.
    pub fn name(&self, name: impl Into<Cow<'static, str>>) {
        let mut name = name.into();
        if let Cow::Owned(name) = &mut name {
            cut(name);
        }
        self.change(|data| data.name = name);
    }

    /// The side of a call that it describes. Default: internal work.
    pub fn kind(self, kind: SpanKind) -> Self {
        self.change(|data| data.kind = kind);
        self
    }

    /// Adds an attribute.
    pub fn set(&self, key: Key, value: impl Into<Value>) {
        let value = value.into();
        self.change(|data| match data.attributes.len() < ATTRIBUTES_MAX {
            true => data.attributes.push((key, value)),
            false => data.n_left_out += 1,
        });
    }

    /// Adds an attribute if the text is not empty.
    pub fn set_text(&self, key: Key, text: &str) {
        if !text.is_empty() {
            self.set(key, text.to_owned());
        }
    }

    /// Something happens now.
    pub fn event(&self, name: &'static str) {
        self.event_with(name, Vec::new());
    }

    /// The same with attributes.
    pub fn event_with(&self, name: &'static str, mut attributes: Vec<(Key, Value)>) {
        attributes.truncate(ATTRIBUTES_MAX);
        let at = self.0.trace.inner.tracer.now();
        self.change(|data| match data.events.len() < EVENTS_MAX {
            true => data.events.push(Event { name, at, attributes }),
            false => data.n_left_out += 1,
        });
    }

    /// The span has failed.
    pub fn fail(&self) {
        self.change(|data| data.has_failed = true);
    }

    fn change(&self, change: impl FnOnce(&mut EndedSpan)) {
        if let Some(data) = &mut *self.0.data.lock() {
            change(data);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let InProgress { trace, data, before, .. } = &mut *self.0;
        let inner = &trace.inner;
        if let Some(before) = *before {
            trace.current.store(before, Ordering::Relaxed);
        }
        if let Some(mut data) = data.get_mut().take() {
            data.end = inner.tracer.now();
            inner.tracer.queue().add(data);
        }
    }
}
