//! A controller's records of its passes, and their spans.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
    sync::{Arc, OnceLock},
};

use setpoint_object::time::Clock;
use tokio::time::Instant;
use tracing::{Span, field::Empty, level_filters::LevelFilter};

use super::{Explanation, Seen, ring::Ring};
use crate::{
    pass::{AnyPass, Began, KeyedPass, Note, NoteKind, PassOutcome, Written},
    request::RequestKey,
};

/// Finds the objects of a cache at these versions.
pub(crate) type FindSeen = dyn Fn(&BTreeSet<u64>) -> BTreeMap<u64, Seen> + Send + Sync;

/// A watch of the controller: its name, and a lookup in its cache.
pub(crate) struct WatchedSource {
    pub(crate) resource: Arc<str>,
    pub(crate) find_seen: Box<FindSeen>,
}

/// Finds a watch by its number, if it exists.
pub(crate) type FindSource = dyn Fn(usize) -> Option<WatchedSource> + Send + Sync;

/// A controller's records of its passes, without the type of its keys.
pub(crate) trait Explain: Send + Sync {
    /// The passes over a key, newest first; empty if the key is of another type.
    fn of_key(&self, key: &dyn Any) -> Vec<Explanation>;
    /// The passes over the keys with this `Display` text, newest first.
    fn of_text(&self, text: &str) -> Vec<Explanation>;
    /// All passes, newest first.
    fn all(&self) -> Vec<Explanation>;
}

/// Records a controller's passes.
pub(crate) struct Explainer<R> {
    ring: Ring<R>,
    clock: OnceLock<Clock>,
    find_source: OnceLock<Box<FindSource>>,
}

/// A pass that is being recorded. If dropped before its end, the pass is recorded as dropped.
pub(crate) struct Recording<R> {
    pass: Arc<KeyedPass<R>>,
    has_ended: bool,
}

impl<R: RequestKey> Recording<R> {
    /// Records the pass's reads and writes.
    pub(crate) fn pass(&self) -> Arc<dyn AnyPass> {
        self.pass.clone()
    }

    /// The pass's reads and writes so far.
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.pass.pass.recorded().0
    }

    /// Records the end of the pass; returns what it wrote.
    pub(crate) fn end(mut self, at: Instant, outcome: PassOutcome) -> Written {
        self.has_ended = true;
        self.pass.pass.end(at, outcome)
    }
}

impl<R> Drop for Recording<R> {
    fn drop(&mut self) {
        if !self.has_ended {
            _ = self.pass.pass.end(Instant::now(), PassOutcome::Dropped);
        }
    }
}

impl<R: RequestKey> Explainer<R> {
    /// Records at most `passes_max` passes; zero disables it.
    pub(crate) fn new(controller: Arc<str>, passes_max: usize) -> Self {
        let ring = Ring::new(controller, passes_max);
        Self { ring, clock: OnceLock::new(), find_source: OnceLock::new() }
    }

    /// Called when the controller starts: sets its clock and the lookup of its watches.
    pub(crate) fn run(&self, clock: Clock, find_source: Box<FindSource>) {
        _ = self.clock.set(clock);
        _ = self.find_source.set(find_source);
    }

    /// Whether nothing is recorded.
    pub(crate) fn is_off(&self) -> bool {
        self.ring.is_off()
    }

    /// Starts to record a pass. Its reads and writes are noted if passes are recorded, or
    /// `is_traced`.
    pub(crate) fn begin(&self, key: R, began: Began, is_traced: bool) -> Recording<R> {
        let pass = self.ring.begin(key, began, self.is_off() && !is_traced);
        Recording { pass, has_ended: false }
    }

