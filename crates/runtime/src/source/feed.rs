//! The feed of one watched type: its informers, its filters, and its handler.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use setpoint_informer::{Cacheable, Event, HandlerOptions, Key, Stopped, informer::Slices};
use setpoint_workqueue::WorkQueue;
use tokio_util::sync::CancellationToken;

use super::{
    Enqueue, EventHandler, IndexRefused, Retries,
    handler::priority_of,
    retry::{PanicStatus, Panics},
};
use crate::{
    cache::{CacheInformer, CacheLease, CacheRegistration, MemberStatus},
    client::{Client, holds, shown_gone},
    explain::{Seen, find_seen},
    pass::{CacheId, Cause, GoneObject, Writes},
    predicate::{Predicate, Seen as SeenEvent},
    request::RequestKey,
};

/// Where a feed adds its keys, and how.
pub(crate) struct Target<R> {
    pub(crate) queue: WorkQueue<R>,
    /// The low priority.
    pub(crate) low_priority: i32,
    /// The number of the watch, in the order of declaration.
    pub(crate) source: usize,
    /// Where to queue events whose handler panicked.
    pub(crate) retries: Retries,
}

/// Chooses keys.
pub(crate) type Only<'a, R> = dyn Fn(&R) -> bool + Send + Sync + 'a;

/// A watched type with its informers, type-erased.
pub(crate) trait Feed<R>: Send + Sync {
    /// The watched resource.
    fn resource(&self) -> String;

    /// The status of each of its informers; at least one.
    fn statuses(&self) -> Vec<MemberStatus>;

    /// Waits until one of its informers has stopped.
    fn stopped(&self) -> BoxFuture<'static, ()>;

    /// Waits until its cache shows the writes to a namespace. `None` if it does already, or never
    /// will: it caches other namespaces or other objects, or it has stopped.
    fn await_writes(&self, namespace: &str, writes: &Writes) -> Option<BoxFuture<'static, ()>>;

    /// The cache whose clients' writes it shows; `None` if that is not known. Versions of different
    /// clusters are not comparable.
    fn cache(&self) -> Option<CacheId>;

    /// Cancelled when its cluster was removed from the manager.
    fn removed(&self) -> &CancellationToken;

    /// The cached objects at these versions.
    fn find_seen(&self, versions: &BTreeSet<u64>) -> BTreeMap<u64, Seen>;

    /// Starts to add keys.
    fn start(&self, target: Target<R>) -> Result<CacheRegistration, Stopped>;

    /// Handles the stored events of an object again whose handler panicked.
    fn retry(&self, target: &Target<R>, key: &Key);

    /// The panics of user functions, and the events they affected.
    fn panics(&self) -> PanicStatus;

    /// Adds the keys of all cached objects, filtered by `only`, in slices. Cancel safe: a dropped
    /// future adds no more.
    fn requeue<'a>(&'a self, target: Target<R>, only: &'a Only<'a, R>) -> BoxFuture<'a, ()>;
}

/// A watched type without an informer yet.
pub(crate) type Unbound<R> =
    Box<dyn FnOnce(Binding<'_>) -> Result<Arc<dyn Feed<R>>, IndexRefused> + Send>;

/// What a watch needs to become a feed.
pub(crate) struct Binding<'a> {
    /// The manager's client, over the cache of the watch.
    pub(crate) client: &'a Client,
    pub(crate) hold: Hold,
    /// The controller's filters, besides the watch's own.
    pub(crate) filters: Arc<[Predicate]>,
}

/// How long a watch keeps its type cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// As long as the cache lives.
    Pinned,
    /// As long as the watch lives.
    Leased,
}

/// The feed of a watch.
pub(super) struct WatchFeed<K: Cacheable, R> {
    pub(super) informer: CacheInformer<K>,
    pub(super) cache: Option<CacheId>,
    pub(super) removed: CancellationToken,
    /// Keeps the type cached, if the watch is leased.
    pub(super) _lease: Option<CacheLease<K>>,
    pub(super) rule: Arc<Rule<K, R>>,
}

/// Filters and handles the events of a watch.
pub(super) struct Rule<K, R> {
    pub(super) predicates: Vec<Predicate<K>>,
    pub(super) filters: Arc<[Predicate]>,
    pub(super) handler: Box<dyn EventHandler<K, R>>,
    pub(super) panics: Panics<K>,
}

impl<K: Cacheable, R: RequestKey> Rule<K, R> {
    /// Adds the keys of an event. If its handler panics, the event is stored for a retry.
    fn apply(&self, event: Event<K>, keys: &Enqueue<'_, R>, target: &Target<R>) {
        let admits = || {
            let seen = SeenEvent::of(&event);
            self.predicates.iter().all(|predicate| predicate.admits_seen(&seen))
                && self.filters.iter().all(|filter| filter.admits_seen(&seen))
        };
        // If a predicate panics, the event passes.
        if self.panics.catch("a predicate or filter", event.key(), admits).unwrap_or(true) {
            self.handle(event, keys, target);
        }
    }

