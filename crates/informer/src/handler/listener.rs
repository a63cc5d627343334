//! One handler with its queue, driven by the informer's worker.
use super::queue::Queue;
use super::{HANDLER_PANIC_PAUSE, Handler, HandlerOptions};
use crate::event::Event;
use futures::FutureExt;
use parking_lot::Mutex;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// What a registration reaches of its listener without knowing the type of its objects.
pub(crate) trait Registered: Send + Sync {
    fn state(&self) -> &State;
    fn remove(&self);
    fn pending(&self) -> usize;
    fn resync_period(&self) -> Option<Duration>;
}

/// The states of a listener that others may await.
pub(crate) struct State {
    pub(crate) synced: watch::Sender<bool>,
    /// No further call is made.
    pub(crate) removed: CancellationToken,
    /// No call is running, and none will be made.
    pub(crate) ended: CancellationToken,
    pub(crate) panics: AtomicU64,
}

/// One handler's queue. Pushing never waits and never fails.
///
/// # Theory
///
/// The worker pushes under its distribution lock; one task pops and calls the handler. The handler is synced once the
/// informer is and no initial addition is waiting or being handled; both facts change under the queue's lock.
pub(crate) struct Listener<K> {
    inner: Mutex<Inner<K>>,
    arrived: Notify,
    state: State,
    resync: Mutex<Option<Duration>>,
}

struct Inner<K> {
    queue: Queue<K>,
    informer_synced: bool,
    handling_initial: bool,
}

impl<K: Send + Sync + 'static> Listener<K> {
    pub(crate) fn new(options: &HandlerOptions) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                queue: Queue::new(options.queue_max),
                informer_synced: false,
                handling_initial: false,
            }),
            arrived: Notify::new(),
            state: State {
                synced: watch::Sender::new(false),
                removed: CancellationToken::new(),
                ended: CancellationToken::new(),
                panics: AtomicU64::new(0),
            },
            resync: Mutex::new(None),
        })
    }

    pub(crate) fn push(&self, event: Event<K>) {
        if self.state.removed.is_cancelled() {
            return;
        }
        let mut inner = self.inner.lock();
        inner.queue.push(event);
        self.settle(&inner);
        drop(inner);
        self.arrived.notify_one();
    }

    /// The informer's first list is in the cache, and its additions have been pushed.
    pub(crate) fn informer_synced(&self) {
        let mut inner = self.inner.lock();
        inner.informer_synced = true;
        self.settle(&inner);
    }

    pub(crate) fn set_resync_period(&self, period: Option<Duration>) {
        *self.resync.lock() = period;
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.state.removed.is_cancelled()
    }

    fn settle(&self, inner: &Inner<K>) {
        let done = !inner.handling_initial && inner.queue.initial() == 0;
        if inner.informer_synced && done && !self.is_removed() {
            self.state.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }

    fn pop(&self) -> Option<Event<K>> {
        let mut inner = self.inner.lock();
        let event = inner.queue.pop()?;
        inner.handling_initial = event.in_initial_list();
        Some(event)
    }

    fn handled(&self) {
        let mut inner = self.inner.lock();
        inner.handling_initial = false;
        self.settle(&inner);
    }

    async fn next(&self) -> Event<K> {
        loop {
            if let Some(event) = self.pop() {
                return event;
            }
            self.arrived.notified().await;
        }
    }

    /// Calls the handler until it is removed or the informer stops. The listener has ended when this is dropped, run or not.
    pub(crate) fn run<H: Handler<K>>(
        self: Arc<Self>,
        handler: H,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<K, H> {
        let ended = self.state.ended.clone().drop_guard();
        async move {
            self.calls(handler, stop).await;
            self.remove();
            drop(ended);
        }
    }

    async fn calls<H: Handler<K>>(&self, mut handler: H, stop: CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.state.removed.cancelled() => break,
                event = self.next() => event,
            };
            let key = event.key().clone();
            let call = async { handler.handle(event).await };
            let outcome = AssertUnwindSafe(call).catch_unwind().await;
            // A call that panicked counts as made, or the handler would never be synced (SHI-8).
            self.handled();
            if let Err(panic) = outcome {
                self.state.panics.fetch_add(1, Ordering::Relaxed);
                let said = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or_default();
                tracing::error!(%key, "an event handler panicked, and its event is skipped: {said}");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    () = self.state.removed.cancelled() => break,
                    () = sleep(HANDLER_PANIC_PAUSE) => {}
                }
            }
            tokio::task::coop::consume_budget().await;
        }
    }
}

impl<K: Send + Sync + 'static> Registered for Listener<K> {
    fn state(&self) -> &State {
        &self.state
    }

    fn remove(&self) {
        self.state.removed.cancel();
        self.inner.lock().queue.clear();
    }

    fn pending(&self) -> usize {
        self.inner.lock().queue.len()
    }

    fn resync_period(&self) -> Option<Duration> {
        *self.resync.lock()
    }
}
