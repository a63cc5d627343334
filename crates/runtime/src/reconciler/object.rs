//! Reconcilers that get the object instead of its key.

use std::{fmt, future::Future, sync::Arc};

use setpoint_informer::Cacheable;

use super::{Action, BoxError, Reconciler};
use crate::{context::Context, request::Request};

/// Reconciles one object as it is in the cache. [`for_object`] makes a [`Reconciler`] of it.
///
/// Every `Fn(Arc<K>, Context) -> impl Future<Output = Result<Action, E>>` is one. It is not called
/// for an object that is gone. Use a [finalizer](crate::finalizer()) or owner references for
/// cleanup.
pub trait ObjectReconciler<K>: Send + Sync + 'static {
    /// The error of a failed pass.
    type Error: Into<BoxError>;

    /// Reconciles `object`. The object may be older than the server's. It is shared and read-only:
    /// clone it to write it.
    ///
    /// # Errors
    ///
    /// As [`Reconciler::reconcile`].
    fn reconcile(
        &self,
        object: Arc<K>,
        context: Context,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;
}

impl<K, F, Fut, E> ObjectReconciler<K> for F
where
    F: Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
    E: Into<BoxError>,
{
    type Error = E;

    fn reconcile(
        &self,
        object: Arc<K>,
        context: Context,
    ) -> impl Future<Output = Result<Action, E>> + Send {
        self(object, context)
    }
}

/// A [`Reconciler`] around an [`ObjectReconciler`]; made by [`for_object`].
pub struct ForObject<K: Cacheable, T> {
    dynamic_type: K::DynamicType,
    reconciler: T,
}

/// A reconciler that gets the object from the cache and passes it to `reconciler`. If the object is
/// gone, the pass succeeds without a call (RES-14). The controller must be
/// [`for_`](crate::ControllerBuilder::for_) the type, or watch it.
///
/// ```
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_runtime::{Action, BoxError, Context, Controller, Watch, reconciler::for_object};
/// let controller = Controller::builder("config")
///     .for_(Watch::<ConfigMap>::new())
///     .build(for_object(async |config: Arc<ConfigMap>, context: Context| {
///         tracing::info!(name = config.metadata.name, "seen by {}", context.controller());
///         Ok::<_, BoxError>(Action::await_change())
///     }));
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { drop(controller) });
/// ```
pub fn for_object<K, T>(reconciler: T) -> ForObject<K, T>
where
    K: Cacheable,
    K::DynamicType: Default,
    T: ObjectReconciler<K>,
{
    for_object_with(K::DynamicType::default(), reconciler)
}

/// [`for_object`] for a type that is known at run time only.
pub fn for_object_with<K: Cacheable, T: ObjectReconciler<K>>(
    dynamic_type: K::DynamicType,
    reconciler: T,
) -> ForObject<K, T> {
    ForObject { dynamic_type, reconciler }
}

impl<K, T> Reconciler<Request> for ForObject<K, T>
where
    K: Cacheable,
    K::DynamicType: Clone,
    T: ObjectReconciler<K>,
{
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let api = context.client().api_with::<K>(self.dynamic_type.clone());
        match api.get(&request)? {
            Some(object) => self.reconciler.reconcile(object, context).await.map_err(Into::into),
            None => Ok(Action::await_change()),
        }
    }
}

impl<K: Cacheable, T> fmt::Debug for ForObject<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForObject")
            .field("kind", &K::kind(&self.dynamic_type))
            .finish_non_exhaustive()
    }
}
