//! The watch cache: for each resource an ordered index of current bytes and a bounded window of
//! events, fed by the store's change feed.
//!
//! # Theory
//!
//! One task ([`WatchCache::run`]) reads one change feed over everything and is the only writer. It
//! applies each batch to the caches of the resources in it, with one lock per resource, and then
//! publishes its progress:
//!
//! ```text
//! store ── feed ──▶ run ──▶ ResourceCache { index, window } ──┬──▶ LIST  (a snapshot of the index)
//!                    │                                        └──▶ WATCH (a position in the window)
//!                    └────▶ reached: every change up to here is in
//! ```
//!
//! - An [`Item`] is an object at one revision: the stored bytes without any derived form. Index and
//!   window share it. A LIST splices in the resourceVersion for itself. An event is encoded once
//!   for all watchers, and cached with its [`Change`] while that is in the window.
//! - A watcher has no buffer here and no task: it has a position, and takes the changes after it
//!   when it is polled. The window is the shared buffer of all watchers. A change wakes only the
//!   watchers that it may concern (see `fanout`). If a change that a watcher has not taken leaves
//!   the window, the watch ends; it never skips events. An idle watcher costs nothing besides the
//!   window, which is bounded. One that has not sent its initial objects yet holds a snapshot of
//!   the index for as long as its position is in the window, and ends after that.
//! - `reached` is published after the batch is applied. A reader that sees `reached = r` before it
//!   takes a resource's lock finds every change of the resource up to `r`, and perhaps later ones.
//!   The state that it sees is the resource's state at the later of `r` and the last change that it
//!   finds.
//! - A version that needs a conversion that may wait has its own index and window, fed by those of
//!   the stored version (see `view`). Conversion runs outside any lock, and never delays the stored
//!   version.
//! - It is filled from several ranges of keys at once, each by a task of its own. The result does
//!   not depend on which ends first.
//! - When the feed breaks, every watch ends and the cache is filled again; its history starts over.
//! - At start it may be filled with the state of some revisions ago and take the changes since then
//!   from the feed, so that watches from before a restart continue. Nothing is served before it has
//!   reached the present.
//!
//! A key names its resource ([`keys`]), so the cache needs no catalog. The only thing to do for
//! CRDs is to call [`WatchCache::close_watches`] when one changes, and [`WatchCache::retire`] when
//! one is deleted.
mod change;
mod event;
mod fanout;
mod field_values;
mod fill;
mod index;
mod interest;
mod item;
mod objects;
mod resource;
mod signal;
mod view;
mod window;

pub(crate) use change::{Change, event_of};
pub(crate) use event::Meter;
pub use event::{Event, EventKind};
pub(crate) use index::Index;
pub(crate) use interest::{Field, Interest, Term};
pub(crate) use item::{Item, LONG_BYTES_MIN, SKIM_COST, look_through};
pub use objects::{
    MAILBOX_BYTES_MAX, MAILBOX_CHANGES_MAX, ObjectChange, ObjectChanges, StoredObject,
};
pub(crate) use resource::{ResourceCache, Snapshot, Taken, Watcher};
pub use signal::ChangeSignal;
pub use view::VIEW_BYTES_MAX;
pub(crate) use view::{ViewReader, serve};

use fill::Filled;
use objects::Mailboxes;
use resource::WatcherId;
use setpoint_object::error::chain;
use view::View;

use crate::catalog::Resource;
use crate::conversion::Converter;
use crate::fifo_watch::FifoWatch;
use crate::threads::Threads;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use setpoint_object::{ApiError, keys};
use setpoint_store::{Batch, ChangeFeed, Revision, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum period between two trims of resources that do not change, done when any resource
/// changes. Shorter if history is shorter.
const TRIM_PERIOD: Duration = Duration::from_secs(30);
/// The pause before the cache retries a store that is unavailable.
///
/// One second, as the first backoff of the reflector that fills kube-apiserver's cache.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// How long a read waits for the cache or the store to reach its revision.
///
/// Three seconds, as kube-apiserver's `blockTimeout`; then the client is asked to retry.
pub(crate) const FRESH_TIMEOUT: Duration = Duration::from_secs(3);

/// The progress of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reached {
    /// Every change up to this revision is in the cache.
    pub(crate) revision: u64,
    /// The cache is filled and follows the store.
    pub(crate) is_filled: bool,
    /// The cache is stopped: no more changes follow.
    pub(crate) is_stopped: bool,
}

