//! The sources of one controller.

use std::{fmt, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use setpoint_workqueue::WorkQueue;
use tokio::sync::Notify;

use super::{
    ChannelState, DynSource, Engage, IndexRefused, KeySink, Retries, Unbound, WatchError,
    feed::{Binding, Feed, Hold, Only, Target},
    retry,
};
use crate::{
    cache::{CacheRegistration, MemberStatus},
    client::Client,
    explain::WatchedSource,
    pass::{CacheId, Written},
    predicate::Predicate,
    request::RequestKey,
};

/// How many sources a controller may have at once.
///
/// 1024: more than a controller needs; an error for a program that adds watches and never removes
/// them.
pub(crate) const SOURCES_MAX: usize = 1024;

/// The sources of a controller, and their shared queue.
pub(crate) struct Sources<R> {
    // Settings.
    queue: WorkQueue<R>,
    low_priority: i32,
    filters: Arc<[Predicate]>,
    /// How many watches the controller was built with.
    n_built: usize,
    /// Adds the watches of clusters.
    engage: Engage<R>,

    // State.
    /// The channels; they are added when the controller is built.
    channels: Vec<Arc<ChannelState>>,
    state: Mutex<State<R>>,
    /// Events to retry.
    retries: Retries,
    /// A source is waiting to be started.
    added: Notify,
    /// A watch was added or removed.
    changed: Notify,
}

struct State<R> {
    phase: Phase,
    /// The number of the next source.
    next: usize,
    /// Watches that were added before [`bind`](Sources::bind).
    unbound: Vec<NewWatch<R>>,
    watches: Vec<Watched<R>>,
    /// Other sources that are waiting to be started.
    external: Vec<Box<dyn DynSource<R>>>,
    n_external: usize,
}

/// The phase of the controller.
#[derive(Clone)]
enum Phase {
    Created,
    /// The controller has a client with a cache; nothing has started.
    Bound(Client),
    /// New sources start at once.
    Started(Client),
    Ended,
}

/// A watch without an informer.
struct NewWatch<R> {
    number: usize,
    delays_start: bool,
    watch: Unbound<R>,
}

/// A watch with its informer.
struct Watched<R> {
    number: usize,
    /// Whether the start of the controller waits for it.
    delays_start: bool,
    resource: Arc<str>,
    feed: Arc<dyn Feed<R>>,
    /// Set once it has started.
    registration: Option<CacheRegistration>,
    /// The end of one of its informers was reported.
    end_is_reported: bool,
}

/// A watch that has started and has not synced.
pub(crate) struct Awaited<R> {
    pub(crate) feed: Arc<dyn Feed<R>>,
    pub(crate) registration: CacheRegistration,
}

/// A cache that does not show a write yet.
pub(crate) struct LaggingCache {
    /// Completes when the cache shows the write, or never will.
    pub(crate) shown: BoxFuture<'static, ()>,
    /// The registration of its handler.
    pub(crate) registration: Option<CacheRegistration>,
}

/// The status of one watch or channel of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatus {
    /// The watched resource; `a channel` for a channel.
    pub resource: String,
    /// Whether its handler got all objects of the initial list. For a channel: whether it has
    /// started.
    pub has_synced: bool,
    /// Whether its informer has ended: it gave up, was removed from the cache, or its owner stopped
    /// it. No more events arrive. For a type cached by namespace: at least one namespace has ended.
    /// For a channel: all its senders were dropped.
    pub has_stopped: bool,
    /// The last failure of its informer with its causes, if the cache is not up to date. For a type
    /// cached by namespace: the first failing namespace with its failure, and how many others fail.
    pub degraded: Option<String>,
    /// How often its predicates, the controller's filters, its event handler or map, and the index
    /// functions and the transform of its cache have panicked: see the [module](crate::source).
    /// Watches of one type share a cache, and count the panics of its functions each.
    pub panics: u64,
    /// The last of these panics: the function, the object if it is a watch, and the message. A
    /// panic of an index function or the transform is here only while no other function has
    /// panicked.
    pub last_panic: Option<String>,
    /// How often an object did not fit the type of an index function of its cache, so that reads by
    /// that index miss it.
    pub unindexed: u64,
    /// The last of these: the index, the object and the error.
    pub last_unindexed: Option<String>,
    /// Objects with events that wait for a retry.
    pub retrying: usize,
    /// Events dropped after a panic, because [too many](super::RETRIED_OBJECTS_MAX) were waiting.
    /// For a channel: values whose map panicked.
    pub lost: u64,
}

