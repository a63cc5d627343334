//! One served version of a resource whose conversion may wait: an index and a window of converted
//! objects.
//!
//! # Theory
//!
//! ```text
//! ResourceCache (as stored) ── a watcher of everything ──▶ View::run ──▶ ResourceCache (as served)
//!                                                      converts in batches      LIST, WATCH
//! ```
//!
//! - A view begins with the first reader of its version, and goes when nobody has read it for
//!   [`IDLE_PERIOD`]. It is one task, which the watch cache's own run owns. Watchers of the stored
//!   version, and of other resources, do not know of it.
//! - The window of the stored objects is the queue in front of it: while a batch is being
//!   converted, it holds that batch and a place in the window, and nothing else. One that falls out
//!   of the window is filled anew.
//! - Readers see what they would see of the stored objects: the same changes, in the same order, at
//!   the same revisions.
//! - Memory: one converted copy of the objects, [`VIEW_BYTES_MAX`] unless the registry's owner says
//!   otherwise; a window of its own with the bounds of every window; and one batch. A view that
//!   would take more is over: those who read it get the error, and who asks next begins a new one.
//!
//! | a view is | because                                      | readers                       | goes on to           |
//! |-----------|----------------------------------------------|-------------------------------|----------------------|
//! | filling   | somebody reads it                            | wait                          | following, dormant   |
//! | following | every stored object is converted             | read                          | dormant              |
//! | dormant   | a conversion failed: everybody was told      | wake it                       | filling or following |
//! | dormant   | the stored objects' own watches ended        | wake it                       | filling              |
//! | over      | idle, its row is gone, or the server stopped | watches end; lists convert alone |                   |
//! | over      | it is too large: everybody was told          | get the error                 |                      |
//!
//! What was converted is kept over a failure. So a converter that fails for a while is asked again
//! for what is missing only, and watches go on where they were.
use super::resource::{Begin, ResourceCache, Taken, Watcher};
use super::{Change, Index, Item, Shared};
use crate::catalog::Resource;
use crate::conversion::{
    BATCH_BYTES_MAX, BATCH_OBJECTS_MAX, BATCHES_MAX, Converter, Lookup, ObjectVersion,
};
use crate::convert;
use crate::followed::Followed;
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::{ApiError, Reason};
use setpoint_store::is_sealed;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a view stays that nobody reads, at least; at most twice as long. Two minutes: clients
/// that poll more seldom pay with a conversion of everything.
const IDLE_PERIOD: Duration = Duration::from_secs(120);
/// How many changes ago a view begins at most, for the sake of a watch that resumes there. Each is
/// converted again.
const REPLAYED_CHANGES_MAX: usize = 1000;
/// How long a reader waits for a view: less than the minute that a request may take, so that it is
/// told why.
const VIEW_TIMEOUT: Duration = Duration::from_secs(55);
/// How many bytes of converted objects a view holds at most, unless it is said otherwise.
///
/// 1 GiB: a quarter of a million objects of 4 KiB in a version that is not the stored one.
pub const VIEW_BYTES_MAX: usize = 1 << 30;
/// Stored bytes that are converted between two looks at the bound.
const CHUNK_BYTES_MAX: usize = BATCHES_MAX * BATCH_BYTES_MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct View {
    // What it is of.
    row: Arc<Resource>,
    converter: Arc<Converter>,
    stored: Arc<ResourceCache>,
    bytes_max: usize,
    // What it has made.
    served: Arc<ResourceCache>,
    /// Converted in an attempt to fill it that has not ended well yet.
    filling: Mutex<Index>,
    /// Bytes of the converted objects that are served.
    n_bytes: AtomicUsize,
    // How far it is.
    progress: Followed<Progress>,
    failure: Mutex<Option<ApiError>>,
    // Who reads it.
    readers: Mutex<Readers>,
    /// Somebody waits for it.
    wanted: Notify,
    /// The least revision that somebody wants to watch from; `u64::MAX`: nobody.
    after: AtomicU64,
}
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Everything up to this revision is in, when it is following.
    newest: u64,
    is_following: bool,
    n_failures: u64,
    is_over: bool,
    /// And that is why it is over.
    is_too_large: bool,
}
#[derive(Debug, Default)]
struct Readers {
    n: usize,
    /// Since somebody last looked.
    were_there: bool,
}
/// Why a view does not follow the stored objects.
#[derive(Debug)]
enum Stopped {
    /// A conversion failed: whoever asks has it tried again.
    Failed(ApiError),
    /// It would be larger than it may.
    TooLarge(ApiError),
}
impl From<ApiError> for Stopped {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}
/// A reader's hold on a view.
#[derive(Debug)]
pub(crate) struct Reading {
    view: Arc<View>,
}
/// Where a view stands in what it is made of.
#[derive(Debug)]
struct Position {
    stored: Arc<ResourceCache>,
    watcher: Watcher,
    /// Taken and not converted yet: a batch at most.
    taken: VecDeque<Arc<Change>>,
    /// What they weigh.
    n_bytes: usize,
}

