//! PersistentVolumeClaimResize: a claim may grow only if its storage class permits it.
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_object::skim::scalar;
use setpoint_object::{ApiError, GroupVersionResource};

#[derive(Debug)]
pub(super) struct PersistentVolumeClaimResize;

impl Admission for PersistentVolumeClaimResize {
    fn name(&self) -> &str {
        "PersistentVolumeClaimResize"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Update && review.is("", "persistentvolumeclaims")
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        claim: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let (Some(claim), Some(old)) = (claim, review.old) else { return Ok(()) };
            let grows = requested(claim)
                .is_some_and(|new| requested(old).is_none_or(|old| new.compare(&old).is_gt()));
            if !grows {
                return Ok(());
            }
            if old["status"]["phase"] != "Bound" {
                return Err(
                    review.forbidden("Only bound persistent volume claims can be expanded")
                );
            }
            let class = class_of(claim);
            if class.is_empty() || class != class_of(old) || !expands(review, class).await? {
                return Err(review.forbidden(
                    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
                ));
            }
            Ok(())
        }
        .boxed()
    }
}

fn requested(claim: &Value) -> Option<Quantity> {
    Quantity::parse(claim["spec"]["resources"]["requests"]["storage"].as_str()?).ok()
}
fn class_of(claim: &Value) -> &str {
    let annotated = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    annotated.as_str().or(claim["spec"]["storageClassName"].as_str()).unwrap_or_default()
}
async fn expands(review: &Review<'_>, class: &str) -> Result<bool, ApiError> {
    let classes = GroupVersionResource::new("storage.k8s.io", "v1", "storageclasses");
    let class = review.objects().get(&classes, "", class).await?;
    let expands =
        |bytes: &[u8]| scalar(bytes, &["allowVolumeExpansion"]).as_deref() == Some("true");
    Ok(class.is_some_and(|class| expands(&class.bytes)))
}