impl<R: RequestKey> Sources<R> {
    pub(crate) fn new(
        queue: WorkQueue<R>,
        low_priority: i32,
        filters: Vec<Predicate>,
        unbound: Vec<Unbound<R>>,
        external: Vec<Box<dyn DynSource<R>>>,
        engage: Engage<R>,
    ) -> Self {
        let n_built = unbound.len();
        let channels = external.iter().filter_map(|source| source.channel()).collect();
        let state = State {
            phase: Phase::Created,
            next: n_built,
            unbound: unbound
                .into_iter()
                .enumerate()
                .map(|(number, watch)| NewWatch { number, delays_start: true, watch })
                .collect(),
            watches: Vec::new(),
            n_external: external.len(),
            external,
        };
        Self {
            queue,
            low_priority,
            filters: filters.into(),
            n_built,
            engage,
            channels,
            state: Mutex::new(state),
            retries: retry::retries(),
            added: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Requests the informers of the watches that the controller was built with. They live as long
    /// as the cache.
    ///
    /// # Errors
    ///
    /// An index of a watch is not available. The controller cannot be used then.
    pub(crate) fn bind(&self, client: &Client) -> Result<(), IndexRefused> {
        let unbound = {
            let mut state = self.state.lock();
            state.phase = Phase::Bound(client.clone());
            std::mem::take(&mut state.unbound)
        };
        let bound: Vec<_> = unbound
            .into_iter()
            .map(|new| {
                let hold = if new.number < self.n_built { Hold::Pinned } else { Hold::Leased };
                self.watched(new, client, hold)
            })
            .collect::<Result<_, _>>()?;
        self.state.lock().watches.extend(bound);
        // It may have been removed before the controller was added.
        self.remove_watches(|watched| watched.feed.removed().is_cancelled());
        Ok(())
    }

    fn watched(
        &self,
        NewWatch { number, delays_start, watch }: NewWatch<R>,
        client: &Client,
        hold: Hold,
    ) -> Result<Watched<R>, IndexRefused> {
        let feed = watch(Binding { client, hold, filters: self.filters.clone() })?;
        let resource = feed.resource().into();
        Ok(Watched {
            number,
            delays_start,
            resource,
            feed,
            registration: None,
            end_is_reported: false,
        })
    }

    fn target(&self, source: usize) -> Target<R> {
        let (queue, retries) = (self.queue.clone(), self.retries.clone());
        Target { queue, low_priority: self.low_priority, source, retries }
    }

    /// The sink for sources other than watches.
    pub(crate) fn sink(&self) -> KeySink<R> {
        KeySink::new(self.queue.clone(), self.low_priority)
    }

    /// Starts all watches, and returns those that the start waits for. The error is a resource
    /// whose informer has stopped.
    pub(crate) fn start(&self) -> Result<Vec<Awaited<R>>, String> {
        self.remove_watches(|watched| watched.feed.removed().is_cancelled());
        let waiting: Vec<_> = {
            let mut state = self.state.lock();
            if let Phase::Bound(client) = state.phase.clone() {
                state.phase = Phase::Started(client);
            }
            let watches = state.watches.iter();
            let start =
                |watched: &Watched<R>| (watched.number, watched.delays_start, watched.feed.clone());
            watches.map(start).collect()
        };
        let mut awaited = Vec::new();
        for (number, delays_start, feed) in waiting {
            let Ok(registration) = feed.start(self.target(number)) else {
                if feed.removed().is_cancelled() {
                    continue;
                }
                return Err(feed.resource());
            };
            self.registered(number, &registration);
            if delays_start {
                awaited.push(Awaited { feed, registration });
            }
        }
        Ok(awaited)
    }

    /// Stores the registration of a watch. If the watch was removed meanwhile, ends it.
    fn registered(&self, number: usize, registration: &CacheRegistration) {
        let mut state = self.state.lock();
        match state.watches.iter_mut().find(|watched| watched.number == number) {
            Some(watched) => watched.registration = Some(registration.clone()),
            None => {
                drop(state);
                registration.remove();
            }
        }
    }

    /// Adds a watch and returns its number. Stored before the controller starts, started at once
    /// after that (CTL-2).
    pub(crate) fn add_watch(
        &self,
        watch: Unbound<R>,
        delays_start: bool,
    ) -> Result<usize, WatchError> {
        let (new, client, is_started) = {
            let mut state = self.state.lock();
            let n_sources = state.unbound.len() + state.watches.len() + state.n_external;
            if n_sources >= SOURCES_MAX {
                return Err(WatchError::TooMany);
            }
            let number = state.next;
            state.next += 1;
            let new = NewWatch { number, delays_start, watch };
            match state.phase.clone() {
                Phase::Ended => return Err(WatchError::Stopped),
                Phase::Created => {
                    state.unbound.push(new);
                    return Ok(number);
                }
                Phase::Bound(client) => (new, client, false),
                Phase::Started(client) => (new, client, true),
            }
        };
        let number = new.number;
        let watched = self.watched(new, &client, Hold::Leased)?;
        let feed = watched.feed.clone();
        let is_started = {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Ended) {
                drop(state);
                return Err(WatchError::Stopped);
            }
            let has_started = !is_started && matches!(state.phase, Phase::Started(_));
            state.watches.push(watched);
            is_started || has_started
        };
        self.changed.notify_one();
        // The removal of a cluster looks for its watches after it has said so.
        if feed.removed().is_cancelled() {
            self.remove_watch(number);
            return Err(WatchError::ClusterRemoved);
        }
        if is_started {
            let Ok(registration) = feed.start(self.target(number)) else {
                self.remove_watch(number);
                return Err(WatchError::InformerStopped);
            };
            self.registered(number, &registration);
        }
        Ok(number)
    }

    /// Removes a watch and its handler; its informer ends if nothing else needs it. Returns whether
    /// the watch existed.
    pub(crate) fn remove_watch(&self, number: usize) -> bool {
        let unbound: Vec<_> = {
            let mut state = self.state.lock();
            state.unbound.extract_if(.., |new| new.number == number).collect()
        };
        let was_bound = self.remove_watches(|watched| watched.number == number);
        was_bound || !unbound.is_empty()
    }

    /// Adds the watches of clusters.
    pub(crate) fn engage(&self) -> &Engage<R> {
        &self.engage
    }

    /// Removes the watches of a cluster's cache.
    pub(crate) fn remove_cluster(&self, cache: CacheId) {
        self.engage.forget(cache);
        self.remove_watches(|watched| watched.feed.cache() == Some(cache));
    }

    /// Removes bound watches; returns whether there were any.
    fn remove_watches(&self, are: impl Fn(&Watched<R>) -> bool) -> bool {
        let watches: Vec<_> = {
            let mut state = self.state.lock();
            state.watches.extract_if(.., |watched| are(watched)).collect()
        };
        // User values are dropped outside of the lock.
        self.changed.notify_one();
        watches.iter().for_each(Watched::end);
        !watches.is_empty()
    }

    /// Waits until an informer of a watch has ended on its own, and returns its resource. Each
    /// watch is reported once. For a single caller. Cancel safe.
    pub(crate) async fn watch_ended(&self) -> Arc<str> {
        loop {
            let mut ends: FuturesUnordered<_> = {
                let state = self.state.lock();
                let watches = state.watches.iter().filter(|watched| !watched.end_is_reported);
                let end = |watched: &Watched<R>| {
                    let (number, ended) = (watched.number, watched.feed.stopped());
                    ended.map(move |()| number)
                };
                watches.map(end).collect()
            };
            let number = tokio::select! {
                biased;
                // Cancel safe: it only observes.
                Some(number) = ends.next() => number,
                // Cancel safe: all watches are checked again.
                () = self.changed.notified() => continue,
            };
            let mut state = self.state.lock();
            let ended = state.watches.iter_mut().find(|watched| watched.number == number);
            if let Some(ended) = ended {
                ended.end_is_reported = true;
                return ended.resource.clone();
            }
        }
    }

    /// Handles stored events again as they fall due. Never returns. For a single caller. Cancel
    /// safe.
    pub(crate) async fn retry(&self) {
        while let Some(item) = self.retries.get().await {
            let (number, key) = item.key();
            let feed = {
                let state = self.state.lock();
                let watched = state.watches.iter().find(|watched| watched.number == *number);
                watched.map(|watched| watched.feed.clone())
            };
            match feed {
                Some(feed) => feed.retry(&self.target(*number), key),
                // The watch was removed.
                None => self.retries.forget(item.key()),
            }
        }
        std::future::pending().await
    }

    /// Adds a source other than a watch.
    pub(crate) fn add_external(&self, source: Box<dyn DynSource<R>>) -> Result<(), WatchError> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Ended) {
            return Err(WatchError::Stopped);
        }
        if state.unbound.len() + state.watches.len() + state.n_external >= SOURCES_MAX {
            return Err(WatchError::TooMany);
        }
        state.n_external += 1;
        state.external.push(source);
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Takes the other sources that were added since the last call.
    pub(crate) fn take_external(&self) -> Vec<Box<dyn DynSource<R>>> {
        std::mem::take(&mut self.state.lock().external)
    }