impl View {
    /// One that has still to be run. `prefix_len` and `history` are those of the stored objects'
    /// cache.
    pub(super) fn new(
        row: Arc<Resource>,
        converter: Arc<Converter>,
        stored: Arc<ResourceCache>,
        history: Duration,
        bytes_max: usize,
    ) -> Arc<Self> {
        let served = ResourceCache::new(row.storage_prefix.len(), history, 0, false);
        let view = Arc::new(Self {
            row,
            converter,
            stored,
            bytes_max,
            served: Arc::new(served),
            filling: Mutex::default(),
            n_bytes: AtomicUsize::new(0),
            progress: Followed::default(),
            failure: Mutex::default(),
            readers: Mutex::default(),
            wanted: Notify::new(),
            after: AtomicU64::new(u64::MAX),
        });
        let lookup: Arc<dyn Lookup> = view.clone();
        view.converter.look_into(Arc::downgrade(&lookup));
        view
    }
    /// The row it is of.
    pub(super) fn row(&self) -> &Arc<Resource> {
        &self.row
    }
    /// A reader's hold.
    pub(super) fn read(self: &Arc<Self>) -> Reading {
        let mut readers = self.readers.lock();
        readers.n += 1;
        readers.were_there = true;
        Reading { view: self.clone() }
    }
    /// Whether nobody has read it since this was last asked.
    pub(super) fn is_unread(&self) -> bool {
        let mut readers = self.readers.lock();
        readers.n == 0 && !std::mem::take(&mut readers.were_there)
    }
    /// Ends it: its watchers get what is behind them and end, lists go elsewhere, and its task
    /// ends.
    pub(super) fn end(&self) {
        self.progress.change(|progress| progress.is_over = true);
        self.served.stop();
    }

