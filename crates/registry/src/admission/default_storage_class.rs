//! DefaultStorageClass: sets the default class of claims without one.
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::{ApiError, GroupVersionResource, Skim};

/// An empty class means no class.
#[derive(Debug)]
pub(super) struct DefaultStorageClass;

impl Admission for DefaultStorageClass {
    fn name(&self) -> &str {
        "DefaultStorageClass"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is("", "persistentvolumeclaims")
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        claim: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let is_set = claim["spec"].get("storageClassName").is_some()
            || claim["metadata"]["annotations"]
                .get("volume.beta.kubernetes.io/storage-class")
                .is_some();
        let found = default_class(
            review,
            GroupVersionResource::new("storage.k8s.io", "v1", "storageclasses"),
            &[
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ],
        );
        async move {
            if !is_set && let Some(name) = found.await? {
                claim["spec"]["storageClassName"] = name.into();
            }
            Ok(())
        }
        .boxed()
    }
}

/// The newest class with one of the annotations; of the same second, the first by name.
pub(super) async fn default_class(
    review: &Review<'_>,
    classes: GroupVersionResource,
    annotations: &[&str],
) -> Result<Option<String>, ApiError> {
    let mut newest: Option<(String, String)> = None;
    for class in &review.objects().list(&classes, "").await? {
        let skim = Skim::of(&class.bytes).map_err(ApiError::internal)?;
        let mut found = skim.annotations.iter();
        if !found.any(|(key, value)| annotations.contains(&&**key) && value == "true") {
            continue;
        }
        if newest.as_ref().is_none_or(|(created, _)| created.as_str() < &*skim.creation_timestamp) {
            newest = Some((skim.creation_timestamp.into_owned(), skim.name.into_owned()));
        }
    }
    Ok(newest.map(|(_, name)| name))
}
