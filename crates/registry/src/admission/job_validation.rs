//! JobValidation: the parallelism of a Job whose pods are scheduled as a gang stays as it is.
use super::{Admission, Operation, Review};
use crate::features::Feature;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionResource, Reason};
use std::sync::Arc;

/// Refuses changes of the parallelism of Jobs with a gang.
#[derive(Debug)]
pub(super) struct JobValidation;

impl Admission for JobValidation {
    fn name(&self) -> &str {
        "JobValidation"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Update
            && review.is("batch", "jobs")
            && review.inner.features.is_on(Feature::GenericWorkload)
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        job: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let (Some(job), Some(old)) = (job, review.old) else { return Ok(()) };
            if job["spec"]["parallelism"] == old["spec"]["parallelism"] {
                return Ok(());
            }
            match gang(review, old).await {
                // Groups are not served.
                Err(error) if error.reason() == Reason::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(None) => Ok(()),
                Ok(Some(group)) => Err(review.forbidden(&format!(
                    "cannot change parallelism for a Job referencing gang-scheduled PodGroup {}",
                    quote(group.name())
                ))),
            }
        }
        .boxed()
    }
}

/// The group that the stored Job names, or one that it controls, if its pods are a gang.
async fn gang(review: &Review<'_>, job: &Value) -> Result<Option<Arc<Value>>, ApiError> {
    let groups = GroupVersionResource::new("scheduling.k8s.io", "v1alpha2", "podgroups");
    let is_gang = |group: &Arc<Value>| !group["spec"]["schedulingPolicy"]["gang"].is_null();
    let named = &job["spec"]["template"]["spec"]["schedulingGroup"]["podGroupName"];
    if let Some(name) = named.as_str() {
        let group = review.objects().tree(&groups, review.namespace, name).await?;
        return Ok(group.filter(is_gang));
    }
    let all = review.objects().trees(&groups, review.namespace).await?;
    let is_controlled = |group: &Value| {
        let owners = group["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        let controller = owners.find(|owner| owner["controller"] == true);
        controller.is_some_and(|owner| owner["uid"] == job.uid())
    };
    Ok(all.into_iter().find(|group| is_gang(group) && is_controlled(group)))
}
