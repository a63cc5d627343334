//! The garbage collector: deletes objects whose owners are gone.
//!
//! # Theory
//!
//! ```text
//!   server in this process: one feed of all objects ──┐
//!   remote server: one metadata informer a resource ──┴▶ Graph ──▶ WorkQueue of uids ──▶ workers
//!     (discovery: at most 30 s old, and                  uid → owners, dependents            │
//!      asked anew when a CRD changes)                               live reads and writes ◀──┘
//! ```
//!
//! With a feed, discovery is read when an object is looked at: where nothing is collected, nothing
//! is asked or kept.
//!
//! The graph only says which objects to look at. Before it acts a worker reads the object and its
//! owners from the server, and it writes with uid and resourceVersion as preconditions, so that a
//! stale graph costs a look and never an object.
//!
//! | the live object | what happens |
//! |---|---|
//! | is gone, or has another uid | the graph forgets it; its dependents are looked at |
//! | is being deleted, finalizer `orphan` | its dependents lose their reference, then it loses the finalizer |
//! | is being deleted, finalizer `foregroundDeletion` | its dependents are looked at; when none is left that blocks, it loses the finalizer |
//! | has an owner that exists | references to others are removed |
//! | has only owners that wait for it, and dependents of its own | it is deleted in the foreground |
//! | has references and no owner | it is deleted |
//!
//! A resource that cannot be listed delays nothing else: workers start once every resource has been
//! listed, or its list has been refused, or has failed for 30 s.
//!
//! Events are never collected. A reference to a kind that the server does not know keeps the
//! object, and is tried again.

mod collect;
mod feed;
mod graph;
mod monitor;
mod reference;

use crate::api::{Api, Discovered, RequestError, Resource, discover};
pub use feed::{ObjectFeed, Told};

use feed::Feed;
use graph::{Coordinates, Graph, Observation, OwnerReference, Uid};
use kube_client::Client;
use monitor::Monitor;
use parking_lot::Mutex;
use setpoint_object::{Skim, seed};
use setpoint_workqueue::WorkQueue;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often discovery is read again although nothing seems to have changed: 30 s, as the
/// reference.
pub const REDISCOVER_PERIOD: Duration = Duration::from_secs(30);

/// How long the collector waits at start for resources whose list fails for a reason other than a
/// refusal.
///
/// 30 s, as kube-controller-manager's initial sync timeout. The others are collected without them
/// after that.
pub const FIRST_LISTS_MAX: Duration = Duration::from_secs(30);

/// The pause before discovery is read again at the earliest: what asks for it may come in
/// thousands.
const REDISCOVER_PAUSE: Duration = Duration::from_millis(100);

/// How many objects are looked at at a time.
const WORKERS: usize = 4;

/// The finalizer of a deletion that waits for dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that leaves dependents alone.
const ORPHAN: &str = "orphan";

/// What monitors and workers share.
pub(crate) struct Shared {
    api: Api,
    graph: Mutex<Graph>,
    queue: WorkQueue<Uid>,
    served: Mutex<Served>,
    /// A CRD changed: what is served may have.
    rediscover: Notify,
    seed: u64,
}

/// What the server serves, as far as it is known.
#[derive(Debug, Default)]
struct Served {
    discovered: Option<Arc<Discovered>>,
    /// Counts how often what was known was forgotten.
    n_forgotten: u64,
}

impl Shared {
    /// A resource's share of the seed: watches of different resources end at different times.
    fn seed_of(&self, resource: &Resource) -> u64 {
        use std::hash::{DefaultHasher, Hasher};
        let mut hasher = DefaultHasher::new();
        hasher.write(resource.api_version().as_bytes());
        hasher.write(resource.resource.as_bytes());
        self.seed ^ hasher.finish()
    }

    fn look_at(&self, uids: Vec<Uid>) {
        uids.into_iter().for_each(|uid| self.queue.add(uid));
    }

