//! The reconciler trait, and its results.

mod object;

use std::{error::Error, fmt, future::Future, sync::Arc, time::Duration};

pub use self::object::{ForObject, ObjectReconciler, for_object, for_object_with};

pub use crate::error::BoxError;
use crate::{context::Context, error::causes, request::Request};

/// Brings the actual state of one object to the desired one.
///
/// Called when the object may have changed, and when an earlier call requested it. A call may be
/// repeated, or be for an object that no longer exists. A reconciler therefore reads the current
/// state, and each of its steps must be idempotent. Different keys are reconciled concurrently, up
/// to the controller's number of workers. One key is never reconciled concurrently.
///
/// Every `Fn(R, Context) -> impl Future<Output = Result<Action, E>>` is a reconciler. What such a
/// closure captures, it clones for each pass, since the future may not borrow from the closure: a
/// bound `AsyncFn` would let it, but cannot say that the future is `Send`. [`with_state`] passes
/// shared state to a function without that.
///
/// ```
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_runtime::{Action, BoxError, Context, Controller, Request, Watch};
/// let prefix: Arc<str> = "web-".into();
/// let reconcile = move |request: Request, _context: Context| {
///     let prefix = prefix.clone();
///     async move {
///         if request.name.starts_with(&*prefix) {
///             tracing::info!(%request, "it has the prefix");
///         }
///         Ok::<_, BoxError>(Action::await_change())
///     }
/// };
/// let controller = Controller::builder("web").for_(Watch::<ConfigMap>::new()).build(reconcile);
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { drop(controller) });
/// ```
///
/// When the controller stops, running calls may finish, until the manager's deadline.
/// [`Context::stopping`] is cancelled then.
pub trait Reconciler<R = Request>: Send + Sync + 'static {
    /// The error of a failed pass: an error enum, `anyhow::Error`, `BoxError`.
    type Error: Into<BoxError>;

    /// Reconciles the object that `request` names.
    ///
    /// # Errors
    ///
    /// An error is retried with back-off, unless a [`Terminal`] is in its source chain.
    fn reconcile(
        &self,
        request: R,
        context: Context,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;
}

