//! From deltas to the cache and to handlers.
use crate::broken::{Broken, Rule};
use crate::delta::Delta;
use crate::event::{Event, Tombstone};
use crate::handler::{
    Handler, HandlerOptions, HandlerRegistration, Listener, RESYNC_MIN, Registered,
};
use crate::indexer::{
    AddIndexError, Asked, Filed, Function, Functions, IndexError, IndexFn, Indexer, Snapshot,
    Write, values_of,
};
use crate::key::Key;
use crate::metrics::{self, Metrics};
use crate::object::{Raw, Untyped};
use crate::status::Stopped;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The writing side of an informer, behind its distribution lock.
pub(crate) struct Processor {
    // Inputs.
    resync: Duration,
    broken: Broken,
    metrics: Option<Arc<dyn Metrics>>,
    // Outputs.
    indexer: Indexer<Untyped>,
    places: Vec<Place>,
    /// The tasks of handlers that the worker has not taken up yet.
    starting: Vec<BoxFuture<'static, ()>>,
    // State.
    check_period: Duration,
    phase: Phase,
    has_synced: bool,
    /// Additions come in no order.
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

/// One handler's place in the distribution.
struct Place {
    listener: Arc<Listener<Untyped>>,
    /// What was asked for; zero is never.
    asked: Duration,
    period: Option<Duration>,
    next: Option<Instant>,
    /// Whether sync updates go to it until the next tick (SHI-21).
    is_due: bool,
    /// Something was pushed to it, and it was not woken.
    has_news: bool,
}

/// What became of some deltas.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The objects that an index function rejected.
    pub(crate) rejected: Vec<IndexError>,
    /// The first list is in the cache now, and was not before.
    pub(crate) became_synced: bool,
}

impl Processor {
    pub(super) fn new(
        indexer: Indexer<Untyped>,
        resync: Duration,
        metrics: Option<Arc<dyn Metrics>>,
        broken: Broken,
    ) -> Self {
        Self {
            resync,
            broken,
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
        let asked = self.resync_period(options.resync.unwrap_or(self.resync));
        let listener = Listener::new(&options, self.metrics.clone(), self.broken);
        let mut place = Place {
            listener: listener.clone(),
            asked,
            period: None,
            next: None,
            is_due: true,
            has_news: false,
        };
        place.settle(self.check_period);
        self.places.push(place);
        let lost = usize::from(self.broken.is(Rule::LateHandlerRaces));
        for object in self.indexer.snapshot().iter().skip(lost) {
            listener.push(Event::Added { object, in_initial_list: true });
        }
        if self.has_synced {
            listener.informer_synced();
        }
        listener.wake();
        self.starting.push(listener.clone().run(handler, self.stop.clone()).boxed());
        Ok(HandlerRegistration(listener))
    }

    /// The period that a handler can have (SHI-20 a to d); lowers the check period when it still
    /// may.
    fn resync_period(&mut self, asked: Duration) -> Duration {
        if asked.is_zero() {
            return Duration::ZERO;
        }
        if self.check_period.is_zero() {
            tracing::warn!(
                ?asked,
                "a handler asks for resyncs of an informer that has no resync period: there will be none"
            );
            return Duration::ZERO;
        }
        let asked = asked.max(RESYNC_MIN);
        if asked >= self.check_period {
            return asked;
        }
        if self.phase == Phase::Started {
            return self.check_period;
        }
        self.check_period = asked;
        for place in &mut self.places {
            place.settle(asked);
        }
        asked
    }

    /// Begins to add an index: the function is to be asked about the snapshot, without the lock.
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

    /// Adds it, unless the cache has changed since.
    pub(super) fn end_index(
        &mut self,
        of: &Snapshot<Untyped>,
        function: &Function,
        filed: &mut Filed,
    ) -> bool {
        self.indexer.add_index(of, function, filed)
    }

    /// The functions that are to be asked about what comes, without the lock.
    pub(super) fn functions(&self) -> &Functions {
        self.indexer.functions()
    }

    /// The informer runs: gives the period at which resyncs are to be checked.
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

    /// The tasks of handlers to be taken up.
    pub(super) fn starting(&mut self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut self.starting)
    }

    /// A tick: marks the handlers that are due until the next one, and says whether there are any
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

