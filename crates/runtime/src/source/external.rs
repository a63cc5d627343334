//! Sources other than watches.

use std::{
    fmt,
    future::Future,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use setpoint_workqueue::{AddOptions, Tag, WorkQueue};
use tokio::sync::mpsc;

use super::{SourceStatus, retry::PanicCounts};
use crate::{error::BoxError, pass::Cause, request::RequestKey};

/// A source of keys other than a watched type: a message queue, a poll of a device, a timer.
///
/// It is started once, together with the controller's other sources, and the workers wait until its
/// start returns. So a start adds the existing keys and returns. Work that goes on is returned as a
/// [`SourceRun`], which the controller runs beside its workers until it stops. A start that does
/// not return fails the controller with its [sync
/// time-out](crate::ControllerBuilder::sync_timeout).
///
/// A source is never restarted. A restarted program builds its controllers again.
pub trait Source<R>: Send + 'static {
    /// Its name in logs and errors.
    fn name(&self) -> String;

    /// Starts to add keys. Dropped when the controller stops, or the time-out passes.
    ///
    /// # Errors
    ///
    /// An error fails the controller, and so the manager.
    fn start(
        self,
        keys: KeySink<R>,
    ) -> impl Future<Output = Result<SourceRun, BoxError>> + Send + 'static;
}

/// The work of a [`Source`] after its start.
#[must_use = "a source's run does nothing unless its start returns it"]
pub struct SourceRun(pub(crate) Option<BoxFuture<'static, Result<(), BoxError>>>);

impl SourceRun {
    /// Runs `run` beside the controller's workers. If it ends, only this source ends. If it fails,
    /// the controller fails. When the controller stops, it is dropped.
    pub fn new(run: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Self {
        Self(Some(run.boxed()))
    }

    /// No further work: all keys were added at the start, or are added from elsewhere.
    pub fn none() -> Self {
        Self(None)
    }
}

impl fmt::Debug for SourceRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceRun").field("goes_on", &self.0.is_some()).finish()
    }
}

/// A function as a [`Source`]; made by [`source_fn`].
pub struct SourceFn<F> {
    name: String,
    start: F,
}

/// A function as a [`Source`]: it gets the sink of keys, and its future is the source's start.
///
/// ```
/// # use std::time::Duration;
/// # use setpoint_runtime::{source::{KeySink, SourceRun, source_fn}, Request};
/// let source = source_fn("a clock", async |keys: KeySink<Request>| {
///     Ok(SourceRun::new(async move {
///         loop {
///             tokio::time::sleep(Duration::from_secs(60)).await;
///             keys.add(Request::cluster("every-minute"));
///         }
///     }))
/// });
/// # fn is_source(_: impl setpoint_runtime::source::Source<Request>) {}
/// # is_source(source);
/// ```
pub fn source_fn<F>(name: impl Into<String>, start: F) -> SourceFn<F> {
    SourceFn { name: name.into(), start }
}

impl<R, F, Fut> Source<R> for SourceFn<F>
where
    F: FnOnce(KeySink<R>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<SourceRun, BoxError>> + Send + 'static,
{
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(
        self,
        keys: KeySink<R>,
    ) -> impl Future<Output = Result<SourceRun, BoxError>> + Send + 'static {
        (self.start)(keys)
    }
}

impl<F> fmt::Debug for SourceFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceFn").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A type-erased source.
pub(crate) trait DynSource<R>: Send {
    fn name(&self) -> String;

    fn start(self: Box<Self>, keys: KeySink<R>) -> BoxFuture<'static, Result<SourceRun, BoxError>>;

    /// Its status, if it is a channel.
    fn channel(&self) -> Option<Arc<ChannelState>> {
        None
    }
}

pub(crate) struct External<S>(pub(crate) S);

impl<R: Send + 'static, S: Source<R>> DynSource<R> for External<S> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn start(self: Box<Self>, keys: KeySink<R>) -> BoxFuture<'static, Result<SourceRun, BoxError>> {
        self.0.start(keys).boxed()
    }
}

