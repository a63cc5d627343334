//! NamespaceExists: refuses every write in a namespace that does not exist.
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::{ApiError, GroupResource};

#[derive(Debug)]
pub(super) struct NamespaceExists;

impl Admission for NamespaceExists {
    fn name(&self) -> &str {
        "NamespaceExists"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation != Operation::Connect && !review.namespace.is_empty()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            if review.namespace_object().await?.is_some() {
                return Ok(());
            }
            let namespaces = GroupResource { group: "".into(), resource: "namespaces".into() };
            Err(ApiError::not_found(&namespaces, review.namespace))
        }
        .boxed()
    }
}
