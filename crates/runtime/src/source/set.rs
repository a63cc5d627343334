//! The sources of one controller, through its life.

use std::{fmt, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use setpoint_workqueue::WorkQueue;
use tokio::sync::Notify;

use super::{
    DynSource, IndexRefused, KeySink, Retries, Unbound, WatchError,
    feed::{Binding, Feed, Hold, Target},
    retry,
};
use crate::{
    cache::{CacheRegistration, MemberStatus},
    client::Client,
    explain::WatchedSource,
    pass::Written,
    predicate::Predicate,
    request::RequestKey,
};

/// How many sources a controller has at once.
///
/// 1024: more than a controller is for; a program that adds watches and forgets to remove them is
/// told.
pub(crate) const SOURCES_MAX: usize = 1024;

/// What a controller's sources have in common, and what they are.
pub(crate) struct Sources<R> {
    // Settings.
    queue: WorkQueue<R>,
    low_priority: i32,
    filters: Arc<[Predicate]>,
    /// So many watches the controller was built with.
    n_built: usize,

    // State.
    state: Mutex<State<R>>,
    /// Events that are to be handled again.
    retries: Retries,
    /// A source waits to be started.
    added: Notify,
    /// A watch came or went.
    changed: Notify,
}

struct State<R> {
    phase: Phase,
    /// The number of the next source.
    next: usize,
    /// Watches that were added before there was a cache.
    unbound: Vec<(usize, Unbound<R>)>,
    watches: Vec<Watched<R>>,
    /// Other sources that wait to be started.
    foreign: Vec<Box<dyn DynSource<R>>>,
    n_foreign: usize,
}

/// How far the controller's life has come.
#[derive(Clone)]
enum Phase {
    Created,
    /// It has a client and its cache; nothing has been started.
    Bound(Client),
    /// What comes now starts at once.
    Started(Client),
    Ended,
}

/// A watch that has its informer.
struct Watched<R> {
    number: usize,
    resource: Arc<str>,
    feed: Arc<dyn Feed<R>>,
    /// Once it was started.
    registration: Option<CacheRegistration>,
    /// That one of its informers has ended was told.
    is_told: bool,
}

/// A watch that was started, and is to sync.
pub(crate) struct Awaited<R> {
    pub(crate) feed: Arc<dyn Feed<R>>,
    pub(crate) registration: CacheRegistration,
}

/// A cache that does not show yet what was written.
pub(crate) struct Unshown {
    /// Ends when it does, or never will.
    pub(crate) shown: BoxFuture<'static, ()>,
    /// The handler that adds keys.
    pub(crate) registration: Option<CacheRegistration>,
}

/// How one watch of a controller does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatus {
    /// The watched resource.
    pub resource: String,
    /// Whether its handler was told of everything that was there at its start.
    pub has_synced: bool,
    /// Whether its informer has ended: it gave up, was removed from the cache, or its owner stopped
    /// it. No event comes any more; of a type that is cached by namespace, none of one namespace at
    /// least.
    pub has_stopped: bool,
    /// What keeps its cache from being up to date, if anything does: the last failure of its
    /// informer with its causes. Of a type that is cached by namespace it is the first that fails,
    /// with its name, and how many others do.
    pub degraded: Option<String>,
    /// How often its predicates, the controller's filters and its event handler have panicked: see
    /// the [module](crate::source).
    pub panics: u64,
    /// The last of these panics: what panicked, for which object, and what it said.
    pub last_panic: Option<String>,
    /// Objects of which events wait to be handled again.
    pub retrying: usize,
    /// Events that were dropped after a panic, because [too many](super::RETRIED_OBJECTS_MAX)
    /// waited.
    pub lost: u64,
}

