//! NamespaceAutoProvision: creates a missing namespace before the first object in it.
use super::{Admission, Operation, Review};
use crate::kind::core::namespace::fresh;
use crate::stored::store_error;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Scope, keys};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{Compare, Op, Txn};

#[derive(Debug)]
pub(super) struct NamespaceAutoProvision;

impl Admission for NamespaceAutoProvision {
    fn name(&self) -> &str {
        "NamespaceAutoProvision"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && !review.namespace.is_empty() && !review.dry_run
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            // A name that is not valid is refused by the plugins that follow.
            let is_valid = setpoint_object::name::dns1123_label(review.namespace).is_empty();
            if !is_valid || review.namespace_object().await?.is_some() {
                return Ok(());
            }
            let mut namespace = fresh(review.namespace);
            namespace.set_meta("uid", review.inner.uid().into());
            namespace.set_meta("creationTimestamp", review.inner.clock.now().rfc3339().into());
            let prefix = keys::built_in_prefix("", "namespaces");
            let key = keys::key(&prefix, Scope::Cluster, "", review.namespace);
            let txn = Txn {
                compares: vec![Compare::Absent(key.clone())],
                ops: vec![Op::Put(key, to_bytes(&namespace))],
                ttl: None,
            };
            // Refused: a concurrent request has created it.
            review.inner.store.commit(txn).await.map(drop).map_err(store_error)
        }
        .boxed()
    }
}
