//! The watch cache: per resource an ordered index of current bytes and a bounded window of events,
//! fed by the store's change feed.
//!
//! # Theory
//!
//! One task ([`WatchCache::run`]) reads one change feed over everything and is the only writer. It
//! hands each batch to the caches of the resources it touches, one lock each, and then publishes
//! how far it has come:
//!
//! ```text
//! store ── feed ──▶ run ──▶ ResourceCache { index, window } ──┬──▶ LIST  (a snapshot of the index)
//!                    │                                        └──▶ WATCH (a position in the window)
//!                    └────▶ reached: every change up to here is in
//! ```
//!
//! - An [`Item`] is an object at one revision: the stored bytes, and nothing that can be made of
//!   them. Index and window share it. A LIST splices the resourceVersion in for itself; an event is
//!   framed once, however many watch, and kept with its [`Change`] as long as that is in the
//!   window.
//! - A watcher has no buffer here and no task: it holds a position and takes what is behind it when
//!   it is polled. The window is the buffer of all of them. A change wakes only the watchers it may
//!   concern (see `fanout`), and only they find it behind their position. A watcher that has left a
//!   change so long that it is out of the window is ended, never skipped over events; it costs
//!   nothing until then but the window's own, bounded, memory.
//! - `reached` is published after the batch is in. A reader that sees `reached = r` before it takes
//!   a resource's lock thus finds every change of the resource up to `r`, and perhaps later ones:
//!   the state it then sees is the resource's state at the later of `r` and the last change it
//!   finds.
//! - A version that is made by a conversion that may wait has an index and a window of its own,
//!   behind those of what is stored (see `view`). Nothing of the conversion happens under a lock,
//!   or on the way of what is stored.
//! - It is filled from several ranges of keys at once, each by a task of its own; what comes out
//!   does not depend on which ends first.
//! - When the feed breaks, every watch ends and the cache is filled anew; its history starts over.
//! - At start it may be filled with the state of some revisions ago and take the changes since out
//!   of the feed, so that watches of before a restart go on where they were. Nothing is served
//!   before it has reached the present.
//!
//! A key names its resource ([`keys`]). So a cache needs no catalog, and CRDs that come and go need
//! no care but
//! [`WatchCache::close_watches`].
mod change;
mod event;
mod fanout;
mod field;
mod fill;
mod index;
mod interest;
mod item;
mod meter;
mod objects;
mod resource;
mod view;
mod window;

pub(crate) use change::{Change, event_of};
pub use event::{Event, EventKind};
pub(crate) use field::Field;
pub(crate) use index::Index;
pub(crate) use interest::{Interest, Term};
pub(crate) use item::Item;
pub(crate) use meter::Meter;
pub use objects::{
    MAILBOX_BYTES_MAX, MAILBOX_CHANGES_MAX, ObjectChange, ObjectChanges, StoredObject,
};
pub(crate) use resource::{ResourceCache, Taken, Watcher};
pub use view::VIEW_BYTES_MAX;
pub(crate) use view::{Reading, serve};

use fill::Filled;
use objects::Mailboxes;
use resource::WatcherId;
use view::View;

use crate::catalog::Resource;
use crate::conversion::Converter;
use crate::followed::Followed;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use setpoint_object::{ApiError, keys};
use setpoint_store::{Batch, ChangeFeed, Revision, Store, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often, at most, history that is too old is dropped of resources that do not change: whenever
/// the store moves. More often where history is shorter.
const TRIM_PERIOD: Duration = Duration::from_secs(30);
/// How long the cache waits before it asks a store again that could not serve.
///
/// One second, as the reflector that fills kube-apiserver's cache backs off at first.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// How long a read waits for the cache, or the store, to reach the revision it asks for.
///
/// Three seconds, as kube-apiserver's `blockTimeout`: after it the client is told to come again.
pub(crate) const FRESH_TIMEOUT: Duration = Duration::from_secs(3);

/// How far the cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reached {
    /// Everything up to this revision is in.
    pub(crate) revision: u64,
    /// It has been filled and follows the store.
    pub(crate) is_filled: bool,
    /// It has been stopped: nothing will follow.
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
    /// How many bytes of converted objects a view holds.
    view_bytes_max: usize,
    resources: RwLock<Resources>,
    views: Mutex<Views>,
    /// There are views that have still to be run.
    has_new_views: Notify,
    /// Of those who read everything.
    mailboxes: Mailboxes,
    reached: Arc<Followed<Reached>>,
}
#[derive(Debug, Default)]
struct Resources {
    by_prefix: BTreeMap<Arc<str>, Arc<ResourceCache>>,
    /// The revision of the last fill: the history of every resource starts there.
    filled_at: u64,
    is_stopped: bool,
}

