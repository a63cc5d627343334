//! The function that makes the world fit an object, and what it may answer.

mod object;

use std::{error::Error, fmt, future::Future, time::Duration};

pub use self::object::{ForObject, ObjectReconciler, for_object, for_object_with};

pub use crate::error::BoxError;
use crate::{context::Context, error::causes, request::Request};

/// Makes the world fit one object, each time it is called.
///
/// It is called when the object may have changed, and again whenever it asked for that; a call may
/// come twice or for an object that is gone. So it reads the present state, and every step it takes
/// may have been taken already. Different keys are reconciled at the same time, by as many workers
/// as the controller has; one key never is.
///
/// Every `Fn(R, Context) -> impl Future<Output = Result<Action, E>>` is a reconciler.
///
/// When the controller stops, a call that runs is let finish, until the manager's deadline;
/// [`Context::stopping`] tells it to hurry.
pub trait Reconciler<R = Request>: Send + Sync + 'static {
    /// Why a pass failed: an error enum, `anyhow::Error`, `BoxError`.
    type Error: Into<BoxError>;

    /// One pass over the object that `request` names.
    ///
    /// # Errors
    ///
    /// An error repeats the pass with back-off, unless a [`Terminal`] is among its causes.
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

/// What a controller does with a key after a pass.
///
/// | the pass ended with                 | failures counted for the key | the key comes back            | counted as      |
/// |-------------------------------------|------------------------------|-------------------------------|-----------------|
/// | [`Action::await_change`]            | forgotten                    | when something changes        | `success`       |
/// | [`Action::requeue_after`] above zero | forgotten                   | after that time, or a change  | `requeue_after` |
/// | [`Action::requeue_after`] zero      | forgotten                    | when something changes        | `success`       |
/// | [`Action::requeue`]                 | one more                     | with back-off, or at a change | `requeue`       |
/// | an error, a panic, a time-out       | one more                     | with back-off, or at a change | `error`         |
/// | a [`Terminal`] error                | as they were                 | when something changes        | `error`, `terminal` |
///
/// A change that comes during the pass causes one more pass at once in every row, instead of the
/// delay. In the rows that bring the key back by themselves it keeps the priority that it was
/// handed out with, unless [`Action::priority`] or [`AtPriority`] names another.
///
/// "One more" is also "given up" when the key may not fail more often: see
/// [`max_attempts`](crate::RateLimits::max_attempts). A time-out
/// [drops](crate::ControllerBuilder::reconcile_timeout) the pass, so that, unlike in
/// controller-runtime, what it would have returned is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an action does nothing unless the reconciler returns it"]
#[non_exhaustive]
pub struct Action {
    /// When to come back.
    pub requeue: Requeue,
    /// The priority to come back with; `None` keeps the one that the key was handed out with.
    pub priority: Option<i32>,
}

/// When a key comes back after a pass that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Requeue {
    /// When something changes.
    #[default]
    Never,
    /// After this time at the latest.
    After(Duration),
    /// As if the pass had failed: with back-off.
    RateLimited,
}

impl Action {
    fn new(requeue: Requeue) -> Self {
        Self { requeue, priority: None }
    }

    /// The object is as it should be: come back when something changes.
    pub fn await_change() -> Self {
        Self::new(Requeue::Never)
    }

    /// Come back after `delay`, or when something changes.
    pub fn requeue_after(delay: Duration) -> Self {
        Self::new(Requeue::After(delay))
    }

    /// Come back soon, with a wait that doubles each time in a row, although nothing failed.
    pub fn requeue() -> Self {
        Self::new(Requeue::RateLimited)
    }

    /// The same, coming back with this priority: the higher, the sooner. It counts where the key
    /// comes back by itself; a change gives its own priority, and of two the higher holds.
    pub fn priority(self, priority: i32) -> Self {
        Self { priority: Some(priority), ..self }
    }
}

/// An error that repeating cannot mend: the key is left alone until something changes.
///
/// Recognized anywhere among the causes of what a reconciler returns, that is, by walking
/// `source()`: hold it in an enum with `#[source]`, for `#[error(transparent)]` hides it. It
/// displays as the error it wraps.
pub struct Terminal(BoxError);

impl Terminal {
    /// Marks `error` as not worth repeating.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }

    /// The error that was marked.
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

/// An error whose key comes back with another priority than it had: what [`Action::priority`] is to
/// a success.
///
/// Recognized anywhere among the causes, as [`Terminal`] is; the outermost counts. It displays as
/// the error it wraps.
pub struct AtPriority {
    priority: i32,
    error: BoxError,
}

impl AtPriority {
    /// `error`, to be retried at `priority`.
    pub fn new(priority: i32, error: impl Into<BoxError>) -> Self {
        Self { priority, error: error.into() }
    }

    /// The error that was wrapped.
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }

    /// The priority to retry at.
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

/// The priority that an error asks for.
pub(crate) fn priority_of(error: &(dyn Error + 'static)) -> Option<i32> {
    causes(error).find_map(|error| error.downcast_ref::<AtPriority>()).map(AtPriority::priority)
}
