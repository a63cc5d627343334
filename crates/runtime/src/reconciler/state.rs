//! Reconcilers that are functions of a state.

use std::{fmt, future::Future, sync::Arc};

use super::{Action, BoxError, Reconciler};
use crate::context::Context;

/// A [`Reconciler`] around a function and its state; made by [`with_state`].
pub struct WithState<S, F> {
    state: Arc<S>,
    reconcile: F,
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
pub fn with_state<S, F>(state: impl Into<Arc<S>>, reconcile: F) -> WithState<S, F> {
    WithState { state: state.into(), reconcile }
}

impl<R, S, F, Fut, E> Reconciler<R> for WithState<S, F>
where
    R: Send,
    S: Send + Sync + 'static,
    F: Fn(Arc<S>, R, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
    E: Into<BoxError>,
{
    type Error = E;

    fn reconcile(
        &self,
        request: R,
        context: Context,
    ) -> impl Future<Output = Result<Action, E>> + Send {
        (self.reconcile)(self.state.clone(), request, context)
    }
}

impl<S: fmt::Debug, F> fmt::Debug for WithState<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithState").field("state", &self.state).finish_non_exhaustive()
    }
}
