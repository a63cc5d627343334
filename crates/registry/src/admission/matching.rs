//! Which requests match a webhook, a policy or a binding: rules, equivalent versions, selectors.
use super::{Operation, Review};
use crate::catalog::Resource;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupResource, GroupVersion, GroupVersionResource, Skim};
use std::sync::Arc;

/// The requests that match a webhook, a policy or a binding.
#[derive(Debug)]
pub(super) struct Criteria {
    /// `None`: all resources.
    rules: Option<Vec<Rule>>,
    excluded: Vec<Rule>,
    /// `matchPolicy: Exact`.
    is_exact: bool,
    namespaces: Result<Selector, String>,
    objects: Result<Selector, String>,
}
/// `rules[]`, `resourceRules[]`.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource.
    resources: Vec<(String, String)>,
    /// Names of objects; empty: all.
    names: Vec<String>,
    /// `None`: both.
    is_namespaced: Option<bool>,
}

impl Criteria {
    /// Of a webhook. Without rules no request matches.
    pub(super) fn of_webhook(hook: &Value) -> Self {
        Self { rules: Some(rules(&hook["rules"])), ..Self::of_policy(hook) }
    }
    /// Of `matchConstraints` or `matchResources`. Without rules every request matches.
    pub(super) fn of_policy(resources: &Value) -> Self {
        let selector = |name: &str| match Selector::from_object(&resources[name]) {
            Ok(selector) => Ok(selector.unwrap_or_default()),
            Err(error) => Err(error.to_string()),
        };
        Self {
            rules: Some(rules(&resources["resourceRules"])).filter(|rules| !rules.is_empty()),
            excluded: rules(&resources["excludeResourceRules"]),
            is_exact: resources["matchPolicy"] == "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }
    /// Whether the criteria match, and in which version. `object` is the new object; `name` is the
    /// name in reviews.
    ///
    /// # Errors
    ///
    /// 404: the namespace is missing. 500: a selector is not valid.
    pub(super) async fn matches(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        name: &str,
    ) -> Result<Option<Matched>, ApiError> {
        let Some(matched) = self.by_rules(review, name) else { return Ok(None) };
        Ok(self.by_selectors(review, object, name).await?.then_some(matched))
    }
}
fn rules(rules: &Value) -> Vec<Rule> {
    rules.as_array().into_iter().flatten().map(Rule::new).collect()
}
impl Rule {
    fn new(rule: &Value) -> Self {
        let split = |resource: String| match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (resource, String::new()),
        };
        Self {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: texts(&rule["resources"]).into_iter().map(split).collect(),
            names: texts(&rule["resourceNames"]),
            is_namespaced: match rule["scope"].as_str() {
                Some("Namespaced") => Some(true),
                Some("Cluster") => Some(false),
                _ => None,
            },
        }
    }
}
/// The texts of a list.
pub(super) fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The version in which a hook or a policy gets the objects.
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
pub(super) fn is_namespace(resource: &Resource) -> bool {
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

impl Criteria {
    /// Whether the rules may match a write of this kind, whatever its version and object.
    pub(super) fn may_match(&self, review: &Review<'_>) -> bool {
        let rules = self.rules.as_deref();
        rules.is_none_or(|rules| rules.iter().any(|rule| rule_names(rule, review)))
    }
    /// Whether the rules match, and in which version.
    fn by_rules(&self, review: &Review<'_>, name: &str) -> Option<Matched> {
        if self.first_match(&self.excluded, review, name).is_some() {
            return None;
        }
        match &self.rules {
            Some(rules) => self.first_match(rules, review, name),
            None => Some(Matched::Request),
        }
    }
    fn first_match(&self, rules: &[Rule], review: &Review<'_>, name: &str) -> Option<Matched> {
        if rules.iter().any(|rule| rule_matches(rule, review, review.resource, name)) {
            return Some(Matched::Request);
        }
        if rules.is_empty() || self.is_exact || review.resource.versions.len() < 2 {
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
        let matches =
            |rule: &Rule| rows.iter().find(|row| rule_matches(rule, review, row, name)).cloned();
        rules.iter().find_map(matches).map(Matched::Equivalent)
    }
}
/// Whether a list has a word, or all of them.
fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|word| word == "*" || word == wanted)
}
/// Whether a rule names the operation and the resource of a write.
fn rule_names(rule: &Rule, review: &Review<'_>) -> bool {
    let resource = review.resource;
    // Events have two groups.
    let groups =
        resource.versions.iter().map(|v| v.rsplit_once('/').map_or("", |(group, _)| group));
    let mut groups = std::iter::once(&*resource.gvk.group).chain(groups);
    groups.any(|group| has(&rule.groups, group))
        && has(&rule.operations, word(review.operation))
        && names_resource(rule, review, resource)
}
fn names_resource(rule: &Rule, review: &Review<'_>, row: &Resource) -> bool {
    let subresource = review.subresource.map_or("", Subresource::as_str);
    rule.resources.iter().any(|(resource, sub)| {
        (resource == "*" || **resource == *row.resource) && (sub == "*" || sub == subresource)
    })
}
fn rule_matches(rule: &Rule, review: &Review<'_>, row: &Resource, name: &str) -> bool {
    // A Namespace is cluster-scoped, although it has the namespace of its name.
    let is_namespaced = !is_namespace(row) && !review.namespace.is_empty();
    rule.is_namespaced.is_none_or(|wanted| wanted == is_namespaced)
        && has(&rule.operations, word(review.operation))
        && has(&rule.groups, &row.gvk.group)
        && has(&rule.versions, &row.gvk.version)
        && (rule.names.is_empty() || rule.names.iter().any(|wanted| wanted == name))
        && names_resource(rule, review, row)
}

impl Criteria {
    /// Whether the selectors match.
    async fn by_selectors(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        name: &str,
    ) -> Result<bool, ApiError> {
        let objects = self.objects.as_ref().map_err(ApiError::internal)?;
        let matches = |object: Option<&Value>| {
            let meta = object.and_then(|object| object.get("metadata"));
            meta.is_some_and(|meta| objects.matches(|key| meta["labels"].get(key)?.as_str()))
        };
        // A Scale has none of the labels of its object.
        let (object, old) = match &review.scales {
            Some(scales) => (Some(&scales.new), Some(&scales.old)),
            None => (object, review.old),
        };
        if !objects.is_everything() && !matches(object) && !matches(old) {
            return Ok(false);
        }
        let namespaces = self.namespaces.as_ref().map_err(ApiError::internal)?;
        let namespace = namespace(review, name);
        if namespaces.is_everything() || namespace.is_empty() {
            return Ok(true);
        }
        namespace_matches(namespaces, namespace, review, object).await
    }
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
