//! Applies deltas to the cache and notifies the handlers.
use crate::backoff::SPAN_MAX;
use crate::delta::Delta;
use crate::event::{Event, Tombstone};
use crate::failure::Stopped;
use crate::handler::{
    Handler, HandlerOptions, HandlerRegistration, Listener, RESYNC_MIN, Registered, Replaced,
};
use crate::indexer::{
    AddIndexError, Function, Functions, IndexError, IndexFn, IndexResult, Indexer, Relist,
    Relisted, Snapshot, Swapped, Write,
};
use crate::metrics::{self, Metrics};
use crate::object::{Raw, Untyped};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The writer of an informer, behind its distribution lock. No call does work for every object.
pub(crate) struct Processor {
    // Inputs.
    resync: Duration,
    metrics: Option<Arc<dyn Metrics>>,
    // Outputs.
    indexer: Indexer<Untyped>,
    places: Vec<Place>,
    /// The tasks of new handlers, until the worker spawns them.
    starting: Vec<BoxFuture<'static, ()>>,
    // State.
    check_period: Duration,
    phase: Phase,
    has_synced: bool,
    /// A watch replays existing objects, in no order (REF-21).
    is_replaying: bool,
    /// Stops the handlers' tasks.
    stop: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Started,
    Stopped,
}

/// One handler, as the distribution sees it.
struct Place {
    listener: Arc<Listener<Untyped>>,
    /// The requested resync period; zero is never.
    requested: Duration,
    period: Option<Duration>,
    next: Option<Instant>,
    /// Whether the handler gets sync updates until the next tick (SHI-21).
    is_due: bool,
    /// Events were pushed since it was last woken.
    has_events: bool,
}

/// The result of applying some deltas.
#[derive(Default)]
pub(crate) struct Applied {
    /// The objects that an index function rejected.
    pub(crate) rejected: Vec<IndexError>,
    /// Whether this put the first list into the cache.
    pub(crate) became_synced: bool,
    /// States of the cache that are no longer needed, to be freed without the lock.
    pub(crate) unused: Vec<Snapshot<Untyped>>,
    /// Entries that walks replaced in queues of handlers, to be freed without the lock.
    pub(crate) replaced: Vec<Replaced<Untyped>>,
}