    /// Takes in deltas, in order: each changes the cache first, and is told of then (EVT-7).
    /// `asked` is what the functions said of all objects in them that are put in, in their order;
    /// nothing where there are no functions.
    pub(super) fn apply(&mut self, deltas: Vec<Delta<Raw>>, mut asked: VecDeque<Asked>) -> Applied {
        let asked = &mut asked;
        self.places.retain(|place| !place.listener.is_removed());
        let mut applied = Applied::default();
        let mut run = Vec::new();
        for delta in deltas {
            if self.changes_order(&delta) {
                // What came before it was taken in the other way.
                self.write(std::mem::take(&mut run), asked, &mut applied);
                self.is_replaying = !self.is_replaying;
                self.indexer.set_replaying(self.is_replaying);
            }
            if delta.key().is_some() {
                run.push(delta);
                continue;
            }
            self.write(std::mem::take(&mut run), asked, &mut applied);
            match delta {
                Delta::ReplacedAll { items, resource_version } => {
                    applied.rejected.extend(self.replace_all(items, asked, &resource_version));
                    applied.became_synced |= !std::mem::replace(&mut self.has_synced, true);
                    for place in &self.places {
                        place.listener.informer_synced();
                    }
                }
                Delta::SyncAll => {
                    for object in self.indexer.snapshot().iter() {
                        self.tell_present(Some(object.clone()), object);
                    }
                }
                Delta::Bookmark { resource_version } => self.indexer.bookmark(&resource_version),
                // These have a key.
                Delta::Added(_)
                | Delta::Updated(_)
                | Delta::Replaced(_)
                | Delta::Sync(_)
                | Delta::Deleted(_)
                | Delta::DeletedFinalStateUnknown { .. } => {}
            }
        }
        self.write(run, asked, &mut applied);
        // One wake for all there is: what a handler's task does not find now it need not be woken
        // for.
        for place in self.places.iter_mut().filter(|place| place.has_news) {
            place.has_news = false;
            place.listener.wake();
        }
        // After the handlers: who waits for a version finds them awake, with its event in their
        // queues.
        self.indexer.announce();
        applied
    }

    /// Tells of what there is after a batch.
    pub(super) fn measure(&self, took: Duration, n_deltas: usize, n_queued: usize) {
        let Some(told) = &self.metrics else { return };
        told.processed(took, n_deltas, n_queued);
        let snapshot = self.indexer.snapshot();
        told.store(metrics::gauge(snapshot.resource_version()), snapshot.len());
        let pending = self.places.iter().map(|place| place.listener.pending());
        let (sum, most) = pending.fold((0, 0), |(sum, most), n| (sum + n, most.max(n)));
        told.handlers(sum, most);
    }

    pub(super) fn has_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    /// A list without a version is followed by a watch from nowhere, which replays what exists in
    /// any order: until something else comes, the versions of additions are not the cache's
    /// (REF-21). Whether that begins or ends here.
    fn changes_order(&self, delta: &Delta<Raw>) -> bool {
        let is_replaying = match delta {
            Delta::ReplacedAll { resource_version, .. } => matches!(&**resource_version, "" | "0"),
            Delta::Updated(object) | Delta::Deleted(object)
                if !object.resource_version().is_empty() =>
            {
                false
            }
            Delta::Bookmark { .. } => false,
            _ => return false,
        };
        is_replaying != self.is_replaying
    }

    /// Deltas about single objects: the cache changes by all of them in one step (IDX-11), and then
    /// each is told of.
    fn write(&mut self, run: Vec<Delta<Raw>>, asked: &mut VecDeque<Asked>, applied: &mut Applied) {
        let writes = run.iter().filter_map(|delta| match delta {
            Delta::Deleted(object) => Some(Write::Delete(object.clone())),
            Delta::DeletedFinalStateUnknown { key, .. } => Some(Write::Remove(key.clone())),
            delta => delta.item().cloned().map(Write::Upsert),
        });
        // Without functions there is nothing to be said.
        let said = |_: &Raw| asked.pop_front().unwrap_or(Ok(Vec::new()));
        let written = self.indexer.transaction_asked(writes.collect(), said);
        for (delta, old) in run.into_iter().zip(written) {
            match (delta, old) {
                (
                    Delta::Added(object)
                    | Delta::Updated(object)
                    | Delta::Replaced(object)
                    | Delta::Sync(object),
                    Ok(old),
                ) => self.tell_present(old, object),
                (Delta::Deleted(object), _) => {
                    self.tell(Event::Deleted { tombstone: Tombstone::Final(object) });
                }
                (Delta::DeletedFinalStateUnknown { key, last_known }, _) => {
                    let tombstone = Tombstone::Missed { key, last_known };
                    self.tell(Event::Deleted { tombstone });
                }
                (_, Err(error)) => applied.rejected.push(error),
                // Everything else is about no single object.
                (_, Ok(_)) => {}
            }
        }
    }