    /// Returns whether the event is done: it does not wait for a retry.
    fn handle(&self, event: Event<K>, keys: &Enqueue<'_, R>, target: &Target<R>) -> bool {
        let handled = self.panics.catch("an event handler", event.key(), || {
            self.handler.handle(&event, keys);
        });
        let key = event.key().clone();
        let is_done = handled.is_some() || !self.panics.keep(event);
        if !is_done {
            target.retries.add_rate_limited((target.source, key));
        }
        is_done
    }
}

impl<K: Cacheable, R: RequestKey> Feed<R> for WatchFeed<K, R> {
    fn resource(&self) -> String {
        self.informer.resource_type().to_string()
    }

    fn statuses(&self) -> Vec<MemberStatus> {
        self.informer.member_statuses()
    }

    fn stopped(&self) -> BoxFuture<'static, ()> {
        let informer = self.informer.clone();
        async move { informer.stopped().await }.boxed()
    }

    fn await_writes(&self, namespace: &str, writes: &Writes) -> Option<BoxFuture<'static, ()>> {
        let informer = self.informer.of_namespace(namespace).ok()?;
        let (selection, lister) = (informer.selection(), informer.lister());
        let is_other = selection.namespace.as_deref().is_some_and(|of| of != namespace);
        if is_other || informer.has_stopped() {
            return None;
        }
        let version = match selection.is_whole() {
            true => Some(writes.newest),
            false => {
                writes.newest_of(|json| selection.matches(json), |key| lister.object(key).is_some())
            }
        };
        let reached = lister.resource_version().parse::<u64>().ok();
        let is_missing = |version: &u64| reached.is_none_or(|reached| reached < *version);
        let version = version.filter(|version| *version > 0 && is_missing(version));
        // Before it has the version, it may not have the object yet that is gone by now.
        let is_awaited = |gone: &&GoneObject| {
            version.is_some() || holds(&lister, &gone.key, &gone.uid, gone.up_to.as_deref())
        };
        let gone: Vec<_> = writes.gone().filter(is_awaited).cloned().collect();
        if version.is_none() && gone.is_empty() {
            return None;
        }
        // A cache that stops, or whose versions are not ordered, will never show it.
        let shown = async move {
            if let Some(version) = version {
                _ = lister.at_least(&version.to_string()).await;
            }
            for GoneObject { key, uid, up_to } in &gone {
                _ = shown_gone(&lister, key, uid, up_to.as_deref()).await;
            }
        };
        Some(shown.boxed())
    }

    fn cache(&self) -> Option<CacheId> {
        self.cache
    }

    fn removed(&self) -> &CancellationToken {
        &self.removed
    }

    fn find_seen(&self, versions: &BTreeSet<u64>) -> BTreeMap<u64, Seen> {
        find_seen(&self.informer.lister(), versions)
    }

    fn start(&self, target: Target<R>) -> Result<CacheRegistration, Stopped> {
        let rule = self.rule.clone();
        let handler = move |event: Event<K>| {
            let priority = priority_of(&event, target.low_priority);
            let cause = Cause::of_event(target.source, &event);
            let keys = Enqueue::new(&target.queue, priority, cause, None);
            rule.apply(event, &keys, &target);
        };
        self.informer.add_handler(handler, HandlerOptions::default())
    }

    fn requeue<'a>(&'a self, target: Target<R>, only: &'a Only<'a, R>) -> BoxFuture<'a, ()> {
        let requeue = async move {
            let (low, cause) = (target.low_priority, Cause::HandOver);
            let mut slices = Slices::default();
            for lister in self.informer.lister().listers() {
                for object in lister.snapshot().iter() {
                    // As for the initial list of a new handler.
                    let event = Event::Added { object, in_initial_list: true };
                    let keys = Enqueue::new(&target.queue, low, cause, Some(only));
                    self.rule.apply(event, &keys, &target);
                    slices.next().await;
                }
            }
        };
        requeue.boxed()
    }

    fn retry(&self, target: &Target<R>, key: &Key) {
        let events = self.rule.panics.take(key);
        let mut are_done = true;
        for event in events {
            let priority = priority_of(&event, target.low_priority);
            let cause = Cause::of_event(target.source, &event);
            let keys = Enqueue::new(&target.queue, priority, cause, None);
            are_done &= self.rule.handle(event, &keys, target);
        }
        if are_done {
            target.retries.forget(&(target.source, key.clone()));
        }
    }

    fn panics(&self) -> PanicStatus {
        self.rule.panics.status()
    }
}
