//! A controller's memory of its passes.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock},
};

use setpoint_object::time::Clock;
use tokio::time::Instant;

use super::{Explanation, Seen, ring::Ring};
use crate::{
    pass::{AnyPass, Began, KeyedPass, Note, PassOutcome, Written},
    request::RequestKey,
};

/// Finds the objects of a cache that have one of these versions.
pub(crate) type FindSeen = dyn Fn(&BTreeSet<u64>) -> BTreeMap<u64, Seen> + Send + Sync;

/// A watch of the controller, for its name and for what its cache holds.
pub(crate) struct WatchedSource {
    pub(crate) resource: Arc<str>,
    pub(crate) find_seen: Box<FindSeen>,
}

/// Finds a watch by its number, while it is there.
pub(crate) type FindSource = dyn Fn(usize) -> Option<WatchedSource> + Send + Sync;

/// What a controller remembers of its passes, whatever its keys are.
pub(crate) trait Explain: Send + Sync {
    /// The passes over a key, newest first; none if it is no key of this controller's type.
    fn of_key(&self, key: &dyn Any) -> Vec<Explanation>;
    /// The passes over the keys that display so, newest first.
    fn of_text(&self, text: &str) -> Vec<Explanation>;
    /// All passes, newest first.
    fn all(&self) -> Vec<Explanation>;
}

/// Remembers a controller's passes.
pub(crate) struct Explainer<R> {
    ring: Ring<R>,
    clock: OnceLock<Clock>,
    find_source: OnceLock<Box<FindSource>>,
}

/// A pass that is being recorded. Dropping it before its end says that the pass was dropped.
pub(crate) struct Recording<R> {
    pass: Arc<KeyedPass<R>>,
    has_ended: bool,
}

impl<R: RequestKey> Recording<R> {
    /// Where the pass's reads and writes go.
    pub(crate) fn pass(&self) -> Arc<dyn AnyPass> {
        self.pass.clone()
    }

    /// What the pass has read and written until now.
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.pass.pass.told().0
    }

    /// The pass has ended so; gives what it wrote.
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
    /// One that remembers so many passes; zero turns it off.
    pub(crate) fn new(controller: Arc<str>, passes_max: usize) -> Self {
        let ring = Ring::new(controller, passes_max);
        Self { ring, clock: OnceLock::new(), find_source: OnceLock::new() }
    }

    /// The controller runs: it tells dates by this clock, and finds its watches so.
    pub(crate) fn run(&self, clock: Clock, find_source: Box<FindSource>) {
        _ = self.clock.set(clock);
        _ = self.find_source.set(find_source);
    }

    /// Whether nothing is remembered.
    pub(crate) fn is_off(&self) -> bool {
        self.ring.is_off()
    }

    /// A pass begins. What it reads and writes is noted if it is remembered, or told otherwise.
    pub(crate) fn begin(&self, key: R, began: Began, is_told: bool) -> Recording<R> {
        let pass = self.ring.begin(key, began, self.is_off() && !is_told);
        Recording { pass, has_ended: false }
    }

    fn explain(&self, is_asked: impl FnMut(&R) -> bool) -> Vec<Explanation> {
        let found = self.ring.select(is_asked);
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
            let (notes, n_more_notes, ended) = pass.told();
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

#[cfg(test)]
mod tests;