impl Processor {
    pub(super) fn new(
        indexer: Indexer<Untyped>,
        resync: Duration,
        metrics: Option<Arc<dyn Metrics>>,
    ) -> Self {
        Self {
            resync,
            metrics,
            indexer,
            places: Vec::new(),
            starting: Vec::new(),
            check_period: resync,
            phase: Phase::New,
            has_synced: false,
            is_replaying: false,
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn add(
        &mut self,
        handler: impl Handler<Untyped>,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, Stopped> {
        if self.phase == Phase::Stopped {
            return Err(Stopped);
        }
        let requested = self.resync_period(options.resync.unwrap_or(self.resync));
        let listener = Listener::new(&options, self.metrics.clone());
        let mut place = Place {
            listener: listener.clone(),
            requested,
            period: None,
            next: None,
            is_due: true,
            has_events: false,
        };
        place.settle(self.check_period);
        self.places.push(place);
        // The queue is empty, so this replaces nothing.
        drop(listener.push_walk(Snapshot::empty(), self.indexer.snapshot(), true, true));
        if self.has_synced {
            listener.informer_synced();
        }
        listener.wake();
        self.starting.push(listener.clone().run(handler, self.stop.clone()).boxed());
        Ok(HandlerRegistration(listener))
    }

    /// The resync period that a handler gets (SHI-20 a to d). Lowers the check period if the
    /// informer has not started.
    fn resync_period(&mut self, requested: Duration) -> Duration {
        if requested.is_zero() {
            return Duration::ZERO;
        }
        if self.check_period.is_zero() {
            tracing::warn!(
                ?requested,
                "a handler requests resyncs of an informer without a resync period: it gets none"
            );
            return Duration::ZERO;
        }
        let requested = requested.clamp(RESYNC_MIN, SPAN_MAX);
        if requested >= self.check_period {
            return requested;
        }
        if self.phase == Phase::Started {
            return self.check_period;
        }
        self.check_period = requested;
        for place in &mut self.places {
            place.settle(requested);
        }
        requested
    }

    /// Starts to add an index, to be built over this snapshot without the lock.
    pub(super) fn begin_index(
        &self,
        name: Arc<str>,
        function: IndexFn,
    ) -> Result<(Function, Snapshot<Untyped>), AddIndexError> {
        if self.phase == Phase::Stopped {
            return Err(Stopped.into());
        }
        Ok((self.indexer.function(name, function)?, self.indexer.snapshot()))
    }

    /// Adds the index, unless the cache has changed since. Returns whether it did.
    pub(super) fn end_index(&mut self, of: &Snapshot<Untyped>, new: Snapshot<Untyped>) -> bool {
        self.indexer.add_index(of, new)
    }

    /// The functions to call with the objects that come, without the lock.
    pub(super) fn functions(&self) -> &Functions {
        self.indexer.functions()
    }

    /// The informer starts. Returns the period at which to check for resyncs.
    pub(super) fn start(&mut self) -> Duration {
        self.phase = Phase::Started;
        self.check_period
    }

    /// The informer has ended.
    pub(super) fn stop(&mut self) {
        self.phase = Phase::Stopped;
        self.indexer.retire();
        self.stop.cancel();
        self.starting.clear();
        for place in self.places.drain(..) {
            place.listener.remove();
        }
    }

    /// Stops the handlers' tasks.
    pub(super) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The tasks of new handlers, to be spawned.
    pub(super) fn starting(&mut self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut self.starting)
    }

    /// A tick: marks the handlers that are due until the next tick. Returns whether there are any
    /// (SHI-21).
    pub(super) fn resync_due(&mut self) -> bool {
        let now = Instant::now();
        for place in &mut self.places {
            place.is_due = place.next.is_some_and(|next| next <= now);
            if place.is_due {
                place.next = place.period.map(|period| now + period);
            }
        }
        self.places.iter().any(|place| place.is_due)
    }

    /// Applies deltas about single objects, resyncs and bookmarks, in order: each changes the cache
    /// first, and then notifies the handlers (EVT-7). `indexed` has the index values of all objects
    /// in them that are stored, in their order; it is empty if there are no indexes.
    pub(super) fn apply(
        &mut self,
        deltas: Vec<Delta<Raw>>,
        mut indexed: VecDeque<IndexResult>,
    ) -> Applied {
        let indexed = &mut indexed;
        self.places.retain(|place| !place.listener.is_removed());
        let mut applied = Applied::default();
        let is_run = |delta: &Delta<_>| delta.key().is_some();
        if !self.is_replaying && deltas.iter().all(is_run) {
            // Nearly all batches.
            self.write(deltas, indexed, &mut applied);
            self.announce();
            return applied;
        }
        let mut run = Vec::new();
        for delta in deltas {
            if self.is_replaying && ends_replay(&delta) {
                // The deltas before it are applied in the other mode.
                self.write(std::mem::take(&mut run), indexed, &mut applied);
                self.set_replaying(false);
            }
            if is_run(&delta) {
                run.push(delta);
                continue;
            }
            self.write(std::mem::take(&mut run), indexed, &mut applied);
            match delta {
                Delta::SyncAll => {
                    let present = self.indexer.snapshot();
                    for place in self.places.iter_mut().filter(|place| place.is_due) {
                        place.walk(present.clone(), present.clone(), false, &mut applied);
                    }
                }
                Delta::Bookmark { resource_version } => self.indexer.bookmark(&resource_version),
                // A queue delivers a relist alone, and `end_relist` applies it; the others have a
                // key.
                Delta::ReplacedAll { .. }
                | Delta::Added(_)
                | Delta::Updated(_)
                | Delta::Replaced(_)
                | Delta::Sync(_)
                | Delta::Deleted(_)
                | Delta::DeletedFinalStateUnknown { .. } => {
                    debug_assert!(false, "a relist among other deltas");
                }
            }
        }
        self.write(run, indexed, &mut applied);
        self.announce();
        applied
    }

    /// Wakes the tasks that wait for a change.
    fn announce(&mut self) {
        // One wake per handler for all events.
        for place in self.places.iter_mut().filter(|place| place.has_events) {
            place.has_events = false;
            place.listener.wake();
        }
        // After the handlers, so that their queues have the events of a version before its waiters
        // wake.
        self.indexer.announce();
    }

    /// Starts to build the state after a relist, to be done without the lock.
    pub(super) fn begin_relist(&self) -> Relist {
        self.indexer.relist()
    }

    /// Starts again, because an index was added meanwhile.
    pub(super) fn begin_relist_again(&self, relisted: &mut Relisted) -> Relist {
        self.indexer.relist_again(relisted)
    }

    /// Replaces the cache and notifies the handlers (EVT-4), in constant time.
    ///
    /// # Errors
    /// If an index was added since the construction began: returns the state.
    pub(super) fn end_relist(
        &mut self,
        relisted: Relisted,
        resource_version: &str,
    ) -> Result<Applied, Box<Relisted>> {
        let Swapped { old, rejected } = self.indexer.swap(relisted)?;
        self.places.retain(|place| !place.listener.is_removed());
        // A watch after a list without a version starts without a version.
        self.set_replaying(matches!(resource_version, "" | "0"));
        let mut applied = Applied { rejected, ..Applied::default() };
        let new = self.indexer.snapshot();
        for place in &mut self.places {
            place.walk(old.clone(), new.clone(), !self.has_synced, &mut applied);
        }
        applied.unused.push(old);
        applied.became_synced = !std::mem::replace(&mut self.has_synced, true);
        for place in &self.places {
            place.listener.informer_synced();
        }
        self.announce();
        Ok(applied)
    }

    /// Reports metrics after a batch.
    pub(super) fn measure(&self, took: Duration, n_deltas: usize, n_queued: usize) {
        let Some(metrics) = &self.metrics else { return };
        metrics.processed(took, n_deltas, n_queued);
        let snapshot = self.indexer.snapshot();
        metrics.store(metrics::gauge(snapshot.resource_version()), snapshot.len());
        let pending = self.places.iter().map(|place| place.listener.pending());
        let (sum, most) = pending.fold((0, 0), |(sum, most), n| (sum + n, most.max(n)));
        metrics.handlers(sum, most);
    }

    pub(super) fn has_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    fn set_replaying(&mut self, is_replaying: bool) {
        self.is_replaying = is_replaying;
        self.indexer.set_replaying(is_replaying);
    }

    /// Applies deltas about single objects to the cache in one step (IDX-11), and then notifies the
    /// handlers of each.
    fn write(
        &mut self,
        run: Vec<Delta<Raw>>,
        indexed: &mut VecDeque<IndexResult>,
        applied: &mut Applied,
    ) {
        let writes = run.iter().filter_map(|delta| match delta {
            Delta::Deleted(object) => Some(Write::Delete(object.clone())),
            Delta::DeletedFinalStateUnknown { key, .. } => Some(Write::Remove(key.clone())),
            delta => delta.item().cloned().map(Write::Upsert),
        });
        // Without indexes there are no values.
        let values = |_: &Raw| indexed.pop_front().unwrap_or(Ok(Vec::new()));
        let written = self.indexer.transaction_indexed(writes, values);
        for (delta, old) in run.into_iter().zip(written) {
            match (delta, old) {
                (
                    Delta::Added(object)
                    | Delta::Updated(object)
                    | Delta::Replaced(object)
                    | Delta::Sync(object),
                    Ok(old),
                ) => self.notify_present(old, object),
                (Delta::Deleted(object), _) => {
                    self.notify(Event::Deleted { tombstone: Tombstone::Final(object) });
                }
                (Delta::DeletedFinalStateUnknown { key, last_known }, _) => {
                    let tombstone = Tombstone::Missed { key, last_known };
                    self.notify(Event::Deleted { tombstone });
                }
                (_, Err(error)) => applied.rejected.push(error),
                // The others have no key.
                (_, Ok(_)) => {}
            }
        }
    }

    /// EVT-1 and EVT-2: whether it is an addition depends on the cache, not on the verb.
    fn notify_present(&mut self, old: Option<Raw>, object: Raw) {
        self.notify(match old {
            None => Event::Added { object, in_initial_list: !self.has_synced },
            Some(old) => Event::Updated { old, new: object },
        });
    }

    /// SHI-22: an update of an unchanged object goes only to handlers that are due.
    fn notify(&mut self, event: Event<Untyped>) {
        let only_due = event.is_sync();
        let mut places = self.places.iter_mut().filter(|place| place.is_due || !only_due);
        let Some(mut place) = places.next() else { return };
        for next in places {
            place.notify(event.clone());
            place = next;
        }
        place.notify(event);
    }
}

/// Whether a watch without a version has ended its replay of the existing objects before this
/// delta. It replays them in any order. Until it sends something else, the versions of added
/// objects are not the cache's (REF-21).
fn ends_replay(delta: &Delta<Raw>) -> bool {
    match delta {
        Delta::Updated(object) | Delta::Deleted(object) => !object.resource_version().is_empty(),
        Delta::Bookmark { .. } => true,
        _ => false,
    }
}

impl Place {
    fn notify(&mut self, event: Event<Untyped>) {
        self.has_events = true;
        self.listener.push(event);
    }

    /// Queues the events from one state to another. Those of unchanged objects only if the handler
    /// is due (SHI-22).
    fn walk(
        &mut self,
        old: Snapshot<Untyped>,
        new: Snapshot<Untyped>,
        in_initial_list: bool,
        applied: &mut Applied,
    ) {
        self.has_events = true;
        applied.replaced.extend(self.listener.push_walk(old, new, self.is_due, in_initial_list));
    }

    /// SHI-20: a period shorter than the check period is raised to it; without a check period there
    /// is none.
    fn settle(&mut self, check_period: Duration) {
        let never = self.requested.is_zero() || check_period.is_zero();
        self.period = (!never).then(|| self.requested.max(check_period));
        self.next = self.period.map(|period| Instant::now() + period);
        self.listener.set_resync_period(self.period);
    }
}