    /// Follows the stored objects until it is over, nobody has read it for a period, or it is too
    /// large.
    ///
    /// Dropping the future ends the view.
    pub(super) async fn run(self: Arc<Self>, shared: Arc<Shared>) {
        let _end = EndOnDrop(self.clone());
        tokio::select! {
            biased;
            // Cancel safe, all of them: nothing comes after them.
            () = self.progress.wait_for(|progress| progress.is_over) => {}
            error = self.work() => {
                // Whoever comes from here on begins a new one.
                shared.forget(&self);
                *self.failure.lock() = Some(error.clone());
                self.progress.change(|progress| {
                    progress.is_following = false;
                    progress.n_failures += 1;
                    progress.is_over = true;
                    progress.is_too_large = true;
                });
                self.served.fail(error);
            }
            () = async {
                loop {
                    tokio::time::sleep(IDLE_PERIOD).await;
                    if shared.forget_unread(&self) {
                        return;
                    }
                    self.served.trim(Instant::now());
                }
            } => {}
        }
    }
    /// Returns when it is too large.
    async fn work(&self) -> ApiError {
        let mut position = None;
        loop {
            match self.follow(&mut position).await {
                Ok(()) => {
                    position = None;
                    self.progress.change(|progress| progress.is_following = false);
                    self.served.close_watches();
                }
                Err(Stopped::TooLarge(error)) => return error,
                Err(Stopped::Failed(error)) => {
                    *self.failure.lock() = Some(error.clone());
                    self.progress.change(|progress| {
                        progress.is_following = false;
                        progress.n_failures += 1;
                    });
                    self.served.fail(error);
                }
            }
            self.wanted.notified().await;
        }
    }
    /// Returns when the stored objects' watches end.
    async fn follow(&self, position: &mut Option<Position>) -> Result<(), Stopped> {
        let position = match position {
            Some(position) => position,
            None => position.insert(self.fill().await?),
        };
        while position.take().await {
            let changes = self.convert(&position.taken).await?;
            self.n_bytes.store(self.check_size(self.n_bytes_with(&changes))?, Ordering::Relaxed);
            let newest = position.taken.back().map(|change| change.revision);
            position.taken.clear();
            position.n_bytes = 0;
            self.served.apply_converted(changes);
            self.progress.change(|progress| {
                progress.newest = newest.unwrap_or(progress.newest);
                progress.is_following = true;
            });
        }
        Ok(())
    }
    async fn fill(&self) -> Result<Position, Stopped> {
        let after = self.after.swap(u64::MAX, Ordering::Relaxed);
        let Begin { watcher, index, newest } = self.stored.begin_back(after, REPLAYED_CHANGES_MAX);
        let stored = self.stored.clone();
        let position = Position { stored, watcher, taken: VecDeque::new(), n_bytes: 0 };
        let sealed = self.stored.all_sealed();
        let items = index.range(Bound::Unbounded, Bound::Unbounded);
        let items: Vec<_> = items.filter(|item| !is_sealed(&item.value)).cloned().collect();
        let mut served = Vec::with_capacity(items.len());
        let (mut rest, mut n_bytes) = (&*items, 0);
        while !rest.is_empty() {
            let items;
            (items, rest) = rest.split_at(chunk_of(rest));
            let made = serve(&self.converter, &self.row, items).await?;
            n_bytes = self.check_size(n_bytes + made.iter().map(weight).sum::<usize>())?;
            let mut filling = self.filling.lock();
            for item in made.iter().filter(|item| item.is_converted()) {
                filling.insert(item.clone());
            }
            drop(filling);
            served.extend(made);
        }
        self.served.fill(newest, Index::from_sorted(served), sealed);
        self.n_bytes.store(n_bytes, Ordering::Relaxed);
        drop(std::mem::take(&mut *self.filling.lock()));
        self.progress.change(|progress| {
            progress.newest = newest;
            progress.is_following = true;
        });
        Ok(position)
    }
    async fn convert(
        &self,
        changes: &VecDeque<Arc<Change>>,
    ) -> Result<Vec<(u64, Bytes, Option<Arc<Item>>)>, ApiError> {
        let items: Vec<_> = changes.iter().filter_map(|change| change.now.clone()).collect();
        let mut made = serve(&self.converter, &self.row, &items).await?.into_iter();
        let changes = changes.iter().map(|change| {
            let key = Bytes::copy_from_slice(change.key());
            let now = change.now.as_ref().and_then(|_| made.next());
            (change.revision, key, now)
        });
        Ok(changes.collect())
    }
}
impl View {
    /// What it holds once changes are in.
    fn n_bytes_with(&self, changes: &[(u64, Bytes, Option<Arc<Item>>)]) -> usize {
        let last: HashMap<&[u8], usize> =
            changes.iter().map(|(_, key, now)| (&**key, now.as_ref().map_or(0, weight))).collect();
        let before = last.keys().filter_map(|key| self.served.get(key));
        let n_gone: usize = before.map(|item| weight(&item)).sum();
        let n_new: usize = last.values().sum();
        (self.n_bytes.load(Ordering::Relaxed) + n_new).saturating_sub(n_gone)
    }
    fn check_size(&self, n_bytes: usize) -> Result<usize, Stopped> {
        if n_bytes <= self.bytes_max {
            return Ok(n_bytes);
        }
        let text = format!(
            "the objects of {} take more than {} bytes when they are converted",
            self.row.gvk, self.bytes_max
        );
        tracing::warn!("{text}");
        Err(Stopped::TooLarge(ApiError::new(503, Reason::ServiceUnavailable, text)))
    }
}
/// What a view holds for an item: nothing when it shares what is stored.
fn weight(item: &Arc<Item>) -> usize {
    if item.is_converted() { item.value.len() } else { 0 }
}
/// How many of some items are converted before the next look at the bound.
fn chunk_of(items: &[Arc<Item>]) -> usize {
    let mut n_bytes = 0;
    let fits = |item: &&Arc<Item>| {
        n_bytes += item.value.len();
        n_bytes <= CHUNK_BYTES_MAX
    };
    let objects_max = BATCHES_MAX * BATCH_OBJECTS_MAX;
    items.iter().take(objects_max).take_while(fits).count().max(1)
}
impl Lookup for View {
    fn find(&self, key: &[u8], revision: u64) -> Option<Bytes> {
        let is_it = |item: &Arc<Item>| item.revision == revision && item.is_converted();
        let served = self.served.get(key).filter(is_it);
        let found = served.or_else(|| self.filling.lock().get(key).cloned().filter(is_it));
        found.map(|item| item.value.clone())
    }
}
/// A task that ends, however it does, ends its view.
struct EndOnDrop(Arc<View>);
impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Stored items as a row serves them, in the same order. Those that are served as they are stored
/// are shared.
///
/// # Errors
///
/// As [`Converter::serve`].
pub(crate) async fn serve(
    converter: &Converter,
    row: &Resource,
    items: &[Arc<Item>],
) -> Result<Vec<Arc<Item>>, ApiError> {
    let versions: Vec<_> = items
        .iter()
        .map(|item| ObjectVersion {
            key: item.key.clone(),
            revision: item.revision,
            value: item.value.clone(),
        })
        .collect();
    let served = converter.serve(row, &versions).await?;
    let pairs = items.iter().zip(served);
    let made = pairs.map(|(item, value)| {
        if convert::is_served_as_stored(row, &item.value, item.revision) {
            return item.clone();
        }
        Arc::new(Item::converted(item.key.clone(), item.revision, value))
    });
    Ok(made.collect())
}