/// The watch caches of every resource, by storage prefix.
#[derive(Debug)]
pub(crate) struct WatchCache {
    shared: Arc<Shared>,
}
#[derive(Debug)]
struct Shared {
    /// How long changes are kept.
    history: Duration,
    /// Maximum bytes of converted objects per view.
    view_bytes_max: usize,
    resources: RwLock<Resources>,
    views: Mutex<Views>,
    /// There are views whose tasks are not started yet.
    has_new_views: Notify,
    /// The mailboxes of readers of all resources.
    mailboxes: Mailboxes,
    reached: Arc<FifoWatch<Reached>>,
}
#[derive(Debug, Default)]
struct Resources {
    by_prefix: BTreeMap<Arc<str>, Arc<ResourceCache>>,
    /// Resources whose definitions are deleted. They are dropped when nobody reads them and their
    /// history is too old.
    gone: BTreeSet<Arc<str>>,
    /// The history of a resource that is not here starts at this revision: that of the last fill,
    /// or the newest one of a resource that was dropped.
    from: u64,
    is_stopped: bool,
}

impl Resources {
    /// Drops resources of deleted definitions.
    fn drop_gone(&mut self) {
        let Self { by_prefix, gone, from, .. } = self;
        gone.retain(|prefix| {
            let Some(resource) = by_prefix.get(prefix) else { return false };
            // Others get it from here only, so nobody else has it, and nobody can get it now.
            if Arc::strong_count(resource) > 1 || !resource.is_blank() {
                return true;
            }
            *from = (*from).max(resource.newest());
            by_prefix.remove(prefix);
            false
        });
    }
}

/// The views that are being read: one per version that needs a conversion that may wait.
#[derive(Debug, Default)]
struct Views {
    all: Vec<Arc<View>>,
    /// Views whose tasks are not started yet.
    new: Vec<Arc<View>>,
    is_stopped: bool,
}

impl WatchCache {
    /// An empty cache that keeps changes for `history`, and at most `view_bytes_max` bytes of
    /// converted objects per version.
    pub(crate) fn new(history: Duration, view_bytes_max: usize) -> Self {
        let (resources, views, reached) = (RwLock::default(), Mutex::default(), Arc::default());
        let (has_new_views, mailboxes) = (Notify::new(), Mailboxes::default());
        Self {
            shared: Arc::new(Shared {
                history,
                view_bytes_max,
                resources,
                views,
                has_new_views,
                mailboxes,
                reached,
            }),
        }
    }

