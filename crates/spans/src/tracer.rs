//! Sampling, and the first span of a request.

use crate::context::{SpanContext, SpanId, TraceId};
use crate::queue::SpanQueue;
use crate::span::{EndedSpan, Span, SpanKind, Trace};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use setpoint_object::time::{Clock, Timestamp};
use std::fmt;
use std::sync::Arc;

/// Which new traces are recorded: those whose id is below a bound, so that all processes with the
/// same rate choose the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Of the last eight bytes of the id, without the lowest bit.
    below: u64,
}

impl Sampling {
    /// None.
    pub const NEVER: Self = Self { below: 0 };

    /// This many of a million; a million or more: all.
    pub fn per_million(rate: u32) -> Self {
        let below = (u128::from(rate.min(1_000_000)) << 63) / 1_000_000;
        Self { below: u64::try_from(below).unwrap_or(u64::MAX) }
    }

    /// Whether the trace is recorded.
    pub fn takes(&self, trace_id: TraceId) -> bool {
        let [_, _, _, _, _, _, _, _, last @ ..] = trace_id.0;
        u64::from_be_bytes(last) >> 1 < self.below
    }
}

/// The context that a request has brought.
#[derive(Debug, Clone, Copy)]
pub struct Incoming {
    /// From the header `traceparent`.
    pub context: SpanContext,
    /// Whether the request continues that trace, and its client decides about sampling. Otherwise
    /// the request begins a trace of its own, with a link to the client's.
    pub is_trusted: bool,
}

/// Starts traces. Cheap to clone.
#[derive(Clone)]
pub struct Tracer {
    inner: Arc<Inner>,
}

struct Inner {
    sampling: Sampling,
    clock: Clock,
    rng: Mutex<SmallRng>,
    queue: Arc<SpanQueue>,
}

impl Tracer {
    /// A tracer with its own queue. `seed` is that of the ids.
    pub fn new(sampling: Sampling, clock: Clock, seed: u64) -> Self {
        let rng = Mutex::new(SmallRng::seed_from_u64(seed));
        Self { inner: Arc::new(Inner { sampling, clock, rng, queue: Arc::default() }) }
    }

