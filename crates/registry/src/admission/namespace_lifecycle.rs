//! NamespaceLifecycle: refuses creates in a missing or terminating namespace, and the deletion of
//! some namespaces.
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use memchr::memmem;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::skim::scalar;
use setpoint_object::status::Cause;
use setpoint_object::{ApiError, GroupResource, Scope, keys};
use setpoint_store::Compare;

/// Namespaces that may not be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

#[derive(Debug)]
pub(super) struct NamespaceLifecycle;

impl Admission for NamespaceLifecycle {
    fn name(&self) -> &str {
        "NamespaceLifecycle"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        match review.operation {
            Operation::Create => {
                review.resource.scope.is_namespaced()
                    // A path may lack it: then the object is invalid.
                    && !review.namespace.is_empty()
                    && !review.is("authorization.k8s.io", "localsubjectaccessreviews")
            }
            Operation::Delete => review.is("", "namespaces"),
            Operation::Update | Operation::Connect => false,
        }
    }
    fn mutates(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Delete)
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        check(review).boxed()
    }
}
pub(super) async fn check(review: &Review<'_>) -> Result<(), ApiError> {
    if review.operation == Operation::Delete {
        let name = review.old.map(ObjectExt::name).unwrap_or(review.name);
        return if IMMORTAL.contains(&name) {
            Err(review.forbidden("this namespace may not be deleted"))
        } else {
            Ok(())
        };
    }
    let prefix = keys::built_in_prefix("", "namespaces");
    let key = keys::key(&prefix, Scope::Cluster, "", review.namespace);
    let is_terminating = |namespace: &[u8]| {
        // Most namespaces do not have the word, and are not read.
        memmem::find(namespace, b"\"deletionTimestamp\"").is_some()
            && scalar(namespace, &["metadata", "deletionTimestamp"]).is_some()
    };
    // A cached state is either right or fails at the commit. Only a refusal must read the store.
    let cached = match review.preconditions.have_failed {
        true => None,
        false => review.inner.recent(&prefix, &key),
    };
    let modified = match cached.filter(|kv| !is_terminating(&kv.value)) {
        Some(namespace) => Some(namespace.modified),
        None => match review.inner.live(&key).await? {
            None => {
                let namespaces = GroupResource { group: "".into(), resource: "namespaces".into() };
                return Err(ApiError::not_found(&namespaces, review.namespace));
            }
            Some(found) => (!is_terminating(&found.value)).then_some(found.modified),
        },
    };
    if let Some(modified) = modified {
        // Deleting the namespace changes it. Of the two commits, the later one sees the earlier.
        review.require(Compare::Modified(key, modified));
        return Ok(());
    }
    let mut error = review.forbidden(&format!(
        "unable to create new content in namespace {} because it is being terminated",
        review.namespace
    ));
    let cause = Cause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {} is being terminated", review.namespace),
        field: "metadata.namespace".to_owned(),
    };
    error.0.details.get_or_insert_default().causes.push(cause);
    Err(error)
}