    /// What the server serves; asks it unless that is known.
    ///
    /// # Errors
    ///
    /// Discovery cannot be read.
    async fn discovered(&self) -> Result<Arc<Discovered>, RequestError> {
        let n_forgotten = {
            let served = self.served.lock();
            if let Some(discovered) = &served.discovered {
                return Ok(discovered.clone());
            }
            served.n_forgotten
        };
        let discovered = Arc::new(self.discover().await?);
        let mut served = self.served.lock();
        // Unless it may be older than what made it be forgotten.
        if served.n_forgotten == n_forgotten {
            served.discovered = Some(discovered.clone());
        }
        Ok(discovered)
    }

    /// Reads discovery. Boxed: it is large, and seldom under way.
    async fn discover(&self) -> Result<Discovered, RequestError> {
        Box::pin(discover(&self.api)).await
    }

    fn forget_served(&self) {
        let mut served = self.served.lock();
        served.discovered = None;
        served.n_forgotten += 1;
    }

    /// Takes in an object as it is now.
    fn observe(&self, api_version: &Arc<str>, kind: &Arc<str>, skim: &Skim<'_>) {
        self.changed_type(kind);
        if is_collected_kind(kind) {
            let look_at = self.graph.lock().observe(observation(api_version, kind, skim));
            self.look_at(look_at);
        }
    }

    /// Takes in that an object is gone.
    fn forget(&self, uid: &str, kind: &str) {
        self.changed_type(kind);
        let look_at = self.graph.lock().forget(uid);
        self.look_at(look_at);
    }

    /// Takes in that only these objects exist.
    fn forget_others(&self, present: &HashSet<Uid>) {
        let gone: Vec<Uid> = {
            let graph = self.graph.lock();
            graph.all_seen().filter(|uid| !present.contains(*uid)).cloned().collect()
        };
        for uid in gone {
            let look_at = self.graph.lock().forget(&uid);
            self.look_at(look_at);
        }
    }

    fn changed_type(&self, kind: &str) {
        if kind == "CustomResourceDefinition" {
            self.rediscover.notify_one();
        }
    }
}

fn is_collected_kind(kind: &str) -> bool {
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

/// The garbage collector; nothing runs before [`GarbageCollector::run`].
#[must_use]
pub struct GarbageCollector {
    client: Client,
    seed: u64,
    feed: Option<Feed>,
}

impl GarbageCollector {
    /// A collector that works through `client` and watches every resource that can be deleted, by
    /// metadata.
    pub fn new(client: Client) -> Self {
        Self { client, seed: seed::from_entropy(), feed: None }
    }

    /// The seed of all chance, for a simulation. Default: the operating system's randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Learns of objects from `feed` instead of watching each resource: for a server in the same
    /// process.
    pub fn feed(mut self, feed: impl ObjectFeed) -> Self {
        self.feed = Some(Feed::new(feed));
        self
    }

    /// Runs until `stop`. Nothing is deleted before every resource has been listed once, as far as
    /// it can be. Dropping it stops everything at once.
    pub async fn run(self, stop: CancellationToken) {
        let Self { client, seed, feed } = self;
        let shared = Arc::new(Shared {
            api: Api::new(client, "generic-garbage-collector"),
            graph: Mutex::default(),
            queue: WorkQueue::builder().build(),
            served: Mutex::default(),
            rediscover: Notify::new(),
            seed,
        });
        let mut tasks = JoinSet::new();
        let mut watches = match feed {
            Some(feed) => {
                let (synced, is_synced) = watch::channel(false);
                let (shared, stop) = (shared.clone(), stop.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        // Cancel safe: the graph ends with the collector.
                        () = feed.follow(shared, synced) => {}
                        () = stop.cancelled() => {}
                    }
                });
                Watches::Feed(is_synced)
            }
            None => Watches::Monitors {
                running: BTreeMap::new(),
                unsettled: Vec::new(),
                settle_by: Instant::now() + FIRST_LISTS_MAX,
            },
        };
        let mut is_discovered = matches!(watches, Watches::Feed(_));
        let mut is_working = false;
        loop {
            match &watches {
                // Read again when an object is looked at.
                Watches::Feed(_) => shared.forget_served(),
                Watches::Monitors { .. } => match shared.discover().await {
                    Ok(discovered) => {
                        watches.follow(&shared, &discovered, &mut tasks, &stop);
                        shared.served.lock().discovered = Some(Arc::new(discovered));
                        is_discovered = true;
                    }
                    Err(error) => tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "read what the server serves"
                    ),
                },
            }
            let settled = async {
                match is_working || !is_discovered {
                    true => std::future::pending().await,
                    false => watches.settled().await,
                }
            };
            // Soon, until it works: a first look may have failed.
            let pause = if is_working { REDISCOVER_PERIOD } else { Duration::from_secs(1) };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: it only looks.
                () = settled => {
                    is_working = true;
                    for _ in 0..WORKERS {
                        tasks.spawn(work(shared.clone()));
                    }
                }
                // Cancel safe: a permit that was not taken stays.
                () = shared.rediscover.notified() => {
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(REDISCOVER_PAUSE) => {}
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
        shared.queue.shut_down();
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the garbage collector panicked");
            }
        }
    }
}

