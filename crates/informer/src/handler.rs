//! Handlers: who is told of changes, and how fast each may be.

mod filter;
mod listener;
mod queue;

pub use filter::FilteringHandler;
pub use listener::TAKEN_MAX;
pub(crate) use listener::{Listener, Registered};

use crate::event::Event;
use crate::status::Stopped;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How many notifications a handler may have waiting before they are merged by key.
///
/// 1024, where client-go starts to complain about a slow handler. Beyond it each key has at most
/// one notification waiting, so that a handler which never returns holds at most the limit and one
/// notification per object it knows.
pub const HANDLER_QUEUE_MAX: usize = 1024;

/// How long a handler rests after it has panicked (SHI-8).
///
/// 1 s, as client-go waits before it calls a crashed handler again.
pub const HANDLER_PANIC_PAUSE: Duration = Duration::from_secs(1);

/// The shortest resync period; a shorter one is raised to it (SHI-20 b).
pub const RESYNC_MIN: Duration = Duration::from_secs(1);

/// Somebody who is told of changes, one at a time and in order (SHI-4).
///
/// Any `FnMut(Event<K>)` is a handler; it should be quick, as enqueuing a key is. Implement the
/// trait for one that waits: whatever it does delays no other handler and no cache.
pub trait Handler<K>: Send + 'static {
    /// Takes one event. The next call is made when the future has ended.
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send;
}

impl<K: Send + Sync + 'static, F: FnMut(Event<K>) + Send + 'static> Handler<K> for F {
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send {
        self(event);
        std::future::ready(())
    }
}

/// How one handler wants to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// How often to be told again of every object (SHI-20): zero is never, `None` is the informer's
    /// period.
    ///
    /// Raised to [`RESYNC_MIN`] and up to a multiple of the informer's period. An informer without
    /// a period resyncs nobody.
    pub resync: Option<Duration>,
    /// How many notifications may wait before they are merged by key.
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

/// A handler's call cannot wait for its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the handler is removed, and its removal is awaited by its own call")]
pub struct WithinCall;

/// A handler's place at its informer. Dropping it leaves the handler where it is.
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
    /// Whether the handler has been told of everything that was there at the start: the informer
    /// has synced and every initial `Added` has been handled (SHI-9).
    pub fn has_synced(&self) -> bool {
        *self.0.state().synced.borrow()
    }

    /// Waits for [`has_synced`](Self::has_synced).
    ///
    /// # Errors
    /// When the handler is removed or its informer ends first.
    pub async fn synced(&self) -> Result<(), Stopped> {
        let state = self.0.state();
        let mut synced = state.synced.subscribe();
        tokio::select! {
            biased;
            result = synced.wait_for(|synced| *synced) => result.map(drop).map_err(|_| Stopped),
            () = state.ended.cancelled() => Err(Stopped),
        }
    }

    /// Removes the handler: no call starts after the one that may be running. What waits is
    /// dropped. Idempotent (SHI-7).
    pub fn remove(&self) {
        self.0.remove();
    }

    /// Removes the handler and waits for a call that is running.
    ///
    /// # Errors
    /// When it is awaited inside of that very call, which would wait for itself: the handler is
    /// removed then, and what runs is the last call (SHI-7). A call that awaits a task of its own
    /// that awaits this cannot be told, and never ends.
    pub async fn remove_and_wait(&self) -> Result<(), WithinCall> {
        self.0.remove();
        if listener::is_within(self.0.state()) {
            return Err(WithinCall);
        }
        self.0.state().ended.cancelled().await;
        Ok(())
    }

    /// How many notifications wait. A gauge: the handler is too slow while this stays above its
    /// `queue_max`.
    pub fn pending(&self) -> usize {
        self.0.pending()
    }

    /// Waits until the handler was called with everything that waits now, or is removed. Cancel
    /// safe: it only looks.
    ///
    /// After [`Lister::at_least`](crate::Lister::at_least), the handler has then been told of that
    /// version, too.
    pub async fn delivered(&self) {
        let (state, wanted) = (self.0.state(), self.0.pushed());
        tokio::select! {
            biased;
            () = state.delivered(wanted) => {}
            () = state.ended.cancelled() => {}
        }
    }

    /// How many calls have panicked.
    pub fn panics(&self) -> u64 {
        self.0.state().panics.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// How often the handler is told again of every object, after the rules of SHI-20; `None` for
    /// never.
    pub fn resync_period(&self) -> Option<Duration> {
        self.0.resync_period()
    }
}
