//! Finalizers: cleanup before an object is deleted.

mod registry;

use std::{future::Future, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource;
use serde_json::{Value, json};
use setpoint_informer::Cacheable;

use crate::{
    client::{Api, ClientError},
    error::BoxError,
    reconciler::Action,
    request::Request,
};

pub use registry::{FinalizerNameError, Finalizers, FinalizersError};

/// Adds a finalizer to an object in memory; returns whether it was missing (UTL-6).
pub fn add_finalizer<K: Resource>(object: &mut K, name: &str) -> bool {
    if has_finalizer(object, name) {
        return false;
    }
    object.meta_mut().finalizers.get_or_insert_default().push(name.to_owned());
    true
}

/// Removes all occurrences of a finalizer from an object in memory; returns whether there was one
/// (UTL-6).
pub fn remove_finalizer<K: Resource>(object: &mut K, name: &str) -> bool {
    if !has_finalizer(object, name) {
        return false;
    }
    let finalizers = object.meta_mut().finalizers.get_or_insert_default();
    finalizers.retain(|finalizer| finalizer != name);
    if finalizers.is_empty() {
        object.meta_mut().finalizers = None;
    }
    true
}

/// Whether an object has a finalizer.
pub fn has_finalizer<K: Resource>(object: &K, name: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// What to do for an object with a finalizer.
#[derive(Debug, Clone)]
pub enum Finalize<K> {
    /// The object is not being deleted: reconcile it. The finalizer is set, so whatever is created
    /// now will be cleaned up.
    Apply(Arc<K>),
    /// The object is being deleted: clean up. It may be called again after it succeeded, so it must
    /// be idempotent.
    Cleanup(Arc<K>),
}

/// Why a pass with a finalizer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError {
    /// Reconciling failed.
    #[error("apply")]
    Apply(#[source] BoxError),
    /// The cleanup failed. The finalizer stays, and so does the object.
    #[error("clean up")]
    Cleanup(#[source] BoxError),
    /// The finalizer could not be added or removed. If the cache was behind, the patch's test
    /// fails: retry.
    #[error("{what} the finalizer {name}")]
    Patch {
        /// `add` or `remove`.
        what: &'static str,
        /// The finalizer.
        name: String,
        /// The client's error.
        #[source]
        source: ClientError,
    },
    /// The object has no name.
    #[error("the object has no name")]
    NoName,
}

/// Runs one pass over `object` with the finalizer `name` (`example.com/what-it-guards`).
///
/// | the object       | has the finalizer | what is done                                               |
/// |------------------|-------------------|------------------------------------------------------------|
/// | exists           | no                | the finalizer is added; once the server has it, `Apply`    |
/// | exists           | yes               | `Apply`                                                    |
/// | is being deleted | yes               | `Cleanup`; when that has succeeded, the finalizer is removed |
/// | is being deleted | no                | nothing: there is nothing to clean up                      |
///
/// So `Apply` is never called for an object whose deletion could be missed, and the object exists
/// until `Cleanup` has succeeded. The patches test the object's uid and what they change (the list
/// when adding, the entry when removing), so they never undo a concurrent write, nor one of another
/// object that has taken the name. Other parts of the object may change meanwhile. An object that
/// no longer exists when its finalizer is removed is not an error.
///
/// A closure that is stored before the call names the type of its argument, and that of its error:
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_runtime::{Action, BoxError, Context, Finalize, Request, finalizer};
/// # async fn example(request: Request, context: Context) -> Result<Action, BoxError> {
/// let maps = context.client().api::<ConfigMap>();
/// let Some(map) = maps.get(&request)? else { return Ok(Action::await_change()) };
/// let pass = async |finalize: Finalize<ConfigMap>| {
///     match finalize {
///         Finalize::Apply(map) => tracing::info!(name = map.metadata.name, "is there"),
///         Finalize::Cleanup(map) => tracing::info!(name = map.metadata.name, "is going"),
///     }
///     Ok::<_, BoxError>(Action::await_change())
/// };
/// Ok(finalizer(&maps, "example.com/dns", map, pass).await?)
/// # }
/// ```
///
/// # Errors
///
/// `pass` failed, or a patch did.
pub async fn finalizer<K, E, Fut>(
    api: &Api<K>,
    name: &str,
    object: Arc<K>,
    pass: impl FnOnce(Finalize<K>) -> Fut,
) -> Result<Action, FinalizerError>
where
    K: Cacheable,
    E: Into<BoxError>,
    Fut: Future<Output = Result<Action, E>>,
{
    let meta = object.meta();
    let Some(object_name) = meta.name.clone() else { return Err(FinalizerError::NoName) };
    let key = Request::new(meta.namespace.clone().unwrap_or_default(), object_name);
    let position = meta.finalizers.iter().flatten().position(|finalizer| finalizer == name);
    let failed = |what, source| FinalizerError::Patch { what, name: name.to_owned(), source };
    match (meta.deletion_timestamp.is_some(), position) {
        (false, None) => {
            let patched = api
                .json_patch(&key, &addition(meta, &[name]))
                .await
                .map_err(|source| failed("add", source))?;
            pass(Finalize::Apply(Arc::new(patched)))
                .await
                .map_err(|error| FinalizerError::Apply(error.into()))
        }
        (false, Some(_)) => {
            pass(Finalize::Apply(object)).await.map_err(|error| FinalizerError::Apply(error.into()))
        }
        (true, Some(position)) => {
            let patch = removal(meta, &[position]);
            let action = pass(Finalize::Cleanup(object))
                .await
                .map_err(|error| FinalizerError::Cleanup(error.into()))?;
            match api.json_patch(&key, &patch).await {
                Ok(_) => Ok(action),
                Err(error) if error.is_not_found() => Ok(action),
                Err(source) => Err(failed("remove", source)),
            }
        }
        (true, None) => Ok(Action::await_change()),
    }
}

/// The JSON patch that appends finalizers if the list is unchanged since it was read. A missing
/// list passes a test for null.
fn addition(meta: &ObjectMeta, names: &[&str]) -> Value {
    let mut operations = same_object(meta);
    match meta.finalizers.as_deref().unwrap_or_default() {
        [] => operations.extend([
            json!({"op": "test", "path": "/metadata/finalizers", "value": null}),
            json!({"op": "add", "path": "/metadata/finalizers", "value": names}),
        ]),
        present => {
            let test = json!({"op": "test", "path": "/metadata/finalizers", "value": present});
            operations.push(test);
            let add = |name| json!({"op": "add", "path": "/metadata/finalizers/-", "value": name});
            operations.extend(names.iter().map(add));
        }
    }
    Value::Array(operations)
}

/// The JSON patch that removes the finalizers at these positions if they are unchanged. From the
/// back, so that earlier positions stay valid.
fn removal(meta: &ObjectMeta, positions: &[usize]) -> Value {
    let mut operations = same_object(meta);
    let present = meta.finalizers.as_deref().unwrap_or_default();
    for (at, name) in present.iter().enumerate().rev().filter(|(at, _)| positions.contains(at)) {
        let path = format!("/metadata/finalizers/{at}");
        operations.push(json!({"op": "test", "path": path, "value": name}));
        operations.push(json!({"op": "remove", "path": path}));
    }
    Value::Array(operations)
}

/// Tests that no other object has taken the name meanwhile. It would lose its finalizer before its
/// cleanup.
fn same_object(meta: &ObjectMeta) -> Vec<Value> {
    let test = |uid| json!({"op": "test", "path": "/metadata/uid", "value": uid});
    meta.uid.iter().map(test).collect()
}
