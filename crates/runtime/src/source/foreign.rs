//! Sources that are no watches: anybody's.

use std::{fmt, future::Future};

use futures::{FutureExt, future::BoxFuture};

use super::KeySink;
use crate::error::BoxError;

/// Where keys come from, other than a watched type: a message queue, a poll of a device, a clock.
///
/// It is started once, together with the controller's other sources, and the controller's workers
/// wait for its start to return. So a start adds what is there already and returns; what goes on,
/// it leaves in a [`SourceRun`], which the controller runs beside its workers until it stops. A
/// start that waits for what goes on does not return, and then fails the controller with its [sync
/// time-out](crate::ControllerBuilder::sync_timeout), which says so.
///
/// Started again it never is: each start of a program builds its controllers anew.
pub trait Source<R>: Send + 'static {
    /// What it is called in logs and errors.
    fn name(&self) -> String;

    /// Begins to add keys. Dropped where it waits when the controller stops, or its time is over.
    ///
    /// # Errors
    ///
    /// An error fails the controller, and so its manager.
    fn start(
        self,
        keys: KeySink<R>,
    ) -> impl Future<Output = Result<SourceRun, BoxError>> + Send + 'static;
}

/// What goes on of a [`Source`] after its start.
#[must_use = "a source's run does nothing unless its start returns it"]
pub struct SourceRun(pub(crate) Option<BoxFuture<'static, Result<(), BoxError>>>);

impl SourceRun {
    /// `run` goes on beside the controller's workers: until it ends, which ends the source and
    /// nothing else; until it fails, which fails the controller; or until the controller stops,
    /// which drops it where it waits.
    pub fn new(run: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Self {
        Self(Some(run.boxed()))
    }

    /// Nothing goes on: all was added at the start, or somebody else adds.
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

/// A function as a [`Source`]: it is given the way into the queue, and its future is the start.
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

/// A source whose type is forgotten.
pub(crate) trait DynSource<R>: Send {
    fn name(&self) -> String;

    fn start(self: Box<Self>, keys: KeySink<R>) -> BoxFuture<'static, Result<SourceRun, BoxError>>;
}

pub(crate) struct Foreign<S>(pub(crate) S);

impl<R: Send + 'static, S: Source<R>> DynSource<R> for Foreign<S> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn start(self: Box<Self>, keys: KeySink<R>) -> BoxFuture<'static, Result<SourceRun, BoxError>> {
        self.0.start(keys).boxed()
    }
}
