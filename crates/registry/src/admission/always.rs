//! AlwaysAdmit and AlwaysDeny.
use super::{Admission, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;

/// Allows everything, as if it were not there.
#[derive(Debug)]
pub(super) struct AlwaysAdmit;

impl Admission for AlwaysAdmit {
    fn name(&self) -> &str {
        "AlwaysAdmit"
    }
    fn handles(&self, _: &Review<'_>) -> bool {
        false
    }
}

/// Refuses every write.
#[derive(Debug)]
pub(super) struct AlwaysDeny;

impl Admission for AlwaysDeny {
    fn name(&self) -> &str {
        "AlwaysDeny"
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let error = review.forbidden("admission control is denying all modifications");
        futures::future::ready(Err(error)).boxed()
    }
}
