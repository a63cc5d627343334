//! The garbage collector: deletes objects whose owners are gone.
//!
//! # Theory
//!
//! ```text
//! server in this process: one feed of all objects ────┐
//!                                                     ├─▶ Graph ─▶ WorkQueue of uids ─▶ workers
//! remote server: one metadata informer per resource ──┘   (uid → owners, dependents)       │
//!                                                                                          ▼
//! discovery: at most 30 s old, read again when a CRD changes        live reads and writes
//! ```
//!
//! With a feed, discovery is read when an object is processed. While there is nothing to collect,
//! the collector sends no requests and caches no discovery. Group versions of extension servers are
//! not in the feed: it has their APIServices, so their resources have informers as on a remote
//! server.
//!
//! The graph only determines which objects to process. Before a worker acts, it reads the object
//! and its owners from the server, and it writes with uid and resourceVersion as preconditions. A
//! stale graph can therefore cause an unnecessary read, but never the loss of an object.
//!
//! | the live object | what happens |
//! |---|---|
//! | is gone, or has another uid | it is removed from the graph; its dependents are processed |
//! | is being deleted, finalizer `orphan` | its dependents lose their reference to it, then it loses the finalizer |
//! | is being deleted, finalizer `foregroundDeletion` | its dependents are processed; when no blocking one remains, it loses the finalizer |
//! | has an owner that exists | its references to other owners are removed |
//! | has only owners that wait for it, and dependents of its own | it is deleted in the foreground |
//! | has references and no owner | it is deleted |
//!
//! A resource that cannot be listed does not delay the others: workers start once every resource
//! has been listed, has been refused, or has failed for 30 s.
//!
//! Events are never collected. An object whose owner reference names an unknown kind is not
//! deleted, unless that owner was seen to be deleted; it is retried. So is one whose owner is an
//! extension server's, unless that server says that the owner is gone: a server that is away, or
//! whose APIService is deleted, loses nothing.

mod collect;
mod elsewhere;
mod feed;
mod graph;
mod monitor;
mod reference;

use crate::api::{Api, Discovered, RequestError, Resource, discover};
pub use feed::{ObjectEvent, ObjectFeed};

use elsewhere::ExtensionGroups;
use feed::Feed;
use graph::{Coordinates, Graph, Observation, OwnerReference, Uid};
use kube_client::Client;
use monitor::Monitor;
use parking_lot::Mutex;
use setpoint_object::error::chain;
use setpoint_object::{Skim, seed};
use setpoint_workqueue::WorkQueue;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval at which discovery is read again if nothing seems to have changed: 30 s, as in the
/// reference.
pub const REDISCOVER_PERIOD: Duration = Duration::from_secs(30);

/// How long the collector waits at start for resources whose list fails for a reason other than a
/// refusal.
///
/// 30 s, as kube-controller-manager's initial sync timeout. After that, collection starts without
/// these resources.
pub const FIRST_LISTS_MAX: Duration = Duration::from_secs(30);

/// Minimum pause between two reads of discovery. Thousands of events can request one at once.
const REDISCOVER_PAUSE: Duration = Duration::from_millis(100);

/// Number of objects that are processed at the same time.
const WORKERS: usize = 4;

/// The finalizer of a deletion that waits for dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that leaves dependents alone.
const ORPHAN: &str = "orphan";

/// State shared by monitors and workers.
pub(crate) struct Shared {
    api: Api,
    graph: Mutex<Graph>,
    queue: WorkQueue<Uid>,
    served: Mutex<Served>,
    /// Group versions whose objects are not in the feed.
    elsewhere: Mutex<ExtensionGroups>,
    /// Notified when a CRD or an APIService changes, because the served resources may have changed.
    rediscover: Notify,
    seed: u64,
}

/// The discovered resources, if they are cached.
#[derive(Debug, Default)]
struct Served {
    discovered: Option<Arc<Discovered>>,
    /// Incremented each time the cache is invalidated.
    n_invalidations: u64,
}

impl Shared {
    /// A seed for one resource, so that watches of different resources end at different times.
    fn seed_of(&self, resource: &Resource) -> u64 {
        use std::hash::{DefaultHasher, Hasher};
        let mut hasher = DefaultHasher::new();
        hasher.write(resource.api_version().as_bytes());
        hasher.write(resource.resource.as_bytes());
        self.seed ^ hasher.finish()
    }

    fn enqueue(&self, uids: Vec<Uid>) {
        uids.into_iter().for_each(|uid| self.queue.add(uid));
    }

