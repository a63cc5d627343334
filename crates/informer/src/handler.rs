//! Handlers of changes, and their queues.

mod filter;
mod listener;
mod queue;
mod walk;

pub use filter::FilteringHandler;
pub use listener::TAKEN_MAX;
pub(crate) use listener::{Listener, Registered};
pub(crate) use queue::Replaced;

use crate::event::Event;
use crate::failure::Stopped;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The number of pending notifications above which they are merged by key.
///
/// 1024, at which client-go warns of a slow handler. A relist, a resync and the objects that a new
/// handler finds wait as one walk between two states of the cache, of which a queue has at most
/// two. So a handler that never returns holds at most this many notifications, four states of the
/// cache, and three notifications of each object before, between and after the walks.
pub const HANDLER_QUEUE_MAX: usize = 1024;

/// The pause after a panic of a handler (SHI-8): 1 s, as client-go.
pub const HANDLER_PANIC_PAUSE: Duration = Duration::from_secs(1);

/// The shortest resync period; a shorter one is raised to it (SHI-20 b).
pub const RESYNC_MIN: Duration = Duration::from_secs(1);

/// Receives changes, one at a time and in order (SHI-4).
///
/// Any `FnMut(Event<K>)` is a handler; it should be fast, for instance enqueue a key. Implement the
/// trait for a handler that awaits; it delays neither other handlers nor the cache.
pub trait Handler<K>: Send + 'static {
    /// Handles one event. The next call starts after the future has ended.
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send;
}

impl<K: Send + Sync + 'static, F: FnMut(Event<K>) + Send + 'static> Handler<K> for F {
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send {
        self(event);
        std::future::ready(())
    }
}

/// Options of one handler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// The resync period (SHI-20): zero is never, `None` is the informer's period.
    ///
    /// Raised to [`RESYNC_MIN`] and to a multiple of the informer's period. An informer without a
    /// period has no resyncs.
    pub resync: Option<Duration>,
    /// The number of pending notifications above which they are merged by key.
    ///
    /// A handler that gets merged notifications ends in the same state as with all of them. It does
    /// not see states that came and went meanwhile, which readers of the cache may have seen: the
    /// `b` of an update from `a` to `c`, or an object that was added and deleted.
    pub queue_max: usize,
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self { resync: None, queue_max: HANDLER_QUEUE_MAX }
    }
}

impl HandlerOptions {
    /// Sets [`HandlerOptions::resync`].
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Sets [`HandlerOptions::queue_max`].
    pub fn queue_max(mut self, queue_max: usize) -> Self {
        self.queue_max = queue_max;
        self
    }
}

/// A handler cannot wait in a call for the end of that call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a handler waits for its own removal in a call")]
pub struct WithinCall;

/// The registration of a handler at an informer. Dropping it does not remove the handler.
#[derive(Clone)]
pub struct HandlerRegistration(pub(crate) Arc<dyn Registered>);

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRegistration")
            .field("has_synced", &self.has_synced())
            .field("pending", &self.pending())
            .field("panics", &self.panics())
            .field("resync_period", &self.resync_period())
            .finish()
    }
}

impl HandlerRegistration {
    /// Whether the informer has synced and the handler has handled every initial `Added` (SHI-9).
    pub fn has_synced(&self) -> bool {
        *self.0.state().synced.borrow()
    }

    /// Waits for [`has_synced`](Self::has_synced).
    ///
    /// # Errors
    /// If the handler is removed or its informer ends first.
    pub async fn synced(&self) -> Result<(), Stopped> {
        let state = self.0.state();
        let mut synced = state.synced.subscribe();
        tokio::select! {
            biased;
            result = synced.wait_for(|synced| *synced) => result.map(drop).map_err(|_| Stopped),
            () = state.ended.cancelled() => Err(Stopped),
        }
    }

    /// Removes the handler: a running call ends, and no other starts. Waiting notifications are
    /// dropped. Idempotent (SHI-7).
    pub fn remove(&self) {
        self.0.remove();
    }

    /// Removes the handler and waits for a running call.
    ///
    /// # Errors
    /// If it is awaited within that call, which would wait for itself. The handler is removed then,
    /// and the running call is the last (SHI-7). If a call awaits another task that awaits this, it
    /// is not detected, and never ends.
    pub async fn remove_and_wait(&self) -> Result<(), WithinCall> {
        self.0.remove();
        if listener::is_within(self.0.state()) {
            return Err(WithinCall);
        }
        self.0.state().ended.cancelled().await;
        Ok(())
    }

    /// About how many notifications wait; a relist counts with all its objects. A handler is too
    /// slow if this stays above its `queue_max`.
    pub fn pending(&self) -> usize {
        self.0.pending()
    }

    /// Waits until the handler has been called with everything that waits now, or is removed.
    /// Cancel safe.
    ///
    /// After [`Lister::at_least`](crate::Lister::at_least) this includes that version.
    pub async fn delivered(&self) {
        let (state, wanted) = (self.0.state(), self.0.pushed());
        tokio::select! {
            biased;
            () = state.delivered(wanted) => {}
            () = state.ended.cancelled() => {}
        }
    }

    /// The number of calls that have panicked.
    pub fn panics(&self) -> u64 {
        self.0.state().panics.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The effective resync period by SHI-20; `None` for never.
    pub fn resync_period(&self) -> Option<Duration> {
        self.0.resync_period()
    }
}
