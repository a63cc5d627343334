//! DenyServiceExternalIPs: Services may not get external addresses that they do not have.
use super::{Admission, Operation, Review};
use crate::kind::list;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use std::collections::HashSet;

#[derive(Debug)]
pub(super) struct DenyServiceExternalIps;

impl Admission for DenyServiceExternalIps {
    fn name(&self) -> &str {
        "DenyServiceExternalIPs"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        matches!(review.operation, Operation::Create | Operation::Update)
            && review.is("", "services")
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        service: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let addresses = |service: &'a Value| list(&service["spec"], "externalIPs").iter();
        let known: HashSet<&Value> = review.old.into_iter().flat_map(addresses).collect();
        let has_new = service.is_some_and(|s| addresses(s).any(|ip| !known.contains(ip)));
        let result = match has_new {
            true => Err(review.forbidden("Use of external IPs is denied by admission control")),
            false => Ok(()),
        };
        futures::future::ready(result).boxed()
    }
}