    /// EVT-4: the cache changes at once; then come the deletions, and then what the list holds, in
    /// its order.
    fn replace_all(
        &mut self,
        objects: Vec<Raw>,
        asked: &mut VecDeque<Asked>,
        resource_version: &str,
    ) -> Vec<IndexError> {
        let old = self.indexer.snapshot();
        let keys: Vec<Key> = objects.iter().map(|object| object.key().clone()).collect();
        let rejected = if asked.is_empty() {
            self.indexer.replace(objects, resource_version)
        } else {
            let asked = asked.drain(..objects.len());
            self.indexer.replace_asked(objects.into_iter().zip(asked).collect(), resource_version)
        };
        if self.places.is_empty() {
            return rejected;
        }
        let new = self.indexer.snapshot();
        for object in old.all_raw() {
            let key = object.key();
            if new.raw(key).is_none() && !self.broken.is(Rule::NoTombstonesOnRelist) {
                let tombstone =
                    Tombstone::Missed { key: key.clone(), last_known: Some(object.clone()) };
                self.tell(Event::Deleted { tombstone });
            }
        }
        let mut told: HashSet<&Key> = rejected.iter().map(|error| &error.key).collect();
        // Most lists come in order: then nothing is in them twice, and nothing need be remembered.
        let is_sorted = keys.is_sorted_by(|a, b| a < b);
        for key in &keys {
            let is_new = if is_sorted { !told.contains(key) } else { told.insert(key) };
            if is_new && let Some(object) = new.get(key) {
                self.tell_present(old.get(key), object);
            }
        }
        rejected
    }

    /// EVT-1 and EVT-2: whether it is an addition depends on the cache, not on the verb.
    fn tell_present(&mut self, old: Option<Raw>, object: Raw) {
        self.tell(match old {
            None => Event::Added { object, in_initial_list: !self.has_synced },
            Some(_) if self.broken.is(Rule::VerbDecides) => {
                Event::Added { object, in_initial_list: false }
            }
            Some(old) => Event::Updated { old, new: object },
        });
    }

    /// SHI-22: an update without news goes only to handlers that are due.
    fn tell(&mut self, event: Event<Untyped>) {
        let only_due = event.is_sync();
        let mut places = self.places.iter_mut().filter(|place| place.is_due || !only_due);
        let Some(mut place) = places.next() else { return };
        for next in places {
            place.tell(event.clone());
            place = next;
        }
        place.tell(event);
    }
}

/// Asks functions about all objects in some deltas that are put in. Not under a lock: they are the
/// user's, and may call the informer.
pub(super) fn ask(functions: &Functions, deltas: &[Delta<Raw>]) -> VecDeque<Asked> {
    if functions.is_empty() {
        return VecDeque::new();
    }
    let objects = deltas.iter().flat_map(|delta| match delta {
        Delta::ReplacedAll { items, .. } => &items[..],
        delta if delta.is_deletion() => &[],
        delta => delta.item().map_or(&[][..], std::slice::from_ref),
    });
    objects.map(|object| values_of(&**functions, object)).collect()
}

impl Place {
    fn tell(&mut self, event: Event<Untyped>) {
        self.has_news = true;
        self.listener.push(event);
    }

    /// SHI-20: a period shorter than the check period is raised to it; without a check period there
    /// is none.
    fn settle(&mut self, check_period: Duration) {
        let never = self.asked.is_zero() || check_period.is_zero();
        self.period = (!never).then(|| self.asked.max(check_period));
        self.next = self.period.map(|period| Instant::now() + period);
        self.listener.set_resync_period(self.period);
    }
}