    fn explain(&self, matches: impl FnMut(&R) -> bool) -> Vec<Explanation> {
        let found = self.ring.select(matches);
        let mut versions: BTreeMap<u16, BTreeSet<u64>> = BTreeMap::new();
        for KeyedPass { pass, .. } in found.iter().map(|pass| &**pass) {
            let cause = pass.began().cause;
            if let (Some(source), Some(version)) = (cause.source(), cause.resource_version()) {
                versions.entry(source).or_default().insert(version);
            }
        }
        let mut sources: BTreeMap<u16, Arc<str>> = BTreeMap::new();
        let mut seen: BTreeMap<u16, BTreeMap<u64, Seen>> = BTreeMap::new();
        let find_source = self.find_source.get();
        let named = found.iter().filter_map(|pass| pass.pass.began().cause.source());
        for source in named.collect::<BTreeSet<u16>>() {
            let Some(watched) = find_source.and_then(|find| find(usize::from(source))) else {
                continue;
            };
            if let Some(versions) = versions.get(&source) {
                seen.insert(source, (watched.find_seen)(versions));
            }
            sources.insert(source, watched.resource);
        }
        let now = self.clock.get().map(|clock| (clock.now(), Instant::now()));
        let tell = |keyed: Arc<KeyedPass<R>>| {
            let KeyedPass { controller, key, pass } = &*keyed;
            let Began { at, reconcile_id, cause, n_events, waited, priority, attempt } =
                *pass.began();
            let (notes, n_more_notes, ended) = pass.recorded();
            let asked = cause.source().zip(cause.resource_version());
            let seen =
                asked.and_then(|(source, version)| seen.get(&source)?.get(&version).cloned());
            let source = cause.source().and_then(|source| sources.get(&source));
            let (took, outcome) =
                ended.map(|(ended, outcome)| (ended.duration_since(at), outcome)).unzip();
            Explanation {
                controller: controller.clone(),
                key: key.to_string(),
                reconcile_id,
                cause,
                resource: source.cloned(),
                object: seen.as_ref().map(|seen| seen.object.clone()),
                writers: seen.map(|seen| seen.writers).unwrap_or_default(),
                n_events,
                waited,
                priority,
                attempt,
                began: now.map(|(date, now)| {
                    setpoint_object::time::Timestamp(
                        date.0.saturating_sub(now.saturating_duration_since(at)),
                    )
                }),
                took,
                outcome,
                notes,
                n_more_notes,
            }
        };
        found.into_iter().map(tell).collect()
    }
}

impl<R: RequestKey> Explain for Explainer<R> {
    fn of_key(&self, key: &dyn Any) -> Vec<Explanation> {
        match key.downcast_ref::<R>() {
            Some(asked) => self.explain(|key| key == asked),
            None => Vec::new(),
        }
    }

    fn of_text(&self, text: &str) -> Vec<Explanation> {
        self.explain(|key| key.to_string() == text)
    }

    fn all(&self) -> Vec<Explanation> {
        self.explain(|_| true)
    }
}

impl<R> fmt::Debug for Explainer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explainer")
            .field("controller", self.ring.controller())
            .finish_non_exhaustive()
    }
}

impl Began {
    /// The span of a pass. If the level is disabled, this costs one comparison. Without the
    /// comparison, each step of a disabled span would call the `log` crate, which takes up to a
    /// tenth of the pass.
    pub(crate) fn span(&self, controller: &str, key: &impl Display) -> Span {
        if LevelFilter::current() < LevelFilter::INFO {
            return Span::none();
        }
        tracing::info_span!(
            "reconcile",
            controller,
            object = %key,
            id = %self.reconcile_id,
            cause = self.cause.as_str(),
            source = self.cause.source(),
            resource_version = self.cause.resource_version(),
            n_events = self.n_events,
            waited = self.waited.map(tracing::field::debug),
            priority = self.priority,
            attempt = self.attempt,
            outcome = Empty,
            reads = Empty,
            writes = Empty,
        )
    }
}

impl<R: RequestKey> Recording<R> {
    /// Records on the span how the pass ended, and what it read and wrote.
    pub(crate) fn record_on(&self, span: &Span, outcome: &PassOutcome) {
        if span.is_disabled() {
            return;
        }
        span.record("outcome", outcome.as_str());
        let notes = self.notes();
        let (reads, writes): (Vec<&Note>, _) =
            notes.iter().partition(|note| matches!(note.what, NoteKind::Read(_)));
        for (field, notes) in [("reads", reads), ("writes", writes)] {
            if !notes.is_empty() {
                span.record(field, tracing::field::display(Joined(&notes)));
            }
        }
    }
}

struct Joined<'a>(&'a [&'a Note]);

impl Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, note) in self.0.iter().enumerate() {
            write!(f, "{}{note}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
