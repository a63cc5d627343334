//! One handler with its queue.
use super::queue::{Queue, Replaced, Taken};
use super::walk::Walk;
use super::{HANDLER_PANIC_PAUSE, Handler, HandlerOptions};
use crate::event::Event;
use crate::indexer::{Snapshot, free};
use crate::key::Key;
use crate::metrics::Metrics;
use crate::object::Object;
use crate::slices::turn;
use futures::FutureExt;
use parking_lot::Mutex;
use setpoint_object::panic;
use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A listener as its registration sees it, without the type of its objects.
pub(crate) trait Registered: Send + Sync {
    fn state(&self) -> &State;
    fn remove(&self);
    fn pending(&self) -> usize;
    /// The value of [`State::delivered`] after everything that waits now.
    fn pushed(&self) -> u64;
    fn resync_period(&self) -> Option<Duration>;
}

/// The parts of a listener that others may await.
pub(crate) struct State {
    pub(crate) synced: watch::Sender<bool>,
    /// No further call is made: `removed` to wait for it, `is_removed` to check it often.
    pub(crate) removed: CancellationToken,
    is_removed: AtomicBool,
    /// No call is running, and none will start.
    pub(crate) ended: CancellationToken,
    pub(crate) panics: AtomicU64,
    /// The sequence number in its queue up to which the handler has been called.
    delivered: AtomicU64,
    /// Notified when `delivered` changes.
    moved_on: Notify,
}

impl State {
    /// Waits until the handler has been called with everything before `wanted`.
    pub(super) async fn delivered(&self, wanted: u64) {
        loop {
            let mut moved_on = pin!(self.moved_on.notified());
            // From here on a change wakes this call, even one before the await.
            moved_on.as_mut().enable();
            if self.delivered.load(Ordering::SeqCst) >= wanted {
                return;
            }
            moved_on.await;
        }
    }

    fn deliver(&self, front: u64) {
        self.delivered.store(front, Ordering::SeqCst);
        self.moved_on.notify_waiters();
    }
}

/// How many notifications a handler's task takes out of its queue at once. They are no longer
/// merged.
///
/// 32: enough to make the queue's lock cheap, and few compared with the smallest useful queue.
pub const TAKEN_MAX: usize = 32;

tokio::task_local! {
    /// Identifies the listener whose task this is, by its `ended`.
    static WITHIN: CancellationToken;
}

/// Whether this is the task that calls the handler.
pub(super) fn is_within(state: &State) -> bool {
    WITHIN.try_with(|ended| *ended == state.ended).unwrap_or(false)
}

/// One handler's queue. Pushing never waits and never fails.
///
/// # Theory
///
/// The worker pushes under its distribution lock, and wakes the handler's task after it has pushed
/// everything. The task takes a few notifications at a time and calls the handler with one after
/// the other. The handler is synced once the informer is synced and no initial addition is waiting,
/// taken or being handled; these facts change under the queue's lock.
pub(crate) struct Listener<K> {
    inner: Mutex<Inner<K>>,
    arrived: Notify,
    /// How many notifications were taken out of the queue whose calls have not started.
    taken: AtomicUsize,
    state: State,
    resync: Mutex<Option<Duration>>,
    metrics: Option<Arc<dyn Metrics>>,
}

struct Inner<K> {
    queue: Queue<K>,
    informer_synced: bool,
    /// How many initial additions were taken whose calls have not ended.
    taken_initial: usize,
    is_synced: bool,
}