    /// Fills itself from the store and follows its change feed until `stop`, then ends every watch
    /// cleanly.
    ///
    /// Retries if the store is unavailable; watches end in the meantime. Dropping the future stops
    /// the cache at its present state.
    ///
    /// # Errors
    ///
    /// The store was closed.
    pub(crate) async fn run(
        &self,
        store: &Arc<dyn Store>,
        replayed_revisions: u64,
        threads: &Threads,
        stop: CancellationToken,
    ) -> Result<(), ApiError> {
        // What requests compute there does not delay the cache, which has a place of its own.
        let threads = &threads.with_own_place();
        let ended = tokio::select! {
            biased;
            ended = self.follow(store, replayed_revisions, threads, &stop) => ended,
            // It never ends; dropping it ends its tasks.
            never = self.run_views() => match never {},
        };
        self.shared.stop();
        ended
    }
    async fn run_views(&self) -> std::convert::Infallible {
        let mut tasks = JoinSet::new();
        loop {
            let new = std::mem::take(&mut self.shared.views.lock().new);
            for view in new {
                tasks.spawn(view.run(self.shared.clone()));
            }
            tokio::select! {
                biased;
                // Cancel safe: a dropped wait leaves the permit.
                () = self.shared.has_new_views.notified() => {}
                // Cancel safe: a dropped `join_next` has taken nothing.
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(error = chain(&error), "a view of a converted version ended");
                    }
                }
            }
        }
    }

    async fn follow(
        &self,
        store: &Arc<dyn Store>,
        mut replayed: u64,
        threads: &Threads,
        stop: &CancellationToken,
    ) -> Result<(), ApiError> {
        loop {
            let error = tokio::select! {
                biased;
                // Cancel safe: a dropped fill has published nothing; a dropped batch ends with the
                // cache.
                error = self.fill_and_follow(store, replayed, threads) => error,
                () = stop.cancelled() => return Ok(()),
            };
            if matches!(error, StoreError::Closed | StoreError::Damaged(_)) {
                return Err(ApiError::internal(error));
            }
            tracing::warn!(error = chain(&error), "follow the store's changes");
            // Once it has served requests, it must not go back in time.
            replayed = 0;
            self.shared.reset();
            tokio::select! {
                biased;
                // Cancel safe: a sleep takes nothing.
                () = tokio::time::sleep(RETRY_PERIOD) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// Returns if the feed or a read fails.
    async fn fill_and_follow(
        &self,
        store: &Arc<dyn Store>,
        replayed: u64,
        threads: &Threads,
    ) -> StoreError {
        let mut feed = match self.fill(store, replayed, threads).await {
            Ok(feed) => feed,
            Err(error) => return error,
        };
        let trim_period = TRIM_PERIOD.min(self.shared.history);
        let mut trim_at = Instant::now() + trim_period;
        loop {
            match feed.next().await {
                Ok(batch) => self.shared.apply(batch, threads).await,
                Err(error) => return error,
            }
            let now = Instant::now();
            if now >= trim_at {
                trim_at = now + trim_period;
                self.shared.trim(now);
            }
        }
    }

    /// Reads the state of `replayed` revisions ago, or of the oldest revision in the store, and
    /// applies the changes since then.
    async fn fill(
        &self,
        store: &Arc<dyn Store>,
        replayed: u64,
        threads: &Threads,
    ) -> Result<Box<dyn ChangeFeed>, StoreError> {
        let root = Bytes::from_static(keys::ROOT.as_bytes());
        let present = store.revision().await?;
        let mut from = Revision(present.0.saturating_sub(replayed));
        // Opened first, so that the revisions it needs are known to exist.
        let mut feed = loop {
            match store.changes(root.clone(), from).await {
                Err(StoreError::Compacted { oldest, .. }) if oldest > from => from = oldest,
                feed => break feed?,
            }
        };
        let filled = fill::read(store, from, threads).await?;
        self.shared.fill(from, filled);
        while self.shared.reached.get().revision < present.0 {
            self.shared.apply(feed.next().await?, threads).await;
        }
        self.shared.reached.change(|reached| reached.is_filled = true);
        Ok(feed)
    }

    /// The cache of the resource whose keys have this prefix.
    pub(crate) fn resource(&self, storage_prefix: &str) -> Arc<ResourceCache> {
        self.shared.resource(storage_prefix)
    }
    /// Every existing object, and every wanted change from now on.
    pub(crate) fn object_changes(
        &self,
        is_wanted: impl Fn(&[u8], &[u8]) -> bool + Send + Sync + 'static,
    ) -> ObjectChanges {
        ObjectChanges::new(self.shared.clone(), is_wanted)
    }
    /// The view of a row's objects whose conversion may wait.
    pub(crate) fn view(&self, row: &Arc<Resource>, converter: Arc<Converter>) -> ViewReader {
        self.shared.view(row, converter)
    }
    /// The present progress.
    pub(crate) fn reached(&self) -> Reached {
        self.shared.reached.get()
    }
    /// The progress, to wait for.
    pub(crate) fn reached_changes(&self) -> Arc<FifoWatch<Reached>> {
        self.shared.reached.clone()
    }

    /// Waits until every change up to `revision` is in the cache, or the cache is stopped.
    pub(crate) async fn wait_until(&self, revision: u64) {
        let is_there = |r: &Reached| r.is_stopped || r.is_filled && r.revision >= revision;
        self.shared.reached.wait_for(is_there).await;
    }
    /// Waits until every change up to `revision` is in the cache.
    ///
    /// # Errors
    ///
    /// 504 after [`FRESH_TIMEOUT`]: the client retries.
    pub(crate) async fn wait_fresh(&self, revision: u64) -> Result<(), ApiError> {
        wait_fresh(&self.shared.reached, revision).await
    }
    /// Ends every watch of a resource whose CRD was changed; clients reconnect.
    pub(crate) fn close_watches(&self, storage_prefix: &str) {
        self.shared.resource(storage_prefix).close_watches();
        // Their rows are replaced or no longer served.
        self.shared.end_views(|view| *view.row().storage_prefix == *storage_prefix);
    }
    /// Whether it has anything of a resource.
    #[cfg(test)]
    pub(crate) fn has(&self, storage_prefix: &str) -> bool {
        self.shared.resources.read().by_prefix.contains_key(storage_prefix)
    }
    /// Ends every watch of a resource whose CRD was deleted. The cache drops the resource once its
    /// history is too old and nobody reads it.
    pub(crate) fn retire(&self, storage_prefix: &str) {
        self.close_watches(storage_prefix);
        self.shared.resources.write().gone.insert(storage_prefix.into());
    }
}

/// See [`WatchCache::wait_fresh`].
pub(crate) async fn wait_fresh(
    reached: &FifoWatch<Reached>,
    revision: u64,
) -> Result<(), ApiError> {
    let is_there = |r: &Reached| r.is_filled && r.revision >= revision;
    match tokio::time::timeout(FRESH_TIMEOUT, reached.wait_for(is_there)).await {
        Ok(()) => Ok(()),
        Err(_) => Err(ApiError::too_large_resource_version(revision, reached.get().revision)),
    }
}

impl Shared {
    fn resource(&self, prefix: &str) -> Arc<ResourceCache> {
        if let Some(resource) = self.resources.read().by_prefix.get(prefix) {
            return resource.clone();
        }
        let mut resources = self.resources.write();
        let (from, is_stopped) = (resources.from, resources.is_stopped);
        let new = || Arc::new(ResourceCache::new(prefix.len(), self.history, from, is_stopped));
        resources.by_prefix.entry(prefix.into()).or_insert_with(new).clone()
    }

    /// Replaces all contents with the state at a revision. Not served before `is_filled` is set.
    fn fill(&self, revision: Revision, mut by_prefix: Filled) {
        let resources: Vec<_> = {
            let mut resources = self.resources.write();
            resources.from = revision.0;
            for prefix in by_prefix.keys() {
                let new =
                    || Arc::new(ResourceCache::new(prefix.len(), self.history, revision.0, false));
                resources.by_prefix.entry(prefix.clone()).or_insert_with(new);
            }
            resources.by_prefix.iter().map(|(p, r)| (p.clone(), r.clone())).collect()
        };
        for (prefix, resource) in resources {
            let state = by_prefix.remove(&prefix).unwrap_or_default();
            resource.fill(revision.0, state.index, state.sealed);
        }
        self.reached.change(|reached| {
            *reached = Reached { revision: revision.0, is_filled: false, is_stopped: false };
        });
        self.mailboxes.require_resync();
    }

    /// Applies a batch: one lock per resource, changes in the batch's order.
    ///
    /// Dropping the future leaves resources without their changes: the cache ends then.
    async fn apply(&self, batch: Batch, threads: &Threads) {
        // Whoever opens a mailbox from here on may take its snapshot before these are in it.
        let for_mailboxes = batch.changes.clone();
        let mut by_prefix: BTreeMap<Bytes, Vec<setpoint_store::Change>> = BTreeMap::new();
        for change in batch.changes {
            let prefix = change.key.slice(..prefix_of(&change.key).len());
            by_prefix.entry(prefix).or_default().push(change);
        }
        for (prefix, changes) in by_prefix {
            let resource = self.resource(std::str::from_utf8(&prefix).unwrap_or(keys::ROOT));
            let values = resource.field_values(&changes, threads).await;
            resource.apply(changes, &values);
        }
        self.mailboxes.send(&for_mailboxes);
        self.reached.change(|reached| reached.revision = batch.revision.0);
    }

    /// The feed broke: empties the cache until the next fill.
    fn reset(&self) {
        self.reached.change(|reached| reached.is_filled = false);
        self.all().iter().for_each(|resource| resource.close_watches());
    }
    fn view(&self, row: &Arc<Resource>, converter: Arc<Converter>) -> ViewReader {
        let stored = self.resource(&row.storage_prefix);
        let mut views = self.views.lock();
        if let Some(view) = views.all.iter().find(|view| Arc::ptr_eq(view.row(), row)) {
            return view.read();
        }
        let view = View::new(row.clone(), converter, stored, self.history, self.view_bytes_max);
        let reading = view.read();
        if views.is_stopped {
            view.end();
        } else {
            views.all.push(view.clone());
            views.new.push(view);
            self.has_new_views.notify_one();
        }
        reading
    }
    /// Drops a view without readers.
    fn forget_unread(&self, view: &Arc<View>) -> bool {
        let mut views = self.views.lock();
        // New readers register under the same lock.
        let is_unread = view.is_unread();
        if is_unread {
            views.all.retain(|other| !Arc::ptr_eq(other, view));
        }
        is_unread
    }
    /// Drops a view, even if it has readers.
    fn forget(&self, view: &Arc<View>) {
        self.views.lock().all.retain(|other| !Arc::ptr_eq(other, view));
    }
    fn end_views(&self, which: impl Fn(&View) -> bool) {
        let ended: Vec<_> = {
            let mut views = self.views.lock();
            views.new.retain(|view| !which(view));
            views.all.extract_if(.., |view| which(view)).collect()
        };
        ended.iter().for_each(|view| view.end());
    }
    fn stop(&self) {
        self.views.lock().is_stopped = true;
        self.end_views(|_| true);
        self.reached.change(|reached| reached.is_stopped = true);
        self.resources.write().is_stopped = true;
        self.all().iter().for_each(|resource| resource.stop());
        self.mailboxes.require_resync();
    }
    /// Drops history that is too old, and resources that are gone.
    fn trim(&self, now: Instant) {
        self.all().iter().for_each(|resource| resource.trim(now));
        self.resources.write().drop_gone();
    }
    fn all(&self) -> Vec<Arc<ResourceCache>> {
        self.resources.read().by_prefix.values().cloned().collect()
    }
}

/// The prefix of a key's resource; [`keys::ROOT`] if the key names none.
fn prefix_of(key: &[u8]) -> &str {
    keys::prefix_of(key).unwrap_or(keys::ROOT)
}
