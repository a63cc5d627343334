//! Reconcilers whose passes are boxed.

use setpoint_runtime::{Action, BoxError, Context, Reconciler, Request};

/// A reconciler of this crate: what it does with one key. [`Boxed`] makes a [`Reconciler`] of it.
pub(crate) trait BoxedReconciler: Send + Sync + 'static {
    /// The error of a failed pass.
    type Error: Into<BoxError>;

    /// As [`Reconciler::reconcile`].
    fn pass(
        &self,
        request: &Request,
        context: &Context,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;
}

/// Boxes each pass, so that a worker that waits for work is small: most passes hold several objects
/// and requests, and most workers wait.
pub(crate) struct Boxed<T>(pub(crate) T);

impl<T: BoxedReconciler> Reconciler for Boxed<T> {
    type Error = T::Error;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, T::Error> {
        Box::pin(self.0.pass(&request, &context)).await
    }
}
