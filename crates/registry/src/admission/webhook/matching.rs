//! Which hooks a request concerns: rules, equivalent versions, selectors.
use super::configuration::{Hook, Rule};
use crate::admission::{Operation, Review};
use crate::catalog::Resource;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupResource, GroupVersion, GroupVersionResource, Skim};
use std::sync::Arc;

/// The row of the version in which a hook gets the objects.
#[derive(Debug, Clone)]
pub(super) enum Matched {
    /// The version of the request.
    Request,
    /// Another version of the resource, because a rule names only that one.
    Equivalent(Arc<Resource>),
}

/// The namespace of a request: a Namespace is in itself.
pub(super) fn namespace<'r>(review: &'r Review<'_>, name: &'r str) -> &'r str {
    if is_namespace(review.resource) { name } else { review.namespace }
}
fn is_namespace(resource: &Resource) -> bool {
    resource.gvk.group.is_empty() && *resource.resource == *"namespaces"
}
/// The name of an operation in rules and reviews.
pub(super) fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// Whether the rules of a hook match, and in which version.
pub(super) fn by_rules(hook: &Hook, review: &Review<'_>) -> Option<Matched> {
    if hook.rules.iter().any(|rule| rule_matches(rule, review, review.resource)) {
        return Some(Matched::Request);
    }
    if hook.is_exact || review.resource.versions.len() < 2 {
        return None;
    }
    let catalog = review.inner.catalog.borrow().clone();
    let own = review.resource.group_version();
    let versions = review.resource.versions.iter().filter_map(|v| GroupVersion::parse(v));
    let others = versions.filter(|version| *version != own);
    let rows: Vec<_> = others
        .filter_map(|v| catalog.get(&v.group, &v.version, &review.resource.resource).cloned())
        .collect();
    // Earlier rules count first.
    let matches = |rule: &Rule| rows.iter().find(|row| rule_matches(rule, review, row)).cloned();
    hook.rules.iter().find_map(matches).map(Matched::Equivalent)
}
fn rule_matches(rule: &Rule, review: &Review<'_>, row: &Resource) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|v| v == "*" || v == wanted);
    let subresource = review.subresource.map_or("", Subresource::as_str);
    // A Namespace is cluster-scoped, although it has the namespace of its name.
    let is_namespaced = !is_namespace(row) && !review.namespace.is_empty();
    rule.is_namespaced.is_none_or(|wanted| wanted == is_namespaced)
        && has(&rule.operations, word(review.operation))
        && has(&rule.groups, &row.gvk.group)
        && has(&rule.versions, &row.gvk.version)
        && rule.resources.iter().any(|(resource, sub)| {
            (resource == "*" || **resource == *row.resource) && (sub == "*" || sub == subresource)
        })
}

/// Whether the selectors of a hook match.
///
/// # Errors
///
/// 404: the namespace is missing. 500: a selector is not valid.
pub(super) async fn by_selectors(
    hook: &Hook,
    review: &Review<'_>,
    object: Option<&Value>,
    name: &str,
) -> Result<bool, ApiError> {
    let objects = hook.objects.as_ref().map_err(ApiError::internal)?;
    let matches = |object: Option<&Value>| {
        let meta = object.and_then(|object| object.get("metadata"));
        meta.is_some_and(|meta| objects.matches(|key| meta["labels"].get(key)?.as_str()))
    };
    if !objects.is_everything() && !matches(object) && !matches(review.old) {
        return Ok(false);
    }
    let namespaces = hook.namespaces.as_ref().map_err(ApiError::internal)?;
    let namespace = namespace(review, name);
    if namespaces.is_everything() || namespace.is_empty() {
        return Ok(true);
    }
    namespace_matches(namespaces, namespace, review, object).await
}
async fn namespace_matches(
    selector: &Selector,
    namespace: &str,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<bool, ApiError> {
    let is_written = matches!(review.operation, Operation::Create | Operation::Update);
    if is_namespace(review.resource)
        && review.subresource.is_none()
        && is_written
        && let Some(object) = object
    {
        let labels = object.meta().and_then(|meta| meta.get("labels"));
        return Ok(selector.matches(|key| labels?.get(key)?.as_str()));
    }
    let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    let Some(found) = review.objects().get(&namespaces, "", namespace).await? else {
        let resource = GroupResource { group: "".into(), resource: "namespaces".into() };
        return Err(ApiError::not_found(&resource, namespace));
    };
    let skim = Skim::of(&found.bytes).map_err(ApiError::internal)?;
    Ok(selector.matches(|key| skim.label(key)))
}
