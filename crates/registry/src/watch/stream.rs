//! The watch stream.
use super::bookmark::{self, Timer};
use super::phase::Phase;
use super::{Event, EventKind};
use crate::cache::{
    Change, FRESH_TIMEOUT, Item as CachedItem, Reached, ResourceCache, Taken, ViewReader, Watcher,
    event_of, wait_fresh,
};
use crate::fifo_watch::FifoWatch;
use crate::read::{Fresh, Scope, WatchStart};
use crate::request::ListOptions;
use crate::shared::Inner;
use crate::stored::store_error;
use crate::threads::Threads;
use futures::future::BoxFuture;
use setpoint_object::ApiError;
use setpoint_store::ReadFault;
use std::collections::VecDeque;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::coop;
use tokio::time::Sleep;

/// Maximum number of objects or changes per poll before the stream yields.
const LOOKS_MAX: usize = 128;
/// The time of one look, in nanoseconds. An object that takes longer counts as several looks.
const LOOK_COST: usize = 8000;
/// Looks that cost as much of a task's budget as an operation. A budget has 128, so a turn has two
/// milliseconds of looks at a field, which cost most. Without it a connection would poll a stream
/// that yields several times in one turn.
const UNIT_LOOKS: usize = 2;

/// A stream of events. Ends when the watch times out, the server stops or the watcher is too slow.
/// An `Err` is the ERROR event and the last item.
///
/// It works only when polled, and an idle stream costs only its position. Dropping it ends the
/// watch.
#[must_use = "a stream does nothing unless polled"]
pub struct WatchStream {
    // Scope.
    scope: Arc<Scope>,
    /// `None`: every object first; otherwise the changes after this revision.
    after: Option<u64>,
    allow_bookmarks: bool,
    cache: Arc<ResourceCache>,
    reached: Arc<FifoWatch<Reached>>,
    /// Held if `cache` is a view's.
    view: Option<Arc<ViewReader>>,
    // Position.
    phase: Phase,
    timer: Timer,
    watcher: Option<Watcher>,
    /// Taken from the window and not looked at yet: at most [`crate::cache::TAKE_MAX`].
    taken: VecDeque<Arc<Change>>,
    /// Everything up to this revision has been sent, or is not selected.
    seen: u64,
    /// Until when the store may reach `after`, if it has not yet.
    ahead: Option<Pin<Box<Sleep>>>,
    /// Looks that the task's budget has not paid for.
    n_looks_owed: usize,
    /// The look at an object that takes long. It comes before all others.
    elsewhere: Option<Look>,
    threads: Threads,
}
/// A look at an object on another thread: the event, if there is one.
type Look = BoxFuture<'static, Result<Option<Arc<Event>>, ApiError>>;
type Item = Result<Arc<Event>, ApiError>;

/// The error of a watch that cannot start at a revision, or is too slow for its initial objects.
fn too_old(revision: u64, oldest: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {revision} ({oldest})"))
}

impl std::fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { scope, phase, after, seen, .. } = self;
        let mut stream = f.debug_struct("WatchStream");
        stream.field("scope", scope).field("phase", phase).field("after", after);
        stream.field("seen", seen).finish_non_exhaustive()
    }
}

/// The event of an object of the snapshot, if it is selected.
fn initial_event(scope: &Scope, item: &Arc<CachedItem>) -> Result<Option<Arc<Event>>, ApiError> {
    if !scope.selects(item)? {
        return Ok(None);
    }
    let event = event_of(item, &scope.resource, EventKind::Added, item.revision)?;
    Ok(Some(Arc::new(event)))
}

/// The looks that an object counts as. Objects that take very long are looked at elsewhere.
fn n_looks(scope: &Scope, item: &CachedItem) -> usize {
    scope.look_cost(item).div_ceil(LOOK_COST)
}

/// The event of a change in a scope, if there is one.
fn event_of_change(scope: &Scope, change: &Change) -> Result<Option<Arc<Event>>, ApiError> {
    let selects = |item: &Option<Arc<CachedItem>>| match item {
        Some(item) => scope.selects(item),
        None => Ok(false),
    };
    let kind = match (selects(&change.before)?, selects(&change.now)?) {
        (true, true) => EventKind::Modified,
        (false, true) => EventKind::Added,
        (true, false) => EventKind::Deleted,
        (false, false) => return Ok(None),
    };
    change.event(&scope.resource, kind)
}

