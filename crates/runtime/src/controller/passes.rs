//! The passes of a reconciler, whatever its type.

use std::future;

use tokio_util::sync::ReusableBoxFuture;

use crate::{
    context::Context,
    error::BoxError,
    reconciler::{Action, Reconciler},
    request::RequestKey,
};

/// A type-erased reconciler, so that what workers do is compiled once for all reconcilers.
pub(super) trait DynReconciler<R>: Send + Sync {
    /// Puts a pass over a key into `place`, where the last one was. Starts nothing.
    fn begin<'a>(&'a self, place: &mut Place<'a>, key: R, context: Context);
}

/// Where a pass is while it runs. Passes of one reconciler use the same memory, so that only the
/// first one allocates it.
pub(super) type Place<'a> = ReusableBoxFuture<'a, Result<Action, BoxError>>;

pub(super) struct Erased<T>(pub(super) T);

impl<R: RequestKey, T: Reconciler<R>> DynReconciler<R> for Erased<T> {
    fn begin<'a>(&'a self, place: &mut Place<'a>, key: R, context: Context) {
        // The call itself may panic, too, so it is made by the first poll.
        place.set(async move { self.0.reconcile(key, context).await.map_err(Into::into) });
    }
}

/// The passes of one worker, one after the other.
pub(super) struct Passes<'a, R> {
    reconciler: &'a dyn DynReconciler<R>,
    place: Place<'a>,
}

impl<'a, R> Passes<'a, R> {
    pub(super) fn new(reconciler: &'a dyn DynReconciler<R>) -> Self {
        Self { reconciler, place: Place::new(future::pending()) }
    }

    /// A pass over a key, which has ended when [`cancel`](Self::cancel) or the next one is called.
    pub(super) fn begin(&mut self, key: R, context: Context) -> &mut Place<'a> {
        self.reconciler.begin(&mut self.place, key, context);
        &mut self.place
    }

    /// Drops what a pass holds that did not run to its end.
    pub(super) fn cancel(&mut self) {
        self.place.set(future::pending());
    }
}
