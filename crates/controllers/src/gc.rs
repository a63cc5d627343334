//! The garbage collector: what nobody owns any more is deleted.
//!
//! # Theory
//!
//! ```text
//!   one monitor per deletable resource ──▶ Graph (uid → owners, dependents) ──▶ WorkQueue of uids ──▶ workers
//!        (informer of metadata only)            pure data                                              │
//!   discovery: every 30 s, and at once when a CRD changes                        live reads and writes ◀┘
//! ```
//!
//! The graph only says *whom to look at*. Before it acts a worker reads the object and its owners from the server, and it
//! writes with uid and resourceVersion as preconditions, so that a stale graph costs a look and never an object.
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
//! Events are never collected. A reference to a kind that the server does not know keeps the object, and is tried again.

mod collect;
mod graph;
mod monitor;
mod reference;

use crate::api::{Api, Discovered, RequestError, Resource, discover};
use graph::{Graph, Uid};
use kube_client::Client;
use monitor::Monitor;
use parking_lot::Mutex;
use setpoint_workqueue::WorkQueue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often discovery is read again although nothing seems to have changed: 30 s, as the reference.
pub const REDISCOVER_PERIOD: Duration = Duration::from_secs(30);

/// How many objects are looked at at a time.
const WORKERS: usize = 4;

/// What monitors and workers share.
pub(crate) struct Shared {
    api: Api,
    graph: Mutex<Graph>,
    queue: WorkQueue<Uid>,
    discovered: Mutex<Arc<Discovered>>,
    /// A CRD changed: what is served may have.
    rediscover: Notify,
}

impl Shared {
    fn look_at(&self, uids: Vec<Uid>) {
        uids.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn discovered(&self) -> Arc<Discovered> {
        self.discovered.lock().clone()
    }
}

/// The garbage collector; nothing runs before [`GarbageCollector::run`].
#[must_use]
pub struct GarbageCollector {
    shared: Arc<Shared>,
}

impl GarbageCollector {
    /// A collector that works through `client`.
    pub fn new(client: Client) -> Self {
        let shared = Shared {
            api: Api::new(client, "generic-garbage-collector"),
            graph: Mutex::default(),
            queue: WorkQueue::builder().build(),
            discovered: Mutex::default(),
            rediscover: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Runs until `stop`. Nothing is deleted before every monitor has synced once. Dropping it stops everything at once.
    pub async fn run(self, stop: CancellationToken) {
        let shared = self.shared;
        let mut tasks = JoinSet::new();
        let mut monitors: BTreeMap<Resource, CancellationToken> = BTreeMap::new();
        let mut first_sync = Vec::new();
        let mut working = false;
        loop {
            match discover(&shared.api).await {
                Ok(discovered) => {
                    let started = follow(&shared, discovered, &mut monitors, &mut tasks, &stop);
                    if !working {
                        first_sync.extend(started);
                    }
                }
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "read what the server serves"
                ),
            }
            let synced = async {
                match working || first_sync.is_empty() {
                    true => std::future::pending().await,
                    false => all_synced(&first_sync).await,
                }
            };
            // Soon, until it works: a first look may have failed, and a type that cannot be listed may be gone.
            let pause = if working { REDISCOVER_PERIOD } else { Duration::from_secs(1) };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: it only looks.
                () = synced => {
                    working = true;
                    first_sync.clear();
                    for _ in 0..WORKERS {
                        tasks.spawn(work(shared.clone()));
                    }
                }
                // Cancel safe: a permit that was not taken stays.
                () = shared.rediscover.notified() => {}
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

/// Starts monitors of resources that are new and stops those of resources that are gone; returns the new ones.
fn follow(
    shared: &Arc<Shared>,
    discovered: Discovered,
    monitors: &mut BTreeMap<Resource, CancellationToken>,
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> Vec<Monitor> {
    let wanted: Vec<Resource> =
        discovered.resources.iter().filter(|resource| is_collected(resource)).cloned().collect();
    monitors.retain(|resource, stop| {
        let stays = wanted.contains(resource);
        if !stays {
            stop.cancel();
        }
        stays
    });
    *shared.discovered.lock() = Arc::new(discovered);
    let mut started = Vec::new();
    for resource in wanted {
        if monitors.contains_key(&resource) {
            continue;
        }
        let stop = stop.child_token();
        started.push(monitor::start(shared, &resource, tasks, stop.clone()));
        monitors.insert(resource, stop);
    }
    started
}

fn is_collected(resource: &Resource) -> bool {
    ["delete", "list", "watch"].iter().all(|verb| resource.serves(verb)) && resource.kind != "Event"
}

async fn all_synced(monitors: &[Monitor]) {
    for monitor in monitors {
        monitor.synced().await;
    }
}

async fn work(shared: Arc<Shared>) {
    while let Some(item) = shared.queue.get().await {
        let uid = item.key();
        match collect::look_at(&shared, uid).await {
            Ok(()) => shared.queue.forget(uid),
            Err(error) => {
                let conflict = matches!(&error, collect::CollectError::Request(error) if RequestError::is_conflict(error));
                if !conflict {
                    tracing::debug!(%uid, error = &error as &dyn std::error::Error, "looking again later");
                }
                shared.queue.add_rate_limited(uid.clone());
            }
        }
    }
}
