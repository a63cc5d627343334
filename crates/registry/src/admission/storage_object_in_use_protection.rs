//! StorageObjectInUseProtection: finalizers of claims, volumes and attributes classes.
use super::{Admission, Operation, Review};
use crate::features::Feature;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;

/// Adds finalizers that keep claims, volumes and their classes while they are in use.
#[derive(Debug)]
pub(super) struct StorageObjectInUseProtection;
impl Admission for StorageObjectInUseProtection {
    fn name(&self) -> &str {
        "StorageObjectInUseProtection"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create
            && (review.is("", "persistentvolumeclaims")
                || review.is("", "persistentvolumes")
                || review.is("storage.k8s.io", "volumeattributesclasses")
                    && review.inner.features.is_on(Feature::VolumeAttributesClass))
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let finalizer = if review.is("", "persistentvolumes") {
            "kubernetes.io/pv-protection"
        } else if review.is("storage.k8s.io", "volumeattributesclasses") {
            "kubernetes.io/vac-protection"
        } else {
            "kubernetes.io/pvc-protection"
        };
        if !object.finalizers().contains(&finalizer)
            && let Some(list) =
                object.meta_mut().entry("finalizers").or_insert_with(|| json!([])).as_array_mut()
        {
            list.push(finalizer.into());
        }
        futures::future::ready(Ok(())).boxed()
    }
}
