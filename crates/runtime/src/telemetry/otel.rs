//! The spans of passes.

use std::{
    fmt::{self, Display},
    sync::Arc,
    time::SystemTime,
};

use futures::future::Either;
use opentelemetry::{
    Context, KeyValue,
    context::{FutureExt, WithContext},
    global::BoxedTracer,
    trace::{SpanKind, Status, TraceContextExt, Tracer, TracerProvider},
};
use setpoint_object::time::Timestamp;

use crate::{
    client::{Note, NoteKind, ReadFrom, WriteOutcome},
    pass::{Began, PassOutcome},
    request::Request,
};

/// The name of the instrumentation scope.
const SCOPE: &str = "setpoint";

/// Where to send traces of passes: a tracer of a provider. Cheap to clone.
#[derive(Clone)]
pub struct Traces(Arc<BoxedTracer>);

/// The unfinished span of a pass.
pub(crate) struct Trace(Context);

impl Traces {
    /// Sends traces to this provider, in the scope `setpoint`.
    pub fn new<P>(provider: &P) -> Self
    where
        P: TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as Tracer>::Span: Send + Sync + 'static,
    {
        Self(Arc::new(BoxedTracer::new(Box::new(provider.tracer(SCOPE)))))
    }

    /// Starts the span of a pass; `request` is its key if that names an object.
    pub(crate) fn begin(
        &self,
        controller: &str,
        key: &impl Display,
        request: Option<&Request>,
        began: &Began,
        now: Timestamp,
    ) -> Option<Trace> {
        let Began { at: _, reconcile_id, cause, n_events, waited, priority, attempt } = began;
        let mut attributes = vec![
            KeyValue::new("setpoint.controller.name", controller.to_owned()),
            KeyValue::new("setpoint.request", key.to_string()),
            KeyValue::new("setpoint.reconcile.id", reconcile_id.to_string()),
            KeyValue::new("setpoint.reconcile.cause", cause.as_str()),
            KeyValue::new("setpoint.reconcile.events", i64::from(*n_events)),
            KeyValue::new("setpoint.reconcile.priority", i64::from(*priority)),
            KeyValue::new("setpoint.reconcile.attempt", i64::from(*attempt)),
        ];
        if let Some(namespace) = request.and_then(Request::namespace_opt) {
            attributes.push(KeyValue::new("k8s.namespace.name", namespace.to_owned()));
        }
        if let Some(source) = cause.source() {
            attributes.push(KeyValue::new("setpoint.reconcile.source", i64::from(source)));
        }
        if let Some(version) = cause.resource_version() {
            attributes.push(version_of("setpoint.reconcile.resource_version", version));
        }
        if let Some(waited) = waited {
            attributes.push(KeyValue::new("setpoint.reconcile.waited", waited.as_secs_f64()));
        }
        let builder = self
            .0
            .span_builder(format!("reconcile {controller}"))
            .with_kind(SpanKind::Internal)
            .with_start_time(date(now))
            .with_attributes(attributes);
        // Each pass is a separate trace: its cause happened in another process, or ended earlier.
        let root = Context::new();
        let span = self.0.build_with_context(builder, &root);
        Some(Trace(root.with_span(span)))
    }
}

impl Trace {
    /// Ends the span of the pass.
    pub(crate) fn end(&self, outcome: &PassOutcome, notes: &[Note], now: Timestamp) {
        let span = self.0.span();
        for note in notes {
            let (name, attributes) = event(note);
            span.add_event_with_timestamp(name, date(now), attributes);
        }
        span.set_attribute(KeyValue::new("setpoint.reconcile.outcome", outcome.as_str()));
        if outcome.is_failure() {
            span.set_attribute(KeyValue::new("error.type", outcome.as_str()));
            let text = outcome.error().unwrap_or(outcome.as_str()).to_owned();
            span.set_status(Status::error(text));
        }
        span.end_with_timestamp(date(now));
    }
}

/// The pass with its span as the active context, if traced.
pub(crate) fn within<F: Future>(trace: Option<&Trace>, pass: F) -> Either<WithContext<F>, F> {
    match trace {
        Some(trace) => Either::Left(pass.with_context(trace.0.clone())),
        None => Either::Right(pass),
    }
}

fn event(note: &Note) -> (&'static str, Vec<KeyValue>) {
    let mut attributes = vec![
        KeyValue::new("setpoint.resource", note.resource.to_string()),
        KeyValue::new("setpoint.object", note.object.to_string()),
        KeyValue::new("setpoint.times", i64::from(note.n_times)),
    ];
    match note.what {
        NoteKind::Read(from) => {
            let from = match from {
                ReadFrom::Cache => "cache",
                ReadFrom::Server => "server",
            };
            attributes.push(KeyValue::new("setpoint.from", from));
            ("k8s.read", attributes)
        }
        NoteKind::Write { verb, resource_version, outcome } => {
            let what = match outcome {
                WriteOutcome::Done => "done",
                WriteOutcome::Refused(_) => "refused",
                WriteOutcome::NotSent => "not sent",
                WriteOutcome::Unknown => "unknown",
            };
            attributes.push(KeyValue::new("setpoint.verb", verb));
            attributes.push(KeyValue::new("setpoint.outcome", what));
            if resource_version != 0 {
                attributes.push(version_of("setpoint.resource_version", resource_version));
            }
            if let WriteOutcome::Refused(code) = outcome {
                attributes.push(KeyValue::new("http.response.status_code", i64::from(code)));
            }
            ("k8s.write", attributes)
        }
    }
}

/// A version as text: OpenTelemetry's numbers are signed.
fn version_of(name: &'static str, version: u64) -> KeyValue {
    KeyValue::new(name, version.to_string())
}

fn date(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + at.0
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}
