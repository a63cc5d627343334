//! Spans of requests: contexts of W3C Trace Context, sampling, and a bounded queue of ended spans.
//!
//! # Theory
//!
//! A [`Tracer`] decides once for each request whether it is traced. If it is not, there is no
//! [`Span`], and the request carries nothing. If it is, each stage makes spans, and a span that is
//! dropped moves to the [`SpanQueue`], which an exporter empties.
//!
//! | value | is | ends |
//! |---|---|---|
//! | [`Tracer`] | the sampling, the clock, randomness for ids, and the queue | |
//! | [`Trace`] | the trace of one request, with the span that is current | with its request |
//! | [`Span`] | a span in progress | when it is dropped |
//! | [`EndedSpan`] | its data, in the queue | when an exporter takes it, or at once if the queue is full |
//!
//! [`Trace::stage`] makes a span that is current until it ends: spans made meanwhile are its
//! children. Stages of a request follow one another. What runs beside others is a
//! [`Trace::child`], which is never current, or has stages in a [`Trace::branch`].
//!
//! Nothing here waits. A full queue drops the span and counts it. A span, its texts and its lists
//! are bounded; see the constants.
//!
//! All time is that of the given [`Clock`](setpoint_object::time::Clock).
//!
//! ```
//! use setpoint_object::time::{Clock, Timestamp};
//! use setpoint_spans::{Sampling, SpanKind, Tracer};
//!
//! let clock = Clock::starting_at(Timestamp::from_secs(1));
//! let tracer = Tracer::new(Sampling::per_million(1_000_000), clock, 7);
//! let span = tracer.begin(SpanKind::Server, tracer.now(), None).expect("all are sampled");
//! span.name("GET /api/v1/pods");
//! drop(span.trace().stage("List"));
//! drop(span);
//! let (first, second) = (tracer.queue().take(9), tracer.queue().take(9));
//! assert_eq!(first.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["List", "GET /api/v1/pods"]);
//! assert_eq!(first[0].parent, Some(first[1].context.span_id));
//! assert!(second.is_empty());
//! ```

mod context;
mod metrics;
mod queue;
mod span;
mod tracer;

pub use context::{SpanContext, SpanId, TraceId};
pub use metrics::SpanMetrics;
pub use queue::{QUEUE_BYTES_MAX, QUEUE_SPANS_MAX, SpanQueue};
pub use span::{
    ATTRIBUTES_MAX, EVENTS_MAX, EndedSpan, Event, Key, Span, SpanKind, TEXT_BYTES_MAX,
    TRACE_SPANS_MAX, Trace, Value,
};
pub use tracer::{Incoming, Sampling, Tracer};