    /// The served resources: cached, or read from the server.
    ///
    /// # Errors
    ///
    /// If discovery cannot be read.
    async fn discovered(&self) -> Result<Arc<Discovered>, RequestError> {
        let n_invalidations = {
            let served = self.served.lock();
            if let Some(discovered) = &served.discovered {
                return Ok(discovered.clone());
            }
            served.n_invalidations
        };
        let discovered = Arc::new(self.discover().await?);
        let mut served = self.served.lock();
        // Not cached if it was invalidated during the read.
        if served.n_invalidations == n_invalidations {
            served.discovered = Some(discovered.clone());
        }
        Ok(discovered)
    }

    /// Reads discovery. Boxed, because its future is large and seldom in use.
    async fn discover(&self) -> Result<Discovered, RequestError> {
        Box::pin(discover(&self.api)).await
    }

    fn invalidate_discovery(&self) {
        let mut served = self.served.lock();
        served.discovered = None;
        served.n_invalidations += 1;
    }

    /// Adds or updates an object in the graph.
    fn observe(&self, api_version: &Arc<str>, kind: &Arc<str>, skim: &Skim<'_>) {
        self.changed_type(kind);
        if is_collectable_kind(kind) {
            let to_process = self.graph.lock().observe(observation(api_version, kind, skim));
            self.enqueue(to_process);
        }
    }

    /// Removes an object from the graph.
    fn forget(&self, uid: &str, kind: &str) {
        self.changed_type(kind);
        let to_process = self.graph.lock().forget(uid);
        self.enqueue(to_process);
    }

    /// Removes the objects of a kind from the graph that are not present.
    fn forget_absent(
        &self,
        api_version: &str,
        kind: &str,
        is_present: impl Fn(&Uid, &Coordinates) -> bool,
    ) {
        let mut known: Vec<(Uid, Coordinates)> = {
            let graph = self.graph.lock();
            let is_of_kind =
                |of: &&Coordinates| &*of.api_version == api_version && &*of.kind == kind;
            let observed = graph.all_observed();
            let of_kind = observed.filter_map(|uid| {
                let coordinates = graph.coordinates(uid).filter(is_of_kind)?;
                Some((uid.clone(), coordinates.clone()))
            });
            of_kind.collect()
        };
        // The graph has no order.
        known.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (uid, _) in known.iter().filter(|(uid, of)| !is_present(uid, of)) {
            self.forget(uid, kind);
        }
    }

    /// Removes all objects from the graph except these, and those that the feed does not have.
    fn forget_others(&self, present: &HashSet<Uid>) {
        let elsewhere = {
            let mut elsewhere = self.elsewhere.lock();
            elsewhere.retain(present);
            elsewhere.clone()
        };
        let mut gone: Vec<Uid> = {
            let graph = self.graph.lock();
            let is_elsewhere =
                |uid: &Uid| graph.coordinates(uid).is_some_and(|of| elsewhere.has(&of.api_version));
            let gone = graph.all_observed().filter(|uid| !present.contains(*uid));
            gone.filter(|uid| !is_elsewhere(uid)).cloned().collect()
        };
        // The graph has no order.
        gone.sort_unstable();
        for uid in gone {
            let to_process = self.graph.lock().forget(&uid);
            self.enqueue(to_process);
        }
    }

    fn changed_type(&self, kind: &str) {
        if kind == "CustomResourceDefinition" {
            self.rediscover.notify_one();
        }
    }

    /// Whether a failed read means that the object does not exist. A 404 of the path alone does not
    /// if it is an extension server's: that is being removed, or is another one now, and nothing
    /// would tell of the object again.
    fn means_absent(&self, error: &RequestError, resource: &Resource, name: &str) -> bool {
        error.is_absence_of(name)
            || error.is_not_found() && !self.elsewhere.lock().had(&resource.api_version())
    }

    /// An APIService of the feed exists, or was deleted: `None`.
    fn observe_service(&self, uid: &str, object: Option<&[u8]>) {
        let mut elsewhere = self.elsewhere.lock();
        // Also a status that changes: the server may be known by now.
        let is_known = elsewhere.put(uid, object);
        if is_known {
            drop(elsewhere);
            self.invalidate_discovery();
            self.rediscover.notify_one();
        }
    }
}

fn is_collectable_kind(kind: &str) -> bool {
    kind != "Event"
}

fn observation(api_version: &Arc<str>, kind: &Arc<str>, skim: &Skim<'_>) -> Observation {
    let has = |wanted: &str| skim.finalizers.iter().any(|finalizer| finalizer == wanted);
    Observation {
        uid: (&*skim.uid).into(),
        coordinates: Coordinates {
            api_version: api_version.clone(),
            kind: kind.clone(),
            namespace: (&*skim.namespace).into(),
            name: (&*skim.name).into(),
        },
        owners: skim
            .owner_references
            .iter()
            .map(|owner| OwnerReference {
                api_version: (&*owner.api_version).into(),
                kind: (&*owner.kind).into(),
                name: (&*owner.name).into(),
                uid: (&*owner.uid).into(),
                block_owner_deletion: owner.block_owner_deletion,
            })
            .collect(),
        deleting: !skim.deletion_timestamp.is_empty(),
        foreground: has(FOREGROUND),
        orphan: has(ORPHAN),
    }
}