impl<R, F, Fut, E> Reconciler<R> for F
where
    F: Fn(R, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
    E: Into<BoxError>,
{
    type Error = E;

    fn reconcile(
        &self,
        request: R,
        context: Context,
    ) -> impl Future<Output = Result<Action, E>> + Send {
        self(request, context)
    }
}

/// A reconciler that passes `state` to `reconcile` in each pass, so that a plain function needs
/// neither a trait nor a closure that clones what it captures.
///
/// ```
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_runtime::{
/// #     Action, BoxError, Context, Controller, Request, Watch, reconciler::with_state,
/// # };
/// struct Dns {
///     zone: String,
/// }
///
/// async fn reconcile(
///     dns: Arc<Dns>, request: Request, _context: Context,
/// ) -> Result<Action, BoxError> {
///     tracing::info!("{}.{} is there", request.name, dns.zone);
///     Ok(Action::await_change())
/// }
///
/// let dns = Dns { zone: "example.com".to_owned() };
/// let controller = Controller::builder("dns")
///     .for_(Watch::<ConfigMap>::new())
///     .build(with_state(dns, reconcile));
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { drop(controller) });
/// ```
pub fn with_state<R, S, F, Fut, E>(
    state: impl Into<Arc<S>>,
    reconcile: F,
) -> impl Reconciler<R, Error = E>
where
    R: Send,
    S: Send + Sync + 'static,
    F: Fn(Arc<S>, R, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
    E: Into<BoxError>,
{
    let state = state.into();
    move |request, context| reconcile(state.clone(), request, context)
}

/// What a controller does with a key after a pass.
///
/// | the pass ended with                 | failures counted for the key | the key is reconciled again   | counted as      |
/// |-------------------------------------|------------------------------|-------------------------------|-----------------|
/// | [`Action::await_change`]            | reset                        | at a change                   | `success`       |
/// | [`Action::requeue_after`] above zero | reset                       | after that time, or at a change | `requeue_after` |
/// | [`Action::requeue_after`] zero      | reset                        | at a change                   | `success`       |
/// | [`Action::requeue`]                 | one more                     | with back-off, or at a change | `requeue`       |
/// | an error, a panic, a time-out       | one more                     | with back-off, or at a change | `error`         |
/// | a [`Terminal`] error                | unchanged                    | at a change                   | `error`, `terminal` |
///
/// In every row, a change during the pass causes one more pass at once, instead of the delay; or
/// after the [rest](Action::rest), if the action has one. A key that is requeued keeps the priority
/// it was handed out with, unless [`Action::priority`] or [`AtPriority`] names another.
///
/// Where the table says "one more", the key may instead be given up after
/// [`max_attempts`](crate::RateLimits::max_attempts). A
/// [time-out](crate::ControllerBuilder::reconcile_timeout) drops the pass, so unlike in
/// controller-runtime its result is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an action does nothing unless the reconciler returns it"]
#[non_exhaustive]
pub struct Action {
    /// When to reconcile the key again.
    pub requeue: Requeue,
    /// The priority of the requeue; `None` keeps the one that the key was handed out with.
    pub priority: Option<i32>,
    /// How long no further pass over the key begins; see [`Action::rest`].
    pub rest: Duration,
}

/// When a key is reconciled again after a pass that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Requeue {
    /// At a change only.
    #[default]
    Never,
    /// After this time, or at a change.
    After(Duration),
    /// With back-off, as after a failure.
    RateLimited,
}

impl Action {
    fn new(requeue: Requeue) -> Self {
        Self { requeue, priority: None, rest: Duration::ZERO }
    }

    /// Done: reconcile again at a change.
    pub fn await_change() -> Self {
        Self::new(Requeue::Never)
    }

    /// Reconcile again after `delay`, or at a change.
    pub fn requeue_after(delay: Duration) -> Self {
        Self::new(Requeue::After(delay))
    }

    /// Reconcile again with back-off, which doubles each time in a row, although nothing failed.
    pub fn requeue() -> Self {
        Self::new(Requeue::RateLimited)
    }

    /// Sets the priority of the requeue; higher goes first. It applies to the requeue only. A
    /// change adds the key with its own priority, and the higher of the two applies.
    pub fn priority(self, priority: i32) -> Self {
        Self { priority: Some(priority), ..self }
    }

    /// Begins no further pass over the key for this time after the pass. Changes meanwhile are
    /// merged into one pass at its end. Default: zero.
    ///
    /// For passes that look at many objects, each of which may change: if the rest is in proportion
    /// to their number, such passes take a bounded part of the processor. Unlike
    /// [`min_interval`](crate::RateLimits::min_interval), it may differ from pass to pass. A pass
    /// that fails does not rest.
    pub fn rest(self, time: Duration) -> Self {
        Self { rest: time, ..self }
    }
}

/// An error that a retry cannot fix: the key is not reconciled until a change.
///
/// Found anywhere in the chain of `source()` of the returned error. In an enum, mark the field
/// `#[source]`: `#[error(transparent)]` hides it. Displays as the wrapped error.
pub struct Terminal(BoxError);

impl Terminal {
    /// Marks `error` as not to be retried.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }

    /// The wrapped error.
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Terminal").field(&self.0).finish()
    }
}

impl fmt::Display for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Terminal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Whether a [`Terminal`] is this error or among its causes.
pub fn is_terminal(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|error| {
        let wrapped = error.downcast_ref::<AtPriority>();
        error.is::<Terminal>() || wrapped.is_some_and(|wrapped| is_terminal(&*wrapped.error))
    })
}

/// An error whose key is retried with another priority: the counterpart of [`Action::priority`] for
/// failures.
///
/// Found anywhere in the source chain, as [`Terminal`]; the outermost one applies. Displays as the
/// wrapped error.
pub struct AtPriority {
    priority: i32,
    error: BoxError,
}

impl AtPriority {
    /// `error`, retried at `priority`.
    pub fn new(priority: i32, error: impl Into<BoxError>) -> Self {
        Self { priority, error: error.into() }
    }

    /// The wrapped error.
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }

    /// The priority of the retry.
    pub fn priority(&self) -> i32 {
        self.priority
    }
}

impl fmt::Debug for AtPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtPriority").field(&self.priority).field(&self.error).finish()
    }
}

impl fmt::Display for AtPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for AtPriority {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// The priority that an error asks for, if any.
pub(crate) fn priority_of(error: &(dyn Error + 'static)) -> Option<i32> {
    causes(error).find_map(|error| error.downcast_ref::<AtPriority>()).map(AtPriority::priority)
}
