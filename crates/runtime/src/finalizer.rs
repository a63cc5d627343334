//! A finalizer: cleaning up before an object may go.

mod registry;

use std::{future::Future, sync::Arc};

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

/// Puts a finalizer on an object, and says whether it was not there. Nothing is written to the
/// server (UTL-6).
pub fn add_finalizer<K: Resource>(object: &mut K, name: &str) -> bool {
    if has_finalizer(object, name) {
        return false;
    }
    object.meta_mut().finalizers.get_or_insert_default().push(name.to_owned());
    true
}

/// Takes all copies of a finalizer off an object, and says whether there was one. Nothing is
/// written to the server (UTL-6).
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

/// What is to be done for an object that has a finalizer.
#[derive(Debug, Clone)]
pub enum Finalize<K> {
    /// It is to be there: make the world fit it. Its finalizer is in place, so whatever is made now
    /// will be cleaned up.
    Apply(Arc<K>),
    /// It is being deleted: undo everything. May be called again after it succeeded, so what is
    /// gone already is fine.
    Cleanup(Arc<K>),
}

/// Why a pass under a finalizer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError {
    /// Making the world fit failed.
    #[error("apply")]
    Apply(#[source] BoxError),
    /// Cleaning up failed: the finalizer stays, and so does the object.
    #[error("clean up")]
    Cleanup(#[source] BoxError),
    /// The finalizer could not be put on or taken off. When the cache was behind, a test of the
    /// patch fails: come back.
    #[error("{what} the finalizer {name}")]
    Patch {
        /// `add` or `remove`.
        what: &'static str,
        /// The finalizer.
        name: String,
        /// What the server says.
        #[source]
        source: ClientError,
    },
    /// The object has no name.
    #[error("the object has no name")]
    NoName,
}

/// Runs one pass over `object` under the finalizer `name` (`example.com/what-it-guards`).
///
/// | the object     | has the finalizer | what is done                                                 |
/// |----------------|-------------------|--------------------------------------------------------------|
/// | is to be there | no                | the finalizer is put on; once the server has it, `Apply`     |
/// | is to be there | yes               | `Apply`                                                      |
/// | is deleted     | yes               | `Cleanup`; when that has succeeded, the finalizer is taken off |
/// | is deleted     | no                | nothing: it is not, or no longer, ours                       |
///
/// So `Apply` is never called on an object whose deletion could pass unnoticed, and the object
/// outlives `Cleanup`. The patches test what they change, the list when adding and the entry when
/// removing, so a write from elsewhere in between is never undone; other parts of the object may
/// change meanwhile. An object that has gone already is not an error when the finalizer is taken
/// off.
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
    let finalizers = meta.finalizers.clone().unwrap_or_default();
    let position = finalizers.iter().position(|finalizer| finalizer == name);
    let failed = |what, source| FinalizerError::Patch { what, name: name.to_owned(), source };
    match (meta.deletion_timestamp.is_some(), position) {
        (false, None) => {
            let patched = api
                .json_patch(&key, &addition(&[name], &finalizers))
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
            let action = pass(Finalize::Cleanup(object))
                .await
                .map_err(|error| FinalizerError::Cleanup(error.into()))?;
            match api.json_patch(&key, &removal(name, position)).await {
                Ok(_) => Ok(action),
                Err(error) if error.is_not_found() => Ok(action),
                Err(source) => Err(failed("remove", source)),
            }
        }
        (true, None) => Ok(Action::await_change()),
    }
}

/// The JSON patch that appends finalizers to a list that is still as it was read. A test of a
/// missing member for null passes.
fn addition(names: &[&str], finalizers: &[String]) -> Value {
    if finalizers.is_empty() {
        return json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": names},
        ]);
    }
    let mut operations =
        vec![json!({"op": "test", "path": "/metadata/finalizers", "value": finalizers})];
    operations.extend(
        names
            .iter()
            .map(|name| json!({"op": "add", "path": "/metadata/finalizers/-", "value": name})),
    );
    Value::Array(operations)
}

/// The JSON patch that removes a finalizer that is still where it was read.
fn removal(name: &str, position: usize) -> Value {
    let path = format!("/metadata/finalizers/{position}");
    json!([
        {"op": "test", "path": path, "value": name},
        {"op": "remove", "path": path},
    ])
}
