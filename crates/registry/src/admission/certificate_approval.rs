//! CertificateApproval: who may decide on certificate requests of a signer.
use super::{Admission, Operation, Review};
use crate::attributes::ResourcePath;
use crate::authorize::Decision;
use crate::kind::text;
use crate::verb::Verb;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::field::quote;

/// The group of certificate requests and signers.
pub(super) const GROUP: &str = "certificates.k8s.io";
/// The resource of certificate requests.
pub(super) const REQUESTS: &str = "certificatesigningrequests";

#[derive(Debug)]
pub(super) struct CertificateApproval;

impl Admission for CertificateApproval {
    fn name(&self) -> &str {
        "CertificateApproval"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Update && review.is_part(GROUP, REQUESTS, "approval")
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _request: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        check(review, "approve").boxed()
    }
}

/// Refuses the write unless the user has the verb on the signer of the stored request: on its name,
/// or on all names of its domain.
pub(super) async fn check(review: &Review<'_>, verb: &str) -> Result<(), ApiError> {
    let Some(old) = review.old else { return Ok(()) };
    let signer = text(&old["spec"], "signerName");
    if is_permitted(review, verb, signer).await {
        return Ok(());
    }
    let signer = quote(signer);
    Err(review
        .forbidden(&format!("user not permitted to {verb} requests with signerName {signer}")))
}

/// A signer, and all names of its domain, as authorizers are asked about them.
pub(crate) fn signer_paths(signer: &str) -> impl Iterator<Item = ResourcePath> {
    let domain = signer.split_once('/').map(|(domain, _)| format!("{domain}/*"));
    [signer.to_owned()].into_iter().chain(domain).map(|name| ResourcePath {
        group: GROUP.to_owned(),
        version: "*".to_owned(),
        resource: "signers".to_owned(),
        name,
        ..ResourcePath::default()
    })
}

/// Whether the user has the verb on a signer: on its name, or on all names of its domain.
pub(super) async fn is_permitted(review: &Review<'_>, verb: &str, signer: &str) -> bool {
    for path in signer_paths(signer) {
        if let Ok(Decision::Allow(_)) = review.decide(Verb::from(verb), path).await {
            return true;
        }
    }
    false
}