    /// The spans that are over.
    pub fn queue(&self) -> &Arc<SpanQueue> {
        &self.inner.queue
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// The first span of a request in this process, which began at `start`. `None`: the request is
    /// not recorded.
    ///
    /// | the request has | it is recorded if |
    /// |---|---|
    /// | a context that is trusted | the context says so |
    /// | none, or one that is not trusted | [`Sampling`] takes its new trace |
    pub fn begin(
        &self,
        kind: SpanKind,
        start: Timestamp,
        incoming: Option<Incoming>,
    ) -> Option<Span> {
        let (trace_id, parent, link) = match incoming {
            Some(Incoming { context, is_trusted: true }) => {
                (context.is_sampled.then_some(context.trace_id)?, Some(context.span_id), None)
            }
            other => {
                if self.inner.sampling == Sampling::NEVER {
                    return None;
                }
                let trace_id = TraceId(self.id(|rng| rng.random::<u128>().to_be_bytes()));
                let link = other.map(|incoming| incoming.context);
                (self.inner.sampling.takes(trace_id).then_some(trace_id)?, None, link)
            }
        };
        let context = SpanContext { trace_id, span_id: self.span_id(), is_sampled: true };
        let data = EndedSpan {
            parent,
            is_parent_remote: parent.is_some(),
            link,
            ..EndedSpan::new(context, "", kind, start)
        };
        Some(Span::of(data, Trace::new(self.clone(), trace_id, context.span_id)))
    }

    pub(crate) fn span_id(&self) -> SpanId {
        SpanId(self.id(|rng| rng.random::<u64>().to_be_bytes()))
    }

    /// An id that is not all zero.
    fn id<const N: usize>(&self, draw: impl Fn(&mut SmallRng) -> [u8; N]) -> [u8; N] {
        let mut rng = self.inner.rng.lock();
        loop {
            let id = draw(&mut rng);
            if id != [0; N] {
                return id;
            }
        }
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("sampling", &self.inner.sampling).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QUEUE_BYTES_MAX, QUEUE_SPANS_MAX, TEXT_BYTES_MAX, TRACE_SPANS_MAX, Value};
    use std::time::Duration;

    fn tracer(per_million: u32) -> Tracer {
        let clock = Clock::starting_at(Timestamp::from_secs(1));
        Tracer::new(Sampling::per_million(per_million), clock, 1)
    }

    fn incoming(is_sampled: bool, is_trusted: bool) -> Option<Incoming> {
        let context =
            SpanContext { trace_id: TraceId([1; 16]), span_id: SpanId([2; 8]), is_sampled };
        Some(Incoming { context, is_trusted })
    }

    #[test]
    fn a_trusted_context_decides_at_any_rate() {
        for rate in [0, 1_000_000] {
            let tracer = tracer(rate);
            let begin = |incoming| tracer.begin(SpanKind::Server, tracer.now(), incoming);
            assert!(begin(incoming(false, true)).is_none());
            let span = begin(incoming(true, true)).unwrap();
            assert_eq!(span.context().trace_id, TraceId([1; 16]));
            drop(span);
            let ended = tracer.queue().take(1).remove(0);
            assert_eq!((ended.parent, ended.is_parent_remote), (Some(SpanId([2; 8])), true));
        }
    }

    #[test]
    fn other_contexts_are_links_and_decide_nothing() {
        let never = tracer(0);
        assert!(never.begin(SpanKind::Server, never.now(), incoming(true, false)).is_none());
        assert!(never.begin(SpanKind::Server, never.now(), None).is_none());
        let always = tracer(1_000_000);
        drop(always.begin(SpanKind::Server, always.now(), incoming(false, false)).unwrap());
        let ended = always.queue().take(1).remove(0);
        assert_ne!(ended.context.trace_id, TraceId([1; 16]));
        assert_eq!(ended.parent, None);
        assert_eq!(ended.link.map(|link| link.trace_id), Some(TraceId([1; 16])));
    }

    #[test]
    fn rates_are_those_of_ids() {
        let half = Sampling::per_million(500_000);
        let id = |last: u64| TraceId(u128::from(last).to_be_bytes());
        assert!(half.takes(id((1 << 63) - 1)));
        assert!(!half.takes(id(1 << 63)));
        assert!(Sampling::per_million(1_000_000).takes(id(u64::MAX)));
        assert!(!Sampling::NEVER.takes(id(0)));
        assert_eq!(Sampling::per_million(0), Sampling::NEVER);
        let tracer = tracer(100_000);
        let n = (0..10_000)
            .filter(|_| tracer.begin(SpanKind::Server, tracer.now(), None).is_some())
            .count();
        assert!((900..1100).contains(&n), "{n} of 10,000 at one in ten");
    }

    #[test]
    fn stages_contain_what_is_made_during_them() {
        let tracer = tracer(1_000_000);
        let root = tracer.begin(SpanKind::Server, tracer.now(), None).unwrap();
        let trace = root.trace().clone();
        let stage = trace.stage("stage");
        let inner = trace.stage("inner");
        drop(trace.child("leaf"));
        let ids = [root.context(), stage.context(), inner.context()].map(|c| c.span_id);
        drop(inner);
        drop(stage);
        drop(trace.child("last"));
        drop(root);
        let ended = tracer.queue().take(9);
        let parents: Vec<_> = ended.iter().map(|span| (&*span.name, span.parent)).collect();
        assert_eq!(
            parents,
            [
                ("leaf", Some(ids[2])),
                ("inner", Some(ids[1])),
                ("stage", Some(ids[0])),
                ("last", Some(ids[0])),
                ("", None),
            ]
        );
    }

    #[test]
    fn branches_have_stages_of_their_own() {
        let tracer = tracer(1_000_000);
        let root = tracer.begin(SpanKind::Server, tracer.now(), None).unwrap();
        let (trace, branch) = (root.trace().clone(), root.trace().branch());
        let (a, b) = (trace.stage("a"), branch.stage("b"));
        drop(trace.child("in a"));
        drop(branch.child("in b"));
        let ids = [a.context(), b.context()].map(|context| Some(context.span_id));
        // In any order.
        drop(a);
        drop(b);
        let ended = tracer.queue().take(9);
        assert_eq!([ended[0].parent, ended[1].parent], ids);
        assert_eq!([ended[2].parent, ended[3].parent], [Some(root.context().span_id); 2]);
    }

    #[test]
    fn one_request_does_not_fill_the_queue() {
        let tracer = tracer(1_000_000);
        let root = tracer.begin(SpanKind::Server, tracer.now(), None).unwrap();
        for _ in 0..TRACE_SPANS_MAX + 3 {
            let span = root.trace().branch().stage("one");
            span.set("kept", "or not");
        }
        drop(root);
        assert_eq!((tracer.queue().len(), tracer.queue().dropped()), (TRACE_SPANS_MAX + 1, 3));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let tracer = tracer(1_000_000);
        for _ in 0..QUEUE_SPANS_MAX + 5 {
            drop(tracer.begin(SpanKind::Server, tracer.now(), None));
        }
        assert_eq!((tracer.queue().len(), tracer.queue().dropped()), (QUEUE_SPANS_MAX, 5));
        assert_eq!(tracer.queue().take(usize::MAX).len(), QUEUE_SPANS_MAX);
        assert!(tracer.queue().is_empty());
        // The bytes are given back: as much fits again.
        drop(tracer.begin(SpanKind::Server, tracer.now(), None));
        assert_eq!(tracer.queue().len(), 1);
    }

    #[test]
    fn spans_are_bounded_in_bytes() {
        let tracer = tracer(1_000_000);
        for _ in 0..QUEUE_SPANS_MAX {
            let span = tracer.begin(SpanKind::Server, tracer.now(), None).unwrap();
            for _ in 0..200 {
                span.set("text", "é".repeat(TEXT_BYTES_MAX));
                span.event("event");
            }
        }
        let (kept, dropped) = (tracer.queue().len(), tracer.queue().dropped());
        let spans = tracer.queue().take(usize::MAX);
        assert!(dropped > 0 && kept < QUEUE_SPANS_MAX, "{kept} kept, {dropped} dropped");
        assert!(spans.iter().map(EndedSpan::n_bytes).sum::<usize>() <= QUEUE_BYTES_MAX);
        assert_eq!((spans[0].attributes.len(), spans[0].events.len()), (128, 128));
        assert_eq!(spans[0].n_left_out, 144);
        let Value::Text(text) = &spans[0].attributes[0].1 else { panic!("a text") };
        assert_eq!(text.len(), TEXT_BYTES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn times_are_those_of_the_clock() {
        let tracer = tracer(1_000_000);
        let arrived = tracer.now();
        tokio::time::advance(Duration::from_secs(2)).await;
        let span = tracer.begin(SpanKind::Server, arrived, None).unwrap();
        tokio::time::advance(Duration::from_secs(3)).await;
        drop(span);
        let ended = tracer.queue().take(1).remove(0);
        assert_eq!(ended.end.since(ended.start), Duration::from_secs(5));
    }
}