/// Adds keys to a controller's queue, for a [`Source`](super::Source). Cheap to clone. It may
/// outlive the controller; adding does nothing then.
///
/// Adding never blocks: the queue holds each key once.
pub struct KeySink<R> {
    queue: WorkQueue<R>,
    low_priority: i32,
}

impl<R: Clone + Eq + Hash + Send + 'static> KeySink<R> {
    pub(crate) fn new(queue: WorkQueue<R>, low_priority: i32) -> Self {
        Self { queue, low_priority }
    }

    /// Queues `key` at priority 0 (PQ-43).
    pub fn add(&self, key: R) {
        self.add_with(key, AddOptions::default());
    }

    /// Queues `key` in `delay`. If it is due earlier already, that stays.
    pub fn add_after(&self, key: R, delay: Duration) {
        self.add_with(key, AddOptions::default().after(delay));
    }

    /// Queues `key` with `options`.
    pub fn add_with(&self, key: R, mut options: AddOptions) {
        if options.tag == Tag::NONE {
            options.tag = Cause::External.tag();
        }
        self.queue.add_with(key, options);
    }

    /// The controller's low priority: for keys that exist already when the source starts (PQ-40).
    pub fn low_priority(&self) -> i32 {
        self.low_priority
    }

    /// Whether the controller has stopped and takes no more keys.
    pub fn is_closed(&self) -> bool {
        self.queue.is_shutting_down()
    }
}

impl<R> Clone for KeySink<R> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), low_priority: self.low_priority }
    }
}

impl<R> fmt::Debug for KeySink<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySink").field("low_priority", &self.low_priority).finish_non_exhaustive()
    }
}

/// The name of every channel.
const CHANNEL: &str = "a channel";

/// What a channel has done so far.
#[derive(Debug, Default)]
pub(crate) struct ChannelState {
    has_started: AtomicBool,
    has_ended: AtomicBool,
    panics: PanicCounts,
}

impl ChannelState {
    pub(super) fn status(&self) -> SourceStatus {
        let panics = self.panics.status();
        SourceStatus {
            resource: CHANNEL.to_owned(),
            has_synced: self.has_started.load(Ordering::Relaxed),
            has_stopped: self.has_ended.load(Ordering::Relaxed),
            degraded: None,
            panics: panics.n,
            last_panic: panics.last,
            unindexed: 0,
            last_unindexed: None,
            retrying: 0,
            lost: panics.n_lost,
        }
    }
}

/// Adds the keys that `map` returns for each received value. If `map` panics, the value is lost.
pub(crate) struct Channel<T, F> {
    receiver: mpsc::Receiver<T>,
    map: F,
    state: Arc<ChannelState>,
}

impl<T, F> Channel<T, F> {
    pub(crate) fn new(receiver: mpsc::Receiver<T>, map: F) -> Self {
        Self { receiver, map, state: Arc::default() }
    }
}

impl<T, R, F> DynSource<R> for Channel<T, F>
where
    T: Send + 'static,
    R: RequestKey,
    F: Fn(T) -> Vec<R> + Send + 'static,
{
    fn name(&self) -> String {
        CHANNEL.to_owned()
    }

    fn start(self: Box<Self>, keys: KeySink<R>) -> BoxFuture<'static, Result<SourceRun, BoxError>> {
        let Self { mut receiver, map, state } = *self;
        state.has_started.store(true, Ordering::Relaxed);
        let run = SourceRun::new(async move {
            while let Some(received) = receiver.recv().await {
                let mapped = state.panics.catch("the map", &CHANNEL, || map(received));
                if mapped.is_none() {
                    state.panics.lose();
                }
                mapped.into_iter().flatten().for_each(|key| keys.add(key));
            }
            state.has_ended.store(true, Ordering::Relaxed);
            Ok(())
        });
        std::future::ready(Ok(run)).boxed()
    }

    fn channel(&self) -> Option<Arc<ChannelState>> {
        Some(self.state.clone())
    }
}
