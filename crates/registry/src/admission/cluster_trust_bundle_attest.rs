//! ClusterTrustBundleAttest: who may say which trust anchors a signer has.
use super::certificate_approval::{GROUP, is_permitted};
use super::{Admission, Operation, Review};
use crate::kind::check::{changes_for_collection_only, text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::field::quote;

#[derive(Debug)]
pub(super) struct ClusterTrustBundleAttest;

impl Admission for ClusterTrustBundleAttest {
    fn name(&self) -> &str {
        "ClusterTrustBundleAttest"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        matches!(review.operation, Operation::Create | Operation::Update)
            && review.is(GROUP, "clustertrustbundles")
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        bundle: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let signer = bundle.map_or("", |bundle| text(&bundle["spec"], "signerName"));
            let (Some(bundle), false) = (bundle, signer.is_empty()) else { return Ok(()) };
            let is_same = review.old.is_some_and(|old| changes_for_collection_only(old, bundle));
            if is_same || is_permitted(review, "attest", signer).await {
                return Ok(());
            }
            let signer = quote(signer);
            Err(review.forbidden(&format!("user not permitted to attest for signerName {signer}")))
        }
        .boxed()
    }
}
