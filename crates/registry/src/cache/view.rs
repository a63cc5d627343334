//! A view: one served version of a resource whose conversion may wait, as an index and a window of
//! converted objects.
//!
//! # Theory
//!
//! ```text
//! ResourceCache (as stored) ── a watcher of everything ──▶ View::run ──▶ ResourceCache (as served)
//!                                                      converts in batches      LIST, WATCH
//! ```
//!
//! - A view starts with the first reader of its version, and ends after [`IDLE_PERIOD`] without
//!   readers. It is one task, owned by the watch cache's `run`. Watchers of the stored version, and
//!   of other resources, are not affected.
//! - The window of the stored objects is its input queue. While a batch is converted, the view
//!   holds only that batch and a position in the window. If its position leaves the window, it is
//!   filled again.
//! - Readers see the same changes as readers of the stored objects, in the same order and at the
//!   same revisions.
//! - Memory: one converted copy of the objects, by default at most [`VIEW_BYTES_MAX`]; a window of
//!   its own with the limits of every window; and one batch. A view that would need more ends: its
//!   readers get the error, and the next reader starts a new one.
//!
//! | a view is | because | readers | changes to |
//! |---|---|---|---|
//! | filling | it has a reader | wait | following, dormant |
//! | following | every stored object is converted | read | dormant |
//! | dormant | a conversion failed: its readers got the error | wake it | filling or following |
//! | dormant | the watches of the stored objects ended | wake it | filling |
//! | ended | idle, its row was replaced, or the server stopped | watches end; lists convert on their own |  |
//! | ended | it is too large | get the error |  |
//!
//! Converted objects survive a failure. After a converter has failed for a while, only missing
//! objects are converted, and watches continue.
use super::resource::{Begin, ResourceCache, Taken, Watcher};
use super::{Change, Index, Item, Shared, look_through};
use crate::catalog::Resource;
use crate::conversion::{
    BATCH_BYTES_MAX, BATCH_OBJECTS_MAX, BATCHES_MAX, Converter, Lookup, ObjectVersion,
};
use crate::convert;
use crate::fifo_watch::FifoWatch;
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

/// Minimum time that a view stays without readers; the maximum is twice as long. Two minutes:
/// clients that poll less often pay for a conversion of all objects.
const IDLE_PERIOD: Duration = Duration::from_secs(120);
/// Maximum number of earlier changes that a view starts with, so that a watch can resume there.
/// Each is converted again.
const REPLAYED_CHANGES_MAX: usize = 1000;
/// How long a reader waits for a view: less than the minute that a request may take, so that the
/// client gets the reason.
const VIEW_TIMEOUT: Duration = Duration::from_secs(55);
/// Default for the maximum bytes of converted objects per view.
///
/// 1 GiB: a quarter of a million objects of 4 KiB in a version other than the stored one.
pub const VIEW_BYTES_MAX: usize = 1 << 30;
/// Stored bytes that are converted between two checks of the limit.
const CHUNK_BYTES_MAX: usize = BATCHES_MAX * BATCH_BYTES_MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct View {
    // Input.
    row: Arc<Resource>,
    converter: Arc<Converter>,
    stored: Arc<ResourceCache>,
    bytes_max: usize,
    // Output.
    served: Arc<ResourceCache>,
    /// Objects converted in an attempt to fill the view that has not succeeded yet.
    filling: Mutex<Index>,
    /// Bytes of the converted objects.
    n_bytes: AtomicUsize,
    // Progress.
    progress: FifoWatch<Progress>,
    failure: Mutex<Option<ApiError>>,
    // Readers.
    readers: Mutex<Readers>,
    /// A reader waits for it.
    wanted: Notify,
    /// The lowest revision that a reader watches from; `u64::MAX`: none.
    after: AtomicU64,
}
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Every change up to this revision is in the view while it is following.
    newest: u64,
    is_following: bool,
    n_failures: u64,
    is_over: bool,
    /// The view has ended because it is too large.
    is_too_large: bool,
}
#[derive(Debug, Default)]
struct Readers {
    n: usize,
    /// Whether it had readers since the last check.
    were_read: bool,
}
/// Why a view stopped following the stored objects.
#[derive(Debug)]
enum Stopped {
    /// A conversion failed. The next reader triggers a retry.
    Failed(ApiError),
    /// It would exceed its size limit.
    TooLarge(ApiError),
}
impl From<ApiError> for Stopped {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}
/// A reader of a view; keeps the view alive.
#[derive(Debug)]
pub(crate) struct ViewReader {
    view: Arc<View>,
}
/// The view's position in its input.
#[derive(Debug)]
struct Position {
    stored: Arc<ResourceCache>,
    watcher: Watcher,
    /// Taken and not converted yet: at most a batch.
    taken: VecDeque<Arc<Change>>,
    /// Their size in bytes.
    n_bytes: usize,
}

