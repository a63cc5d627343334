//! PodGroupWorkloadExists: the template that a new group names must exist.
use super::{Admission, Operation, Review};
use crate::kind::{list, text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionResource, Reason};

/// Refuses groups of templates that are not there.
#[derive(Debug)]
pub(super) struct PodGroupWorkloadExists;

impl Admission for PodGroupWorkloadExists {
    fn name(&self) -> &str {
        "PodGroupWorkloadExists"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is("scheduling.k8s.io", "podgroups")
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        group: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(group) = group else { return Ok(()) };
            let reference = &group["spec"]["podGroupTemplateRef"]["workload"];
            if reference.is_null() {
                return Ok(());
            }
            let name = text(reference, "workloadName");
            let refuse = |why: String| Err(review.forbidden(&format!("PodGroup rejected: {why}")));
            let workloads = GroupVersionResource::new("scheduling.k8s.io", "v1alpha2", "workloads");
            let found = match review.objects().tree(&workloads, review.namespace, name).await {
                // They are not served.
                Err(error) if error.reason() == Reason::NotFound => None,
                found => found?,
            };
            let quoted = quote(name);
            let Some(workload) = found else {
                return refuse(format!("Workload {quoted} not found"));
            };
            if !workload.deletion_timestamp().is_empty() {
                return refuse(format!("Workload {quoted} is being deleted"));
            }
            let template = text(reference, "podGroupTemplateName");
            let mut templates = list(&workload["spec"], "podGroupTemplates").iter();
            if templates.any(|known| text(known, "name") == template) {
                return Ok(());
            }
            let template = quote(template);
            refuse(format!("PodGroupTemplate {template} not found in Workload {quoted}"))
        }
        .boxed()
    }
}