impl<R: RequestKey> Sources<R> {
    pub(crate) fn new(
        queue: WorkQueue<R>,
        low_priority: i32,
        filters: Vec<Predicate>,
        unbound: Vec<Unbound<R>>,
        foreign: Vec<Box<dyn DynSource<R>>>,
    ) -> Self {
        let n_built = unbound.len();
        let state = State {
            phase: Phase::Created,
            next: n_built,
            unbound: unbound.into_iter().enumerate().collect(),
            watches: Vec::new(),
            n_foreign: foreign.len(),
            foreign,
        };
        Self {
            queue,
            low_priority,
            filters: filters.into(),
            n_built,
            state: Mutex::new(state),
            retries: retry::retries(),
            added: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Requests the informers of the watches that the controller was built with, for as long as the
    /// cache lives.
    ///
    /// # Errors
    ///
    /// An index of a watch is refused. Then the controller cannot be used.
    pub(crate) fn bind(&self, client: &Client) -> Result<(), IndexRefused> {
        let unbound = {
            let mut state = self.state.lock();
            state.phase = Phase::Bound(client.clone());
            std::mem::take(&mut state.unbound)
        };
        let bound: Vec<_> = unbound
            .into_iter()
            .map(|(number, watch)| {
                let hold = if number < self.n_built { Hold::Pinned } else { Hold::Leased };
                self.watched(number, watch, client, hold)
            })
            .collect::<Result<_, _>>()?;
        self.state.lock().watches.extend(bound);
        Ok(())
    }

    fn watched(
        &self,
        number: usize,
        watch: Unbound<R>,
        client: &Client,
        hold: Hold,
    ) -> Result<Watched<R>, IndexRefused> {
        let feed = watch(Binding { client, hold, filters: self.filters.clone() })?;
        let resource = feed.resource().into();
        Ok(Watched { number, resource, feed, registration: None, is_told: false })
    }

    fn target(&self, source: usize) -> Target<R> {
        let (queue, retries) = (self.queue.clone(), self.retries.clone());
        Target { queue, low_priority: self.low_priority, source, retries }
    }

    /// The way into the queue for sources that are no watches.
    pub(crate) fn sink(&self) -> KeySink<R> {
        KeySink::new(self.queue.clone(), self.low_priority)
    }

    /// Starts all watches; gives those that are to sync, or the resource whose informer has
    /// stopped.
    pub(crate) fn start(&self) -> Result<Vec<Awaited<R>>, String> {
        let waiting: Vec<_> = {
            let mut state = self.state.lock();
            if let Phase::Bound(client) = state.phase.clone() {
                state.phase = Phase::Started(client);
            }
            let watches = state.watches.iter();
            watches.map(|watched| (watched.number, watched.feed.clone())).collect()
        };
        let mut awaited = Vec::new();
        for (number, feed) in waiting {
            let Ok(registration) = feed.start(self.target(number)) else {
                return Err(feed.resource());
            };
            self.registered(number, &registration);
            awaited.push(Awaited { feed, registration });
        }
        Ok(awaited)
    }

    /// Notes that a watch has begun. One that was removed meanwhile is over at once.
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

    /// Adds a watch: stored before the controller starts, started at once after that (CTL-2). Gives
    /// its number.
    pub(crate) fn add_watch(&self, watch: Unbound<R>) -> Result<usize, WatchError> {
        let (number, client, is_started) = {
            let mut state = self.state.lock();
            let n_sources = state.unbound.len() + state.watches.len() + state.n_foreign;
            if n_sources >= SOURCES_MAX {
                return Err(WatchError::TooMany);
            }
            let number = state.next;
            state.next += 1;
            match state.phase.clone() {
                Phase::Ended => return Err(WatchError::Stopped),
                Phase::Created => {
                    state.unbound.push((number, watch));
                    return Ok(number);
                }
                Phase::Bound(client) => (number, client, false),
                Phase::Started(client) => (number, client, true),
            }
        };
        let watched = self.watched(number, watch, &client, Hold::Leased)?;
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
        if is_started {
            let Ok(registration) = feed.start(self.target(number)) else {
                self.remove_watch(number);
                return Err(WatchError::InformerStopped);
            };
            self.registered(number, &registration);
        }
        Ok(number)
    }

    /// Ends a watch: its handler leaves the informer, which ends if nobody else needs it. Says
    /// whether there was one.
    pub(crate) fn remove_watch(&self, number: usize) -> bool {
        let mut state = self.state.lock();
        let n_before = state.unbound.len();
        let unbound: Vec<_> = state.unbound.extract_if(.., |(of, _)| *of == number).collect();
        let watches: Vec<_> =
            state.watches.extract_if(.., |watched| watched.number == number).collect();
        let was_there = n_before != state.unbound.len() || !watches.is_empty();
        // What they drop may be the user's: not under the lock.
        drop(state);
        self.changed.notify_one();
        watches.iter().for_each(Watched::end);
        drop((unbound, watches));
        was_there
    }

    /// Waits until an informer of a watch has ended that was not removed, and gives its resource;
    /// each watch is told once. For one who waits. Cancel safe.
    pub(crate) async fn watch_ended(&self) -> Arc<str> {
        loop {
            let mut ends: FuturesUnordered<_> = {
                let state = self.state.lock();
                let watches = state.watches.iter().filter(|watched| !watched.is_told);
                let end = |watched: &Watched<R>| {
                    let (number, ended) = (watched.number, watched.feed.stopped());
                    ended.map(move |()| number)
                };
                watches.map(end).collect()
            };
            let number = tokio::select! {
                biased;
                // Cancel safe: it only looks.
                Some(number) = ends.next() => number,
                // Cancel safe: all are looked at anew.
                () = self.changed.notified() => continue,
            };
            let mut state = self.state.lock();
            let ended = state.watches.iter_mut().find(|watched| watched.number == number);
            if let Some(ended) = ended {
                ended.is_told = true;
                return ended.resource.clone();
            }
        }
    }

    /// Handles events again whose handler panicked, as they fall due. Never ends, for one who runs
    /// it. Cancel safe.
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
                // It was removed.
                None => self.retries.forget(item.key()),
            }
        }
        std::future::pending().await
    }

    /// Adds a source that is no watch.
    pub(crate) fn add_foreign(&self, source: Box<dyn DynSource<R>>) -> Result<(), WatchError> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Ended) {
            return Err(WatchError::Stopped);
        }
        if state.unbound.len() + state.watches.len() + state.n_foreign >= SOURCES_MAX {
            return Err(WatchError::TooMany);
        }
        state.n_foreign += 1;
        state.foreign.push(source);
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// The other sources that were added since this was last asked.
    pub(crate) fn take_foreign(&self) -> Vec<Box<dyn DynSource<R>>> {
        std::mem::take(&mut self.state.lock().foreign)
    }

    /// A source that is no watch is over.
    pub(crate) fn foreign_ended(&self) {
        self.state.lock().n_foreign -= 1;
    }

    /// Waits until a source that is no watch was added. Cancel safe.
    pub(crate) async fn foreign_added(&self) {
        self.added.notified().await;
    }

    /// The caches that are going to show what was written, and do not yet. Those of types that are
    /// not watched are not asked, nor those of other clusters.
    pub(crate) fn unshown(&self, written: &Written) -> Vec<Unshown> {
        let state = self.state.lock();
        let mut unshown = Vec::new();
        for ((resource, namespace), writes) in &written.0 {
            let is_of = |watched: &&Watched<R>| {
                *watched.resource == **resource && !watched.feed.is_elsewhere()
            };
            for watched in state.watches.iter().filter(is_of) {
                if let Some(shown) = watched.feed.unshown(namespace, writes) {
                    unshown.push(Unshown { shown, registration: watched.registration.clone() });
                }
            }
        }
        unshown
    }

    /// Adds the keys of everything that the watches' caches hold, as far as `only` wants them.
    pub(crate) fn requeue(&self, only: &dyn Fn(&R) -> bool) {
        let feeds: Vec<_> = {
            let state = self.state.lock();
            state.watches.iter().map(|watched| (watched.number, watched.feed.clone())).collect()
        };
        for (number, feed) in feeds {
            feed.requeue(&self.target(number), only);
        }
    }

    /// A watch by its number, to explain what came of it.
    pub(crate) fn find(&self, number: usize) -> Option<WatchedSource> {
        let state = self.state.lock();
        let watched = state.watches.iter().find(|watched| watched.number == number)?;
        let (resource, feed) = (watched.resource.clone(), watched.feed.clone());
        let find_seen = Box::new(move |versions: &_| feed.find_seen(versions));
        Some(WatchedSource { resource, find_seen })
    }

    /// How the watches do.
    pub(crate) fn statuses(&self) -> Vec<SourceStatus> {
        self.state.lock().watches.iter().map(Watched::status).collect()
    }

    /// How one watch does, while it is there.
    pub(crate) fn status(&self, number: usize) -> Option<SourceStatus> {
        let state = self.state.lock();
        state.watches.iter().find(|watched| watched.number == number).map(Watched::status)
    }

    pub(crate) fn registration(&self, number: usize) -> Option<CacheRegistration> {
        let state = self.state.lock();
        state.watches.iter().find(|watched| watched.number == number)?.registration.clone()
    }

    /// Takes the controller's handlers off the informers that it shares (CTL-6), and refuses
    /// further sources.
    pub(crate) fn end(&self) {
        let ended = {
            let mut state = self.state.lock();
            state.phase = Phase::Ended;
            let State { unbound, watches, foreign, .. } = &mut *state;
            (std::mem::take(unbound), std::mem::take(watches), std::mem::take(foreign))
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
        SourceStatus {
            has_stopped: statuses.iter().any(|member| member.status.has_stopped),
            resource: self.resource.to_string(),
            has_synced: self.registration.as_ref().is_some_and(CacheRegistration::has_synced),
            degraded: degraded(&statuses),
            panics: panics.n,
            last_panic: panics.last,
            retrying: panics.n_waiting,
            lost: panics.n_lost,
        }
    }
}

/// What keeps a watch from being up to date, if anything does.
fn degraded(statuses: &[MemberStatus]) -> Option<String> {
    let mut degraded =
        statuses.iter().filter_map(|member| Some((&member.what, member.status.degraded.as_ref()?)));
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