impl View {
    /// A view whose task is not started yet. `prefix_len` and `history` are those of the stored
    /// objects' cache.
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
            progress: FifoWatch::default(),
            failure: Mutex::default(),
            readers: Mutex::default(),
            wanted: Notify::new(),
            after: AtomicU64::new(u64::MAX),
        });
        let lookup: Arc<dyn Lookup> = view.clone();
        view.converter.look_into(Arc::downgrade(&lookup));
        view
    }
    /// The row that it serves.
    pub(super) fn row(&self) -> &Arc<Resource> {
        &self.row
    }
    /// Adds a reader.
    pub(super) fn read(self: &Arc<Self>) -> ViewReader {
        let mut readers = self.readers.lock();
        readers.n += 1;
        readers.were_read = true;
        ViewReader { view: self.clone() }
    }
    /// Whether it had no readers since the last call.
    pub(super) fn is_unread(&self) -> bool {
        let mut readers = self.readers.lock();
        readers.n == 0 && !std::mem::take(&mut readers.were_read)
    }
    /// Ends the view: its watchers get their remaining changes and end, lists convert on their own,
    /// and its task ends.
    pub(super) fn end(&self) {
        self.progress.change(|progress| progress.is_over = true);
        self.served.stop();
    }

    /// Follows the stored objects until it is ended, it had no readers for a period, or it is too
    /// large.
    ///
    /// Dropping the future ends the view.
    pub(super) async fn run(self: Arc<Self>, shared: Arc<Shared>) {
        let _end = EndOnDrop(self.clone());
        tokio::select! {
            biased;
            // All are cancel safe: nothing comes after them.
            () = self.progress.wait_for(|progress| progress.is_over) => {}
            error = self.work() => {
                // Later readers start a new view.
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
    /// Returns if it is too large.
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
    /// Returns when the watches of the stored objects end.
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
    /// Its size in bytes with these changes.
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
/// The bytes that an item adds to a view: none if it is shared with the stored objects.
fn weight(item: &Arc<Item>) -> usize {
    if item.is_converted() { item.value.len() } else { 0 }
}
/// The number of items to convert before the next check of the limit.
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
/// Ends the view when its task ends, for any reason.
struct EndOnDrop(Arc<View>);
impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Stored items as a row serves them, in the same order. Items that are served as stored are
/// shared.
///
/// # Errors
///
/// As [`Converter::serve`].
pub(crate) async fn serve(
    converter: &Converter,
    row: &Arc<Resource>,
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
    let made: Vec<_> = made.collect();
    look_through(&made, converter.threads()).await;
    Ok(made)
}

impl ViewReader {
    /// The converted objects.
    pub(crate) fn cache(&self) -> &Arc<ResourceCache> {
        &self.view.served
    }
    /// Waits until the view has every change that the stored objects' cache has now. `false`: the
    /// view has ended.
    ///
    /// # Errors
    ///
    /// The error of the conversion; 503 if the view is too large; 504 after a minute.
    pub(crate) async fn wait(&self) -> Result<bool, ApiError> {
        self.wait_from(u64::MAX).await
    }
    /// The same, for a watch from a revision: a view that is not filled yet starts there if
    /// possible.
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
    /// The revision up to which every change is in the view, given that every change up to
    /// `reached` is in the stored objects' cache.
    pub(crate) fn reached(&self, reached: u64) -> u64 {
        // The order matters: changes that are stored after this read are not promised.
        let newest = self.view.stored.newest();
        let served = self.view.served.newest();
        if served >= newest { reached } else { reached.min(served) }
    }
}
impl Drop for ViewReader {
    fn drop(&mut self) {
        self.view.readers.lock().n -= 1;
    }
}

impl Position {
    /// Waits for changes to convert, and takes a batch of them. `false`: there will be no more.
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
