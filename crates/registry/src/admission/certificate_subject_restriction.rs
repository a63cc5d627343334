//! CertificateSubjectRestriction: no client certificates of administrators.
use super::certificate_approval::{GROUP, REQUESTS};
use super::{Admission, Operation, Review};
use crate::kind::certificates::certificate_signing_request::organizations;
use crate::kind::text;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::users::MASTERS;

/// The signer whose certificates authenticate clients.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

#[derive(Debug)]
pub(super) struct CertificateSubjectRestriction;

impl Admission for CertificateSubjectRestriction {
    fn name(&self) -> &str {
        "CertificateSubjectRestriction"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is(GROUP, REQUESTS)
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        request: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let is_refused = request.is_some_and(|request| {
            text(&request["spec"], "signerName") == SIGNER
                && organizations(request).iter().any(|name| name == MASTERS)
        });
        let result = match is_refused {
            true => Err(review
                .forbidden(&format!("use of {SIGNER} signer with {MASTERS} group is not allowed"))),
            false => Ok(()),
        };
        futures::future::ready(result).boxed()
    }
}
