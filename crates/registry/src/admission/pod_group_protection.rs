//! PodGroupProtection: a finalizer that keeps groups while pods belong to them.
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;

const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// Adds the finalizer to new groups. A controller removes it.
#[derive(Debug)]
pub(super) struct PodGroupProtection;

impl Admission for PodGroupProtection {
    fn name(&self) -> &str {
        "PodGroupProtection"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is("scheduling.k8s.io", "podgroups")
    }
    fn mutate<'a>(
        &'a self,
        _: &'a Review<'a>,
        group: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if !group.finalizers().contains(&FINALIZER)
            && let Some(list) =
                group.meta_mut().entry("finalizers").or_insert_with(|| json!([])).as_array_mut()
        {
            list.push(FINALIZER.into());
        }
        futures::future::ready(Ok(())).boxed()
    }
}
