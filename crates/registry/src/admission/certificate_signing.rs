//! CertificateSigning: who may write the certificates of a signer.
use super::certificate_approval::{GROUP, REQUESTS, check};
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;

#[derive(Debug)]
pub(super) struct CertificateSigning;

impl Admission for CertificateSigning {
    fn name(&self) -> &str {
        "CertificateSigning"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Update && review.is_part(GROUP, REQUESTS, "status")
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        request: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let (Some(new), Some(old)) = (request, review.old) else { return Ok(()) };
            let changes = |member: &str| new["status"].get(member) != old["status"].get(member);
            match changes("certificate") || changes("conditions") {
                true => check(review, "sign").await,
                false => Ok(()),
            }
        }
        .boxed()
    }
}