    /// A source other than a watch has ended.
    pub(crate) fn external_ended(&self) {
        self.state.lock().n_external -= 1;
    }

    /// Waits until a source other than a watch is added. Cancel safe.
    pub(crate) async fn external_added(&self) {
        self.added.notified().await;
    }

    /// The watched caches that will show these writes and do not yet. Types that are not watched in
    /// the cluster of the write are skipped, as are informers of which the cluster is not known.
    pub(crate) fn lagging_caches(&self, written: &Written) -> Vec<LaggingCache> {
        let state = self.state.lock();
        let mut lagging = Vec::new();
        for ((cache, resource, namespace), writes) in &written.0 {
            let is_of = |watched: &&Watched<R>| {
                *watched.resource == **resource && watched.feed.cache() == Some(*cache)
            };
            for watched in state.watches.iter().filter(is_of) {
                if let Some(shown) = watched.feed.await_writes(namespace, writes) {
                    lagging
                        .push(LaggingCache { shown, registration: watched.registration.clone() });
                }
            }
        }
        lagging
    }

    /// Adds the keys of all cached objects of the watches, filtered by `only`, in slices. Cancel
    /// safe: a dropped future adds no more.
    pub(crate) async fn requeue(&self, only: &Only<'_, R>) {
        let feeds: Vec<_> = {
            let state = self.state.lock();
            state.watches.iter().map(|watched| (watched.number, watched.feed.clone())).collect()
        };
        for (number, feed) in feeds {
            feed.requeue(self.target(number), only).await;
        }
    }