/// The garbage collector. Does nothing until [`GarbageCollector::run`].
#[must_use]
pub struct GarbageCollector {
    client: Client,
    seed: u64,
    feed: Option<Feed>,
}

impl fmt::Debug for GarbageCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GarbageCollector").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl GarbageCollector {
    /// Creates a collector that uses `client` and watches the metadata of every resource that can
    /// be deleted.
    pub fn new(client: Client) -> Self {
        Self { client, seed: seed::from_entropy(), feed: None }
    }

    /// Whether an encoded object needs a collector: it has owners, waits for one to handle its
    /// dependents, or registers an extension server, whose objects may. A server without such an
    /// object has nothing to collect.
    pub fn is_concerned(object: &[u8]) -> bool {
        // Most objects have none of these words, and are not read.
        const WORDS: [&[u8]; 3] = [b"\"ownerReferences\"", b"\"finalizers\"", b"\"APIService\""];
        let has = |word: &&[u8]| memchr::memmem::find(object, word).is_some();
        if object.starts_with(b"{") && !WORDS.iter().any(has) {
            return false;
        }
        let awaits = |finalizer: &str| finalizer == FOREGROUND || finalizer == ORPHAN;
        // The collector reports what it cannot read.
        Skim::of(object).map_or(true, |skim| {
            !skim.owner_references.is_empty()
                || skim.finalizers.iter().any(|name| awaits(name))
                || elsewhere::is_service(&skim) && elsewhere::group_version(object).is_some()
        })
    }

    /// The seed for all randomness, for simulations. Default: the operating system's randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Reads objects from `feed` instead of watching each resource. For a server in the same
    /// process.
    pub fn feed(mut self, feed: impl ObjectFeed) -> Self {
        self.feed = Some(Feed::new(feed));
        self
    }

    /// Runs until `stop`. Deletes nothing until every resource that can be listed has been listed
    /// once. Dropping it stops everything at once.
    pub async fn run(self, stop: CancellationToken) {
        let Self { client, seed, feed } = self;
        let shared = Arc::new(Shared {
            api: Api::new(client, "generic-garbage-collector"),
            graph: Mutex::default(),
            queue: WorkQueue::builder().build(),
            served: Mutex::default(),
            elsewhere: Mutex::default(),
            rediscover: Notify::new(),
            seed,
        });
        let mut tasks = JoinSet::new();
        let feed = feed.map(|feed| follow_feed(feed, &shared, &mut tasks, &stop));
        let mut watches = Watches {
            feed,
            running: BTreeMap::new(),
            unsettled: Vec::new(),
            settle_by: Instant::now() + FIRST_LISTS_MAX,
        };
        let (mut is_discovered, mut is_working) = (false, false);
        // How often discovery did not have a server that is away.
        let mut n_stale = 0_u32;
        loop {
            let elsewhere = watches.feed.is_some().then(|| shared.elsewhere.lock().clone());
            if elsewhere.as_ref().is_some_and(ExtensionGroups::is_empty) {
                // The feed has everything. Discovery is read when the next object is processed.
                watches.follow(&shared, &Discovered::default(), None, &mut tasks, &stop);
                shared.invalidate_discovery();
                (is_discovered, n_stale) = (true, 0);
            } else {
                match shared.discover().await {
                    Ok(discovered) => {
                        let elsewhere = elsewhere.as_ref();
                        watches.follow(&shared, &discovered, elsewhere, &mut tasks, &stop);
                        let is_stale =
                            elsewhere.is_some_and(|known| !known.are_all_current(&discovered));
                        n_stale = if is_stale { n_stale.saturating_add(1) } else { 0 };
                        shared.served.lock().discovered = Some(Arc::new(discovered));
                        is_discovered = true;
                    }
                    Err(error) => {
                        tracing::warn!(error = chain(&error), "read discovery")
                    }
                }
            }
            let settled = async {
                match is_working || !is_discovered {
                    true => std::future::pending().await,
                    false => watches.settled().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Before the workers start: a feed reports extension servers before it has synced.
                // Cancel safe: a permit that was not taken remains.
                () = shared.rediscover.notified() => {
                    n_stale = 0;
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(REDISCOVER_PAUSE) => {}
                    }
                }
                // Cancel safe: it only waits for a state.
                () = settled => {
                    is_working = true;
                    for _ in 0..WORKERS {
                        tasks.spawn(work(shared.clone()));
                    }
                }
                () = tokio::time::sleep(pause(is_working, n_stale)) => {}
            }
        }
        shared.queue.shut_down();
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(error = chain(&error), "a part of the garbage collector panicked");
            }
        }
    }
}