impl WatchStream {
    /// A stream that takes its position now, or as soon as the cache is as fresh as requested. No
    /// change after this returns is missed, whenever the stream is polled.
    pub(crate) async fn start(
        inner: &Inner,
        scope: Scope,
        start: WatchStart,
        options: &ListOptions,
    ) -> Result<Self, ApiError> {
        let reached = inner.cache.reached_changes();
        let now = reached.get();
        if !now.is_filled && !now.is_stopped {
            return Err(ApiError::too_many_requests("storage is (re)initializing", 1));
        }
        let revision = match start {
            WatchStart::Initial(fresh) | WatchStart::Now(fresh) => match fresh {
                Fresh::Any => now.revision,
                Fresh::AtLeast(revision) => revision,
                Fresh::Newest => {
                    let newest = inner.store.revision().await.map_err(store_error)?.0;
                    // A client that changes something after this returns sees each change, not only
                    // the state after all of them.
                    wait_fresh(&reached, newest).await?;
                    newest
                }
            },
            WatchStart::After(revision) => revision,
        };
        let allow_bookmarks = options.allow_bookmarks;
        let min = inner.watch_timeout_min;
        let timer = Timer::new(options.timeout, min, allow_bookmarks, &mut *inner.rng.lock());
        let view = inner.view(&scope.resource).map(Arc::new);
        let cache = match &view {
            Some(view) => view.cache().clone(),
            None => inner.cache.resource(&scope.resource.storage_prefix),
        };
        let mut stream = Self {
            after: (!matches!(start, WatchStart::Initial(_))).then_some(revision),
            allow_bookmarks,
            cache,
            view,
            scope: Arc::new(scope),
            phase: Phase::Live,
            timer,
            watcher: None,
            taken: VecDeque::new(),
            seen: 0,
            ahead: None,
            n_looks_owed: 0,
            elsewhere: None,
            threads: inner.threads.clone(),
            reached,
        };
        let is_fresh = stream.reached.get().revision >= revision;
        // Takes the position at once, except in views, which may have to be filled first.
        if stream.view.is_some() || stream.after.is_none() && !is_fresh {
            let revision = if stream.after.is_some() { 0 } else { revision };
            let (reached, view) = (stream.reached.clone(), stream.view.clone());
            stream.phase = Phase::starting(revision, reached, view, stream.after);
        } else if let Err(error) = stream.begin() {
            stream.phase = Phase::Failed(error);
        }
        Ok(stream)
    }

    /// Takes a position in the cache, which is fresh enough.
    fn begin(&mut self) -> Result<(), ApiError> {
        // Read before the position is taken: every change up to it is in the initial state.
        let reached = self.reached_revision();
        let interest = self.scope.interest();
        let (begin, snapshot) = match self.after {
            Some(after) => {
                let begin = self.cache.begin_after(&interest, after);
                (begin.map_err(|oldest| too_old(after, oldest))?, None)
            }
            None => {
                let (begin, snapshot) = self.cache.begin_with_objects(&interest);
                (begin, Some(snapshot))
            }
        };
        let revision = begin.newest.max(reached);
        self.watcher = Some(begin.watcher);
        let (start, end) = self.scope.range();
        if let Some(key) = self.cache.sealed(&start, &end, 1).first() {
            let why = "the value cannot be decrypted";
            return Err(crate::stored::unreadable(key, ReadFault::Transform, why));
        }
        self.seen = self.after.unwrap_or(revision);
        if self.seen > revision {
            self.ahead = Some(Box::pin(tokio::time::sleep(FRESH_TIMEOUT)));
        }
        // The watches of this row have ended already: the client starts over, with the row that is
        // served now.
        if self.scope.resource.is_retired() {
            self.phase = Phase::Ended;
            return Ok(());
        }
        self.phase = match snapshot {
            None => Phase::Live,
            Some(snapshot) => Phase::Initial { snapshot, after: None, revision },
        };
        Ok(())
    }