    /// A watch by its number, for explanations.
    pub(crate) fn find(&self, number: usize) -> Option<WatchedSource> {
        let state = self.state.lock();
        let watched = state.watches.iter().find(|watched| watched.number == number)?;
        let (resource, feed) = (watched.resource.clone(), watched.feed.clone());
        let find_seen = Box::new(move |versions: &_| feed.find_seen(versions));
        Some(WatchedSource { resource, find_seen })
    }

    /// The status of each watch, and then of each channel.
    pub(crate) fn statuses(&self) -> Vec<SourceStatus> {
        let mut statuses: Vec<_> = self.state.lock().watches.iter().map(Watched::status).collect();
        statuses.extend(self.channels.iter().map(|channel| channel.status()));
        statuses
    }

    /// The status of one watch, if it exists.
    pub(crate) fn status(&self, number: usize) -> Option<SourceStatus> {
        let state = self.state.lock();
        state.watches.iter().find(|watched| watched.number == number).map(Watched::status)
    }

    pub(crate) fn registration(&self, number: usize) -> Option<CacheRegistration> {
        let state = self.state.lock();
        state.watches.iter().find(|watched| watched.number == number)?.registration.clone()
    }

    /// Removes the controller's handlers from the shared informers (CTL-6), and refuses new
    /// sources.
    pub(crate) fn end(&self) {
        let ended = {
            let mut state = self.state.lock();
            state.phase = Phase::Ended;
            let State { unbound, watches, external, .. } = &mut *state;
            (std::mem::take(unbound), std::mem::take(watches), std::mem::take(external))
        };
        ended.1.iter().for_each(Watched::end);
    }
}

impl<R> Watched<R> {
    fn end(&self) {
        if let Some(registration) = &self.registration {
            registration.remove();
        }
    }

    fn status(&self) -> SourceStatus {
        let (statuses, panics) = (self.feed.statuses(), self.feed.panics());
        let of_caches = || statuses.iter().find_map(|member| member.status.last_panic.as_deref());
        let mut unindexed = statuses.iter().map(|member| member.status.last_unindexed.as_deref());
        SourceStatus {
            has_stopped: statuses.iter().any(|member| member.status.has_stopped),
            resource: self.resource.to_string(),
            has_synced: self.registration.as_ref().is_some_and(CacheRegistration::has_synced),
            degraded: degraded(&statuses),
            panics: panics.n + statuses.iter().map(|member| member.status.panics).sum::<u64>(),
            last_panic: panics.last.or_else(|| of_caches().map(str::to_owned)),
            unindexed: statuses.iter().map(|member| member.status.unindexed).sum(),
            last_unindexed: unindexed.find_map(|last| last).map(str::to_owned),
            retrying: panics.n_waiting,
            lost: panics.n_lost,
        }
    }
}

/// The first failure among a watch's informers, if any.
fn degraded(statuses: &[MemberStatus]) -> Option<String> {
    let mut degraded =
        statuses.iter().filter_map(|member| Some((&member.name, member.status.degraded.as_ref()?)));
    let (what, first) = degraded.next()?;
    Some(match (statuses, degraded.count()) {
        ([_], _) => first.to_string(),
        (_, 0) => format!("{what}: {first}"),
        (_, n_others) => format!("{what}, and {n_others} more: {first}"),
    })
}

impl<R> fmt::Debug for Sources<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("n_watches", &self.state.lock().watches.len())
            .finish_non_exhaustive()
    }
}
