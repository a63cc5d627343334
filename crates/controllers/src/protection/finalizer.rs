//! Finalizers of objects that are being deleted.

use crate::api::{Api, RequestError, ignore_not_found};
use kube_client::Resource;
use kube_core::metadata::PartialObjectMeta;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::meta::ObjectExt;
use setpoint_runtime::Predicate;

/// Matches objects that are being deleted and have the finalizer.
pub(super) fn being_deleted<K>(finalizer: &'static str) -> Predicate<PartialObjectMeta<K>>
where
    PartialObjectMeta<K>: Resource + 'static,
{
    that(finalizer, |is_being_deleted, is_protected| is_being_deleted && is_protected)
}

/// Matches objects that are being deleted and have the finalizer, and those that are not and lack
/// it.
pub(super) fn wrongly_protected<K>(finalizer: &'static str) -> Predicate<PartialObjectMeta<K>>
where
    PartialObjectMeta<K>: Resource + 'static,
{
    that(finalizer, |is_being_deleted, is_protected| is_being_deleted == is_protected)
}

/// Matches existing objects by whether they are being deleted, and whether they have the finalizer.
fn that<K>(
    finalizer: &'static str,
    is_meant: impl Fn(bool, bool) -> bool + Send + Sync + 'static,
) -> Predicate<PartialObjectMeta<K>>
where
    PartialObjectMeta<K>: Resource + 'static,
{
    Predicate::new(move |event: &Event<PartialObjectMeta<K>>| {
        !matches!(event, Event::Deleted { .. })
            && event.object().is_some_and(|object| {
                let skim = object.skim();
                let is_protected = skim.finalizers.iter().any(|f| f == finalizer);
                is_meant(!skim.deletion_timestamp.is_empty(), is_protected)
            })
    })
}

/// Adds a finalizer to an object that is not being deleted and lacks it, if the object has not
/// changed since it was read.
pub(super) async fn protect(
    api: &Api,
    path: &str,
    object: &Value,
    finalizer: &str,
) -> Result<(), RequestError> {
    let mut finalizers = object.finalizers();
    if !object.deletion_timestamp().is_empty() || finalizers.contains(&finalizer) {
        return Ok(());
    }
    finalizers.push(finalizer);
    set_finalizers(api, path, object, &finalizers).await
}

/// The other finalizers of an object that is being deleted and has this one; otherwise `None`.
pub(super) fn others<'o>(object: &'o Value, finalizer: &str) -> Option<Vec<&'o str>> {
    let mut finalizers = object.finalizers();
    if object.deletion_timestamp().is_empty() || !finalizers.contains(&finalizer) {
        return None;
    }
    finalizers.retain(|found| *found != finalizer);
    Some(finalizers)
}

/// Removes a finalizer from an object that is being deleted, if the object has not changed since it
/// was read.
pub(crate) async fn release(
    api: &Api,
    path: &str,
    object: &Value,
    finalizer: &str,
) -> Result<(), RequestError> {
    match others(object, finalizer) {
        Some(others) => set_finalizers(api, path, object, &others).await,
        None => Ok(()),
    }
}

/// Sets the finalizers of an object, if it still exists and has not changed since it was read.
pub(crate) async fn set_finalizers(
    api: &Api,
    path: &str,
    object: &Value,
    finalizers: &[&str],
) -> Result<(), RequestError> {
    let metadata = json!({
        "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": finalizers,
    });
    ignore_not_found(api.merge_patch(path, &json!({"metadata": metadata})).await).map(drop)
}