    /// The next object of the snapshot, or the bookmark after them. `None`: call again.
    fn next_initial(&mut self) -> Result<Option<Arc<Event>>, ApiError> {
        let Phase::Initial { snapshot, after, revision } = &mut self.phase else { return Ok(None) };
        // An error, because the objects come in the order of their keys: a client cannot resume
        // after the last one that it has seen.
        let Some(index) = snapshot.get() else {
            return Err(too_old(*revision, self.cache.oldest()));
        };
        let (start, end) = self.scope.range();
        let from = match after {
            Some(item) => Bound::Excluded(&*item.key),
            None => Bound::Included(&*start),
        };
        let to = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&*end) };
        let mut n_looked = 0;
        for item in index.range(from, to) {
            let n_looks = n_looks(&self.scope, item);
            if self.scope.looks_slowly(item) {
                let (scope, item) = (self.scope.clone(), item.clone());
                *after = Some(item.clone());
                let look = async move { initial_event(&scope, &item) };
                self.elsewhere = Some(look_elsewhere(&self.threads, look));
                return Ok(None);
            }
            n_looked += n_looks;
            self.n_looks_owed += n_looks;
            let event = initial_event(&self.scope, item)?;
            if event.is_some() || n_looked >= LOOKS_MAX {
                *after = Some(item.clone());
                return Ok(event);
            }
        }
        let revision = *revision;
        self.phase = Phase::Live;
        Ok(self.allow_bookmarks.then(|| bookmark::event(&self.scope.resource, revision, true)))
    }

    /// Waits for the revision that the watch starts after.
    ///
    /// # Errors
    ///
    /// 410 if it is not reached in time: it is of a store that has been lost, and what was written
    /// since would be missed.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Result<(), ApiError> {
        let Some(limit) = &mut self.ahead else { return Ok(()) };
        let is_over = limit.as_mut().poll(cx).is_ready();
        let (after, reached) = (self.after.unwrap_or(0), self.reached_revision());
        if reached >= after {
            self.ahead = None;
        } else if is_over {
            let why = format!("too large resource version: {after}, current: {reached}");
            return Err(ApiError::expired(why));
        }
        Ok(())
    }
    /// Whether a change is one of its range.
    fn is_in_range(&self, change: &Change) -> bool {
        // A watcher may start at a future revision.
        let is_early = self.after.is_some_and(|after| change.revision <= after);
        !is_early && self.scope.has_key(change.key())
    }
    fn poll_live(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut n_looked = 0;
        while n_looked < LOOKS_MAX {
            n_looked += 1;
            let Some(change) = self.taken.pop_front() else {
                // Read before the window: a change up to it that is not in the window does not
                // exist.
                let reached = self.reached_revision();
                let Some(watcher) = &mut self.watcher else { return Poll::Ready(None) };
                match self.cache.take(watcher, &mut self.taken, cx.waker()) {
                    Taken::Ended => return Poll::Ready(None),
                    Taken::Failed(error) => return Poll::Ready(Some(Err(error))),
                    Taken::Some => continue,
                    Taken::Nothing => self.seen = self.seen.max(reached),
                }
                if let Err(error) = self.poll_ahead(cx) {
                    return Poll::Ready(Some(Err(error)));
                }
                if std::mem::take(&mut self.timer.is_bookmark_due) && self.ahead.is_none() {
                    return Poll::Ready(Some(Ok(self.bookmark())));
                }
                return Poll::Pending;
            };
            self.n_looks_owed += 1;
            self.seen = self.seen.max(change.revision);
            if !self.is_in_range(&change) {
                continue;
            }
            let states = || [&change.before, &change.now].into_iter().flatten();
            let n_looks = states().map(|item| n_looks(&self.scope, item)).sum::<usize>();
            if states().any(|item| self.scope.looks_slowly(item)) {
                let (scope, change) = (self.scope.clone(), change.clone());
                let look = async move { event_of_change(&scope, &change) };
                self.elsewhere = Some(look_elsewhere(&self.threads, look));
                break;
            }
            // One is counted already.
            let n_more = n_looks.saturating_sub(1);
            n_looked += n_more;
            self.n_looks_owed += n_more;
            if let Some(item) = event_of_change(&self.scope, &change).transpose() {
                return Poll::Ready(Some(item));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
    /// The revision up to which the watched cache has every change.
    fn reached_revision(&self) -> u64 {
        let reached = self.reached.get().revision;
        self.view.as_ref().map_or(reached, |view| view.reached(reached))
    }
    fn bookmark(&self) -> Arc<Event> {
        bookmark::event(&self.scope.resource, self.seen, false)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if self.timer.is_over(cx) {
            return Poll::Ready(None);
        }
        while self.n_looks_owed >= UNIT_LOOKS {
            ready!(coop::poll_proceed(cx)).made_progress();
            self.n_looks_owed -= UNIT_LOOKS;
        }
        loop {
            if let Some(look) = &mut self.elsewhere {
                let looked = ready!(look.as_mut().poll(cx));
                self.elsewhere = None;
                if let Some(item) = looked.transpose() {
                    return Poll::Ready(Some(item));
                }
            }
            match &mut self.phase {
                Phase::Starting(fresh) => match fresh.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(false)) => return Poll::Ready(None),
                    Poll::Ready(answer) => match answer.and_then(|_| self.begin()) {
                        Ok(()) => {}
                        // If the cache stopped in the meantime, the stream just ends.
                        Err(_) if self.reached.get().is_stopped => return Poll::Ready(None),
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    },
                },
                Phase::Initial { .. } => match self.next_initial() {
                    Err(error) => return Poll::Ready(Some(Err(error))),
                    Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                    Ok(None) if matches!(self.phase, Phase::Live) => {}
                    Ok(None) => {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                },
                Phase::Live => return self.poll_live(cx),
                Phase::Failed(_) => {
                    if let Phase::Failed(error) = std::mem::replace(&mut self.phase, Phase::Ended) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Phase::Ended => return Poll::Ready(None),
            }
        }
    }
    fn end(&mut self) {
        self.phase = Phase::Ended;
        self.elsewhere = None;
        self.taken.clear();
        if let Some(watcher) = self.watcher.take() {
            self.cache.end(&watcher);
        }
    }
}
/// Looks at an object on another thread.
fn look_elsewhere(
    threads: &Threads,
    look: impl Future<Output = Result<Option<Arc<Event>>, ApiError>> + Send + 'static,
) -> Look {
    let threads = threads.clone();
    Box::pin(async move { threads.run(look).await? })
}

impl futures::Stream for WatchStream {
    type Item = Item;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let polled = this.poll(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            this.end();
        }
        polled
    }
}
impl Drop for WatchStream {
    fn drop(&mut self) {
        self.end();
    }
}
