//! OwnerReferencesPermissionEnforcement: who may set owner references (spec: admission §2).
//!
//! | write | needs |
//! |---|---|
//! | an update that adds or removes owner references | `delete` of the object |
//! | a new `blockOwnerDeletion: true` | `update` of the `finalizers` of the owner, or of all objects |
use super::{Admission, Operation, Review};
use crate::attributes::ResourcePath;
use crate::authorize::Decision;
use crate::kind::text;
use crate::subresource::Subresource;
use crate::verb::Verb;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use std::collections::HashMap;

#[derive(Debug)]
pub(super) struct OwnerReferencesPermissionEnforcement;

impl Admission for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &str {
        "OwnerReferencesPermissionEnforcement"
    }
    /// A Binding or an Eviction owns nothing.
    fn handles(&self, review: &Review<'_>) -> bool {
        matches!(review.operation, Operation::Create | Operation::Update)
            && !(review.subresource.is_some() && review.operation == Operation::Create)
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(object) = object else { return Ok(()) };
            let (new, old) = (owners(object), review.old.map_or(&[][..], owners));
            if new == old {
                return Ok(());
            }
            if review.operation == Operation::Update {
                let path = ResourcePath {
                    group: review.resource.gvk.group.to_string(),
                    version: review.resource.gvk.version.to_string(),
                    resource: review.resource.resource.to_string(),
                    namespace: review.namespace.to_owned(),
                    name: review.name.to_owned(),
                    subresource: review.subresource.cloned(),
                };
                if let Some(why) = refusal(review, Verb::Delete, path).await {
                    return Err(review.forbidden(&format!(
                        "cannot set an ownerRef on a resource you can't delete: {why}"
                    )));
                }
            }
            // Of several with the same uid, the last one counts.
            let known: HashMap<&str, &Value> =
                old.iter().map(|owner| (text(owner, "uid"), owner)).collect();
            let was_blocking =
                |owner: &Value| known.get(text(owner, "uid")).is_some_and(|o| blocks(o));
            let blocking = new.iter().filter(|owner| blocks(owner) && !was_blocking(owner));
            let blocking: Vec<&Value> = blocking.collect();
            // Asked first, so that owners of kinds that are not known here can be set.
            if blocking.is_empty() || may_finalize_all(review).await {
                return Ok(());
            }
            for owner in blocking {
                check_blocking(review, owner).await?;
            }
            Ok(())
        }
        .boxed()
    }
}

async fn may_finalize_all(review: &Review<'_>) -> bool {
    let all = || "*".to_owned();
    let path = ResourcePath {
        group: all(),
        version: all(),
        resource: all(),
        name: all(),
        subresource: Some(Subresource::from("finalizers")),
        ..ResourcePath::default()
    };
    refusal(review, Verb::Update, path).await.is_none()
}

async fn check_blocking(review: &Review<'_>, owner: &Value) -> Result<(), ApiError> {
    let (api_version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let catalog = review.inner.catalog.borrow().clone();
    let row = catalog.group_version(group, version).find(|row| *row.gvk.kind == *kind);
    let Some(row) = row else {
        return Err(review.forbidden(&format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: no matches for kind {} in version {}",
            quote(kind),
            quote(api_version)
        )));
    };
    let namespace = if row.scope.is_namespaced() { review.namespace } else { "" };
    let path = ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: row.resource.to_string(),
        namespace: namespace.to_owned(),
        name: text(owner, "name").to_owned(),
        subresource: Some(Subresource::from("finalizers")),
    };
    match refusal(review, Verb::Update, path).await {
        None => Ok(()),
        Some(why) => Err(review.forbidden(&format!(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {why}"
        ))),
    }
}

/// Why the user may not do it, as `<reason>, <error>`; `None` if they may.
async fn refusal(review: &Review<'_>, verb: Verb, path: ResourcePath) -> Option<String> {
    match review.decide(verb, path).await {
        Ok(Decision::Allow(_)) => None,
        Ok(Decision::Deny(reason) | Decision::NoOpinion(reason)) => {
            Some(format!("{reason}, <nil>"))
        }
        Err(error) => Some(format!(", {}", error.0.message)),
    }
}
fn blocks(owner: &Value) -> bool {
    owner["blockOwnerDeletion"] == true
}
fn owners(object: &Value) -> &[Value] {
    let owners = object.meta().and_then(|meta| meta.get("ownerReferences")?.as_array());
    owners.map_or(&[], Vec::as_slice)
}
