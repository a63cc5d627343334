//! The params of a binding.
use super::stored::{Binding, Policy};
use crate::admission::{Review, matching};
use crate::catalog::Resource;
use crate::request::Object;
use crate::stored::tree;
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::{GroupVersionResource, Skim};
use std::sync::Arc;

/// The row of a policy's params; `None`: it has none.
///
/// # Errors
///
/// There is no such kind.
pub(super) fn row(review: &Review<'_>, policy: &Policy) -> Result<Option<Arc<Resource>>, String> {
    let Some((version, kind)) = &policy.param_kind else { return Ok(None) };
    let catalog = review.inner.catalog.borrow();
    let mut rows = catalog.group_version(&version.group, &version.version);
    match rows.find(|row| *row.gvk.kind == **kind) {
        Some(row) => Ok(Some(row.clone())),
        None => Err(format!(
            "failed to configure policy: failed to find resource referenced by paramKind: '{}/{}, Kind={kind}'",
            version.group, version.version
        )),
    }
}

/// The objects with which a binding is evaluated. Null stands for none. `mutates`: the policy does.
///
/// # Errors
///
/// The text of a failed binding.
pub(super) async fn of(
    binding: &Binding,
    row: Option<&Resource>,
    (review, mutates): (&Review<'_>, bool),
    name: &str,
) -> Result<Vec<Arc<Value>>, String> {
    let (Some(row), Some(reference)) = (row, &binding.params) else {
        return Ok(vec![Arc::new(Value::Null)]);
    };
    let namespace = match (row.scope.is_namespaced(), &*reference.namespace) {
        (true, "") => matching::namespace(review, name),
        (_, namespace) => namespace,
    };
    if row.scope.is_namespaced() && namespace.is_empty() {
        return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned());
    }
    if !row.scope.is_namespaced() && !namespace.is_empty() {
        let text = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
        return Err(text.to_owned());
    }
    let gvk = &row.gvk;
    // A kind of answers, such as SubjectAccessReview. The reference waits for a list of them.
    if !row.verbs.contains(&Verb::List) {
        return Err(format!(
            "paramKind kind `&ParamKind{{APIVersion:{},Kind:{},}}` not yet synced to use for admission",
            gvk.group_version(),
            gvk.kind
        ));
    }
    let resource = GroupVersionResource::new(&*gvk.group, &*gvk.version, &*row.resource);
    let objects = review.objects();
    let found: Vec<Object> = if reference.name.is_empty() {
        let selector = reference.selector.as_ref()?;
        let all = objects.list(&resource, namespace).await.map_err(|error| error.to_string())?;
        let matches = |object: &Object| {
            Skim::of(&object.bytes).is_ok_and(|skim| selector.matches(|key| skim.label(key)))
        };
        all.into_iter().filter(matches).collect()
    } else {
        let found = objects.get(&resource, namespace, &reference.name).await;
        found.map_err(|error| error.to_string())?.into_iter().collect()
    };
    if found.is_empty() && reference.must_exist {
        let text = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Err(text.to_owned());
    }
    let seen = |object: &Object| {
        let mut tree = tree(&object.bytes).map_err(|error| error.to_string())?;
        // Kubernetes keeps these as Go structs, without the owners of their fields. They do not say
        // what they are, and only validating policies add it.
        if row.has_go_type()
            && let Some(members) = tree.as_object_mut()
        {
            if mutates {
                members.retain(|name, _| name != "apiVersion" && name != "kind");
            }
            let meta = members.get_mut("metadata").and_then(Value::as_object_mut);
            meta.into_iter().for_each(|meta| drop(meta.remove("managedFields")));
        }
        Ok(Arc::new(tree))
    };
    found.iter().map(seen).collect()
}