/// Starts to follow the feed. What is returned becomes true once all existing objects have been
/// observed.
fn follow_feed(
    feed: Feed,
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> watch::Receiver<bool> {
    let (synced, is_synced) = watch::channel(false);
    let (shared, stop) = (shared.clone(), stop.clone());
    tasks.spawn(async move {
        tokio::select! {
            biased;
            // Cancel safe: the graph is dropped together with the collector.
            () = stop.cancelled() => {}
            () = feed.follow(shared, synced) => {}
        }
    });
    is_synced
}

/// How long discovery is good for. It is read again soon until it works: the first read may have
/// failed, and the documents of an extension server come a moment after it is available. `n_stale`:
/// how often they were missing.
fn pause(is_working: bool, n_stale: u32) -> Duration {
    match (is_working, n_stale) {
        (false, _) => Duration::from_secs(1),
        (true, 0) => REDISCOVER_PERIOD,
        (true, n) => (REDISCOVER_PAUSE * 2_u32.pow(n.min(9))).min(REDISCOVER_PERIOD),
    }
}

/// The sources of the graph's events: a feed, and a monitor for each resource that it does not
/// have.
struct Watches {
    /// Becomes true once all existing objects have been observed. `None`: there is no feed.
    feed: Option<watch::Receiver<bool>>,
    running: BTreeMap<Resource, CancellationToken>,
    /// Monitors that are not known to have settled.
    unsettled: Vec<(Resource, Monitor)>,
    /// When collection starts without the unsettled monitors.
    settle_by: Instant,
}

impl Watches {
    /// Starts monitors for new resources and stops those of removed resources. `elsewhere`: only
    /// for resources of these group versions. Resources of a version that could not be read stay.
    fn follow(
        &mut self,
        shared: &Arc<Shared>,
        discovered: &Discovered,
        elsewhere: Option<&ExtensionGroups>,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let Self { running, unsettled, .. } = self;
        let is_followed = |resource: &&Resource| {
            is_collectable(resource)
                && elsewhere.is_none_or(|known| known.has(&resource.api_version()))
        };
        let wanted: BTreeSet<&Resource> = discovered.resources.iter().filter(is_followed).collect();
        let is_stale = |resource: &Resource| discovered.stale.contains(&resource.api_version());
        running.retain(|resource, stop| {
            let stays = wanted.contains(resource) || is_stale(resource);
            if !stays {
                stop.cancel();
            }
            stays
        });
        unsettled.retain(|(resource, _)| running.contains_key(resource));
        for resource in wanted {
            if running.contains_key(resource) {
                continue;
            }
            let stop = stop.child_token();
            let monitor = monitor::start(shared, resource, tasks, stop.clone());
            unsettled.push((resource.clone(), monitor));
            running.insert(resource.clone(), stop);
        }
    }

    /// Waits until every object that can be listed has been observed. Dropping it loses nothing.
    async fn settled(&mut self) {
        if let Some(is_synced) = &mut self.feed {
            // A feed that ends before it is synced belongs to a server that has ended.
            drop(is_synced.wait_for(|synced| *synced).await);
        }
        let unsettled = &mut self.unsettled;
        let settled = async {
            while let Some((_, monitor)) = unsettled.last_mut() {
                monitor.settled().await;
                unsettled.pop();
            }
        };
        if tokio::time::timeout_at(self.settle_by, settled).await.is_err() {
            let names: Vec<_> = self.unsettled.iter().map(|(r, _)| r.dotted()).collect();
            tracing::warn!(resources = ?names, "not listed yet: starting without these resources");
        }
    }
}

fn is_collectable(resource: &Resource) -> bool {
    ["delete", "list", "watch"].iter().all(|verb| resource.serves(verb))
        && is_collectable_kind(&resource.kind)
}

async fn work(shared: Arc<Shared>) {
    while let Some(item) = shared.queue.get().await {
        let uid = item.key();
        // Boxed, so that a worker that waits for work is small.
        match Box::pin(collect::process(&shared, uid)).await {
            // No event will report its end: its resource is not watched yet, or cannot be.
            Ok(()) if shared.graph.lock().is_virtual(uid) => {
                shared.queue.add_rate_limited(uid.clone());
            }
            Ok(()) => shared.queue.forget(uid),
            Err(error) => {
                if matches!(&error, collect::CollectError::UnknownKind { .. }) {
                    // The kind may be served by now.
                    shared.rediscover.notify_one();
                }
                let conflict = matches!(&error, collect::CollectError::Request(error) if RequestError::is_conflict(error));
                if !conflict {
                    tracing::debug!(%uid, error = chain(&error), "retrying later");
                }
                shared.queue.add_rate_limited(uid.clone());
            }
        }
    }
}
