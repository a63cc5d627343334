//! A reconciler that gets the object first.

use std::{fmt, future::Future, sync::Arc};

use setpoint_informer::Cacheable;

use super::{Action, BoxError, Reconciler};
use crate::{context::Context, request::Request};

/// Makes the world fit one object, as the cache has it: a [`Reconciler`] that need not look it up.
/// Made one by [`for_object`].
///
/// Every `Fn(Arc<K>, Context) -> impl Future<Output = Result<Action, E>>` is one. What an object
/// leaves behind when it is gone is for a [finalizer](crate::finalizer()) or for owner references:
/// there is no call for an object that is not there any more.
pub trait ObjectReconciler<K>: Send + Sync + 'static {
    /// Why a pass failed.
    type Error: Into<BoxError>;

    /// One pass over `object`, which may be older than the server's, and is nobody's to change:
    /// clone what is to be written.
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

/// A reconciler that gets the object from the cache and hands it to `reconciler`; a key without an
/// object is a success, and calls nobody (RES-14). The controller is to be
/// [`for_`](crate::ControllerBuilder::for_) the type, or to watch it.
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

/// [`for_object`] for a type known at run time.
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