impl Reading {
    /// The converted objects.
    pub(crate) fn cache(&self) -> &Arc<ResourceCache> {
        &self.view.served
    }
    /// Waits until it holds everything that the stored objects' cache holds now. `false`: the view
    /// is over.
    ///
    /// # Errors
    ///
    /// What the conversion failed with; 503 when the view is too large; 504 after a minute.
    pub(crate) async fn wait(&self) -> Result<bool, ApiError> {
        self.wait_from(u64::MAX).await
    }
    /// The same, for a watch of what comes after a revision: a view that has still to be filled
    /// begins there if it can.
    pub(crate) async fn wait_from(&self, after: u64) -> Result<bool, ApiError> {
        let view = &*self.view;
        let (newest, start) = (view.stored.newest(), view.progress.get());
        if !start.is_following {
            view.after.fetch_min(after, Ordering::Relaxed);
            view.wanted.notify_one();
        }
        let has_failed = |now: &Progress| now.n_failures > start.n_failures;
        let is_there = |now: &Progress| now.is_following && now.newest >= newest;
        let waited = view.progress.wait_for(|now| now.is_over || has_failed(now) || is_there(now));
        if tokio::time::timeout(VIEW_TIMEOUT, waited).await.is_err() {
            let kind = &view.row.gvk;
            let text = format!("Timeout: the objects of {kind} are still being converted");
            return Err(ApiError::new(504, Reason::Timeout, text));
        }
        let now = view.progress.get();
        if (has_failed(&now) || now.is_too_large) && !is_there(&now) {
            let failure = view.failure.lock().clone();
            return Err(failure.unwrap_or_else(|| ApiError::internal("a conversion failed")));
        }
        Ok(!now.is_over)
    }
    /// Up to which revision everything is in the view, when everything up to `reached` is in the
    /// stored objects' cache.
    pub(crate) fn reached(&self, reached: u64) -> u64 {
        // In this order: what is stored after the look at it is not promised.
        let newest = self.view.stored.newest();
        let served = self.view.served.newest();
        if served >= newest { reached } else { reached.min(served) }
    }
}
impl Drop for Reading {
    fn drop(&mut self) {
        self.view.readers.lock().n -= 1;
    }
}

impl Position {
    /// Waits until there is something to convert, and takes a batch of it. `false`: there will be
    /// nothing more.
    async fn take(&mut self) -> bool {
        poll_fn(|cx| {
            loop {
                if self.taken.len() >= BATCH_OBJECTS_MAX || self.n_bytes >= BATCH_BYTES_MAX {
                    return Poll::Ready(true);
                }
                let n_before = self.taken.len();
                match self.stored.take(&mut self.watcher, &mut self.taken, cx.waker()) {
                    Taken::Some => {
                        let new = self.taken.iter().skip(n_before);
                        let weights = new.filter_map(|change| change.now.as_ref());
                        self.n_bytes += weights.map(|item| item.value.len()).sum::<usize>();
                    }
                    Taken::Nothing if self.taken.is_empty() => return Poll::Pending,
                    Taken::Nothing => return Poll::Ready(true),
                    Taken::Ended | Taken::Failed(_) => return Poll::Ready(!self.taken.is_empty()),
                }
            }
        })
        .await
    }
}
impl Drop for Position {
    fn drop(&mut self) {
        self.stored.end(&self.watcher);
    }
}