/// The versions that somebody reads and that are made by conversions that may wait.
#[derive(Debug, Default)]
struct Views {
    all: Vec<Arc<View>>,
    /// Those that have still to be run.
    new: Vec<Arc<View>>,
    is_stopped: bool,
}

impl WatchCache {
    /// An empty one that keeps changes so long, and so many bytes of converted objects for each
    /// version.
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
    /// politely.
    ///
    /// A store that cannot serve is asked again; watches end meanwhile. Dropping the future leaves
    /// the cache as it is, standing still.
    ///
    /// # Errors
    ///
    /// The store was closed.
    pub(crate) async fn run(
        &self,
        store: &Arc<dyn Store>,
        replayed_revisions: u64,
        stop: CancellationToken,
    ) -> Result<(), ApiError> {
        let ended = tokio::select! {
            biased;
            ended = self.follow(store, replayed_revisions, &stop) => ended,
            // It never ends: its tasks go with it.
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
                // Cancel safe: a dropped wait leaves the permit.
                () = self.shared.has_new_views.notified() => {}
                // Cancel safe: a dropped `join_next` has taken nothing.
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a view of a converted version ended");
                    }
                }
            }
        }
    }

    async fn follow(
        &self,
        store: &Arc<dyn Store>,
        mut replayed: u64,
        stop: &CancellationToken,
    ) -> Result<(), ApiError> {
        loop {
            let error = tokio::select! {
                biased;
                // Cancel safe: a dropped fill has published nothing, a dropped batch ends with the
                // cache.
                error = self.fill_and_follow(store, replayed) => error,
                () = stop.cancelled() => return Ok(()),
            };
            if matches!(error, StoreError::Closed | StoreError::Damaged(_)) {
                return Err(ApiError::internal(error));
            }
            tracing::warn!(%error, "follow the store's changes");
            // Once served, it does not go back in time.
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

    /// Returns when the feed, or a read, fails.
    async fn fill_and_follow(&self, store: &Arc<dyn Store>, replayed: u64) -> StoreError {
        let mut feed = match self.fill(store, replayed).await {
            Ok(feed) => feed,
            Err(error) => return error,
        };
        let trim_period = TRIM_PERIOD.min(self.shared.history);
        let mut trim_at = Instant::now() + trim_period;
        loop {
            match feed.next().await {
                Ok(batch) => self.shared.apply(batch),
                Err(error) => return error,
            }
            let now = Instant::now();
            if now >= trim_at {
                trim_at = now + trim_period;
                self.shared.all().iter().for_each(|resource| resource.trim(now));
            }
        }
    }

    /// Reads the state of `replayed` revisions ago, or of the oldest revision kept, and takes in
    /// what came since.
    async fn fill(
        &self,
        store: &Arc<dyn Store>,
        replayed: u64,
    ) -> Result<Box<dyn ChangeFeed>, StoreError> {
        let root = Bytes::from_static(keys::ROOT.as_bytes());
        let present = store.revision().await?;
        let mut from = Revision(present.0.saturating_sub(replayed));
        // Opened first: what it needs is known to be kept.
        let mut feed = loop {
            match store.changes(root.clone(), from).await {
                Err(StoreError::Compacted { oldest, .. }) if oldest > from => from = oldest,
                feed => break feed?,
            }
        };
        let filled = fill::read(store, from).await?;
        self.shared.fill(from, filled);
        while self.shared.reached.get().revision < present.0 {
            self.shared.apply(feed.next().await?);
        }
        self.shared.reached.change(|reached| reached.is_filled = true);
        Ok(feed)
    }

    /// The cache of the resource whose keys start with this prefix.
    pub(crate) fn resource(&self, storage_prefix: &str) -> Arc<ResourceCache> {
        self.shared.resource(storage_prefix)
    }
    /// Every object, and every change of one from now on.
    pub(crate) fn object_changes(&self) -> ObjectChanges {
        ObjectChanges::new(self.shared.clone())
    }
    /// The objects of a row whose conversion may wait, as the row serves them.
    pub(crate) fn view(&self, row: &Arc<Resource>, converter: Arc<Converter>) -> Reading {
        self.shared.view(row, converter)
    }
    /// How far it is.
    pub(crate) fn reached(&self) -> Reached {
        self.shared.reached.get()
    }
    /// How far it is, followed.
    pub(crate) fn reached_changes(&self) -> Arc<Followed<Reached>> {
        self.shared.reached.clone()
    }

    /// Waits until everything up to `revision` has been taken in, or the cache was stopped.
    pub(crate) async fn wait_until(&self, revision: u64) {
        let is_there = |r: &Reached| r.is_stopped || r.is_filled && r.revision >= revision;
        self.shared.reached.wait_for(is_there).await;
    }
    /// Waits until the cache holds everything up to `revision`.
    ///
    /// # Errors
    ///
    /// 504 after [`FRESH_TIMEOUT`]: the client retries.
    pub(crate) async fn wait_fresh(&self, revision: u64) -> Result<(), ApiError> {
        wait_fresh(&self.shared.reached, revision).await
    }
    /// Ends every watch of a resource (its CRD changed or went away); clients reconnect.
    pub(crate) fn close_watches(&self, storage_prefix: &str) {
        self.shared.resource(storage_prefix).close_watches();
        // Their rows are served no more, or differently.
        self.shared.end_views(|view| *view.row().storage_prefix == *storage_prefix);
    }
}

/// See [`WatchCache::wait_fresh`].
pub(crate) async fn wait_fresh(reached: &Followed<Reached>, revision: u64) -> Result<(), ApiError> {
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
        let (filled_at, is_stopped) = (resources.filled_at, resources.is_stopped);
        let new =
            || Arc::new(ResourceCache::new(prefix.len(), self.history, filled_at, is_stopped));
        resources.by_prefix.entry(prefix.into()).or_insert_with(new).clone()
    }

    /// Replaces everything by the state at a revision. Not served before it is said to be filled.
    fn fill(&self, revision: Revision, mut by_prefix: Filled) {
        let resources: Vec<_> = {
            let mut resources = self.resources.write();
            resources.filled_at = revision.0;
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
        self.mailboxes.lose();
    }

    /// Takes a batch in: one lock for each resource it touches, with the changes in the batch's
    /// order.
    fn apply(&self, batch: Batch) {
        let told = if self.mailboxes.is_empty() { Vec::new() } else { batch.changes.clone() };
        let mut by_prefix: BTreeMap<Bytes, Vec<setpoint_store::Change>> = BTreeMap::new();
        for change in batch.changes {
            let prefix = change.key.slice(..prefix_of(&change.key).len());
            by_prefix.entry(prefix).or_default().push(change);
        }
        for (prefix, changes) in by_prefix {
            self.resource(std::str::from_utf8(&prefix).unwrap_or(keys::ROOT)).apply(changes);
        }
        if !told.is_empty() {
            self.mailboxes.send(&told);
        }
        self.reached.change(|reached| reached.revision = batch.revision.0);
    }

    /// The feed broke: nothing is known until the next fill.
    fn reset(&self) {
        self.reached.change(|reached| reached.is_filled = false);
        self.all().iter().for_each(|resource| resource.close_watches());
    }
    fn view(&self, row: &Arc<Resource>, converter: Arc<Converter>) -> Reading {
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
    /// Forgets a view that nobody reads.
    fn forget_unread(&self, view: &Arc<View>) -> bool {
        let mut views = self.views.lock();
        // Readers come under the same lock.
        let is_unread = view.is_unread();
        if is_unread {
            views.all.retain(|other| !Arc::ptr_eq(other, view));
        }
        is_unread
    }
    /// Forgets a view, whoever reads it.
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
        self.mailboxes.lose();
    }
    fn all(&self) -> Vec<Arc<ResourceCache>> {
        self.resources.read().by_prefix.values().cloned().collect()
    }
}

/// The prefix of a key's resource; of a key that names none, [`keys::ROOT`].
fn prefix_of(key: &[u8]) -> &str {
    keys::prefix_of(key).unwrap_or(keys::ROOT)
}