/// How the graph learns of objects.
enum Watches {
    /// By one feed; whether it has told everything that existed.
    Feed(watch::Receiver<bool>),
    /// By a monitor for each resource.
    Monitors {
        running: BTreeMap<Resource, CancellationToken>,
        /// Those not known to have settled.
        unsettled: Vec<(Resource, Monitor)>,
        /// When the others begin without them.
        settle_by: Instant,
    },
}

impl Watches {
    /// Starts monitors of resources that are new and stops those of resources that are gone.
    fn follow(
        &mut self,
        shared: &Arc<Shared>,
        discovered: &Discovered,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let Self::Monitors { running, unsettled, .. } = self else { return };
        let wanted: BTreeSet<&Resource> =
            discovered.resources.iter().filter(|resource| is_collected(resource)).collect();
        running.retain(|resource, stop| {
            let stays = wanted.contains(resource);
            if !stays {
                stop.cancel();
            }
            stays
        });
        unsettled.retain(|(resource, _)| wanted.contains(resource));
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

    /// Waits until every object that can be known is. Dropping it loses nothing.
    async fn settled(&mut self) {
        match self {
            // A feed that ended before is a server that ended.
            Self::Feed(is_synced) => drop(is_synced.wait_for(|synced| *synced).await),
            Self::Monitors { unsettled, settle_by, .. } => {
                let settled = async {
                    while let Some((_, monitor)) = unsettled.last_mut() {
                        monitor.settled().await;
                        unsettled.pop();
                    }
                };
                if tokio::time::timeout_at(*settle_by, settled).await.is_err() {
                    let names: Vec<_> = unsettled.iter().map(|(r, _)| r.dotted()).collect();
                    tracing::warn!(resources = ?names, "not listed yet: collecting without them");
                }
            }
        }
    }
}

fn is_collected(resource: &Resource) -> bool {
    ["delete", "list", "watch"].iter().all(|verb| resource.serves(verb))
        && is_collected_kind(&resource.kind)
}

async fn work(shared: Arc<Shared>) {
    while let Some(item) = shared.queue.get().await {
        let uid = item.key();
        // Boxed: a worker that waits for work is small.
        match Box::pin(collect::look_at(&shared, uid)).await {
            Ok(()) => shared.queue.forget(uid),
            Err(error) => {
                if matches!(&error, collect::CollectError::UnknownKind { .. }) {
                    // It may be served since.
                    shared.rediscover.notify_one();
                }
                let conflict = matches!(&error, collect::CollectError::Request(error) if RequestError::is_conflict(error));
                if !conflict {
                    tracing::debug!(%uid, error = &error as &dyn std::error::Error, "looking again later");
                }
                shared.queue.add_rate_limited(uid.clone());
            }
        }
    }
}