impl<K: Send + Sync + 'static> Listener<K> {
    pub(crate) fn new(options: &HandlerOptions, metrics: Option<Arc<dyn Metrics>>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                queue: Queue::new(options.queue_max),
                informer_synced: false,
                taken_initial: 0,
                is_synced: false,
            }),
            arrived: Notify::new(),
            taken: AtomicUsize::new(0),
            state: State {
                synced: watch::Sender::new(false),
                removed: CancellationToken::new(),
                is_removed: AtomicBool::new(false),
                ended: CancellationToken::new(),
                panics: AtomicU64::new(0),
                delivered: AtomicU64::new(0),
                moved_on: Notify::new(),
            },
            resync: Mutex::new(None),
            metrics,
        })
    }

    /// Queues an event. Call [`wake`](Self::wake) afterwards.
    pub(crate) fn push(&self, event: Event<K>) {
        if !self.is_removed() {
            self.inner.lock().queue.push(event);
        }
    }

    /// Queues all events from one state of the cache to another, in constant time. Call
    /// [`wake`](Self::wake) afterwards.
    ///
    /// `with_unchanged`: also for unchanged objects (SHI-22). Drop the result, which the walk
    /// replaces, without a lock.
    pub(crate) fn push_walk(
        &self,
        old: Snapshot<K>,
        new: Snapshot<K>,
        with_unchanged: bool,
        in_initial_list: bool,
    ) -> Option<Replaced<K>> {
        if self.is_removed() || (old.is_empty() && new.is_empty()) {
            return None;
        }
        let walk = Walk::new(old, new, with_unchanged, in_initial_list);
        let mut inner = self.inner.lock();
        let replaced = inner.queue.push_walk(walk);
        self.settle(&mut inner);
        Some(replaced)
    }

    /// Wakes the handler's task.
    pub(crate) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// The informer's first list is in the cache, and its additions have been queued.
    pub(crate) fn informer_synced(&self) {
        let mut inner = self.inner.lock();
        inner.informer_synced = true;
        self.settle(&mut inner);
    }

    pub(crate) fn set_resync_period(&self, period: Option<Duration>) {
        *self.resync.lock() = period;
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.state.is_removed.load(Ordering::Acquire)
    }

    fn settle(&self, inner: &mut Inner<K>) {
        let done = inner.taken_initial == 0 && inner.queue.initial() == 0;
        if !inner.is_synced && inner.informer_synced && done && !self.is_removed() {
            inner.is_synced = true;
            self.state.synced.send_replace(true);
        }
    }

    /// Takes the next events out of the queue, in order. Also returns the queue's front.
    fn take(&self, taken: &mut Vec<Event<K>>) -> (u64, Taken<K>) {
        let mut inner = self.inner.lock();
        let result = inner.queue.take(TAKEN_MAX, taken);
        inner.taken_initial += result.n_initial;
        // A merge may have left no initial addition.
        self.settle(&mut inner);
        self.taken.store(taken.len(), Ordering::Relaxed);
        (inner.queue.front(), result)
    }

    /// A call with an initial addition has ended.
    fn handled_initial(&self) {
        let mut inner = self.inner.lock();
        inner.taken_initial = inner.taken_initial.saturating_sub(1);
        self.settle(&mut inner);
    }

    /// Waits until there are events, and returns the queue's front after them. Cancel safe: taken
    /// events are in `taken`.
    async fn next(&self, taken: &mut Vec<Event<K>>) -> u64 {
        loop {
            let (front, result) = self.take(taken);
            if let Some(unused) = result.unused {
                // Cancel safe: dropping this frees the rest at once.
                free(unused).await;
            }
            if !taken.is_empty() {
                return front;
            }
            if result.has_more {
                // A walk has looked at unchanged objects only.
                turn().await;
                continue;
            }
            // All that waited has merged into nothing.
            self.state.deliver(front);
            self.arrived.notified().await;
        }
    }

    /// Calls the handler until it is removed or the informer stops. The listener has ended when
    /// this is dropped, even if it was never polled.
    pub(crate) fn run<H: Handler<K>>(
        self: Arc<Self>,
        handler: H,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<K, H> {
        let ended = self.state.ended.clone().drop_guard();
        async move {
            let calls = self.calls(handler, stop);
            WITHIN.scope(self.state.ended.clone(), calls).await;
            self.remove();
            drop(ended);
        }
    }

    async fn calls<H: Handler<K>>(&self, mut handler: H, stop: CancellationToken) {
        let mut taken = Vec::new();
        // Once for all wakes: registering with a token for each wake costs more than the wake.
        let mut stopped = pin!(stop.cancelled());
        let mut removed = pin!(self.state.removed.cancelled());
        loop {
            let front = tokio::select! {
                biased;
                () = &mut stopped => break,
                () = &mut removed => break,
                front = self.next(&mut taken) => front,
            };
            for event in taken.drain(..) {
                if self.is_removed() || stop.is_cancelled() {
                    return;
                }
                self.taken.fetch_sub(1, Ordering::Relaxed);
                let is_initial = event.in_initial_list();
                let subject = Subject::of(&event);
                let call = async { handler.handle(event).await };
                let outcome = AssertUnwindSafe(call).catch_unwind().await;
                if is_initial {
                    // A call that panicked counts too, or the handler would never be synced
                    // (SHI-8).
                    self.handled_initial();
                }
                if let Err(panic) = outcome {
                    self.state.panics.fetch_add(1, Ordering::Relaxed);
                    if let Some(metrics) = &self.metrics {
                        metrics.handler_panicked();
                    }
                    subject.panicked(&*panic);
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        () = self.state.removed.cancelled() => return,
                        () = sleep(HANDLER_PANIC_PAUSE) => {}
                    }
                }
                tokio::task::coop::consume_budget().await;
            }
            self.state.deliver(front);
        }
    }
}

/// The object of a call, for the log if the call panics. Costs one reference count.
enum Subject<K> {
    Object(Object<K>),
    Key(Key),
}

impl<K> Subject<K> {
    fn of(event: &Event<K>) -> Self {
        match event.object() {
            Some(object) => Self::Object(object.clone()),
            None => Self::Key(event.key().clone()),
        }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) {
        let key = match self {
            Self::Object(object) => object.key(),
            Self::Key(key) => key,
        };
        let message = panic::message(panic);
        tracing::error!(%key, "an event handler panicked, and its event is skipped: {message}");
    }
}

impl<K: Send + Sync + 'static> Registered for Listener<K> {
    fn state(&self) -> &State {
        &self.state
    }

    fn remove(&self) {
        self.state.is_removed.store(true, Ordering::Release);
        self.state.removed.cancel();
        let cleared = self.inner.lock().queue.clear();
        // Without the lock.
        drop(cleared);
    }

    fn pending(&self) -> usize {
        if self.is_removed() {
            return 0;
        }
        self.inner.lock().queue.len() + self.taken.load(Ordering::Relaxed)
    }

    fn pushed(&self) -> u64 {
        self.inner.lock().queue.end()
    }

    fn resync_period(&self) -> Option<Duration> {
        *self.resync.lock()
    }
}
