//! Rules of roles.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A rule: verbs on resources, or verbs on paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs; `*` is every verb.
    pub verbs: Vec<String>,
    /// Groups; empty text is the core group, `*` every group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// `resource`, `resource/subresource`, `*/subresource` or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects; none allows every name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a `*` at the end is any rest.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// The parts of a request that rules look at. For a request of a path, `resource` is empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// Verb: for a path, the HTTP method in lower case.
    pub verb: &'a str,
    /// Group; empty for the core group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Subresource; empty for the main endpoint.
    pub subresource: &'a str,
    /// Name of the object; empty for the collection.
    pub name: &'a str,
    /// The path of a request that is about no resource.
    pub path: &'a str,
}

impl Rule {
    /// Whether the rule allows the request.
    pub fn allows(&self, request: &Request<'_>) -> bool {
        if !has(&self.verbs, request.verb) {
            return false;
        }
        if request.resource.is_empty() {
            return self.non_resource_urls.iter().any(|url| covers_path(url, request.path));
        }
        has(&self.api_groups, request.group)
            && self
                .resources
                .iter()
                .any(|resource| covers_resource(resource, request.resource, request.subresource))
            && (self.resource_names.is_empty()
                || self.resource_names.iter().any(|name| name == request.name))
    }
}

/// Whether a list of verbs or groups has a text or `*`.
pub(crate) fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == text)
}

/// Whether a rule's resource is the one of a request.
///
/// Compares the joined `resource/subresource`, as the reference does: a review may ask about the
/// resource `pods/log` without a subresource. Only `*/subresource` needs the subresource by itself.
pub(crate) fn covers_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    let of = rule.strip_suffix(subresource).and_then(|rule| rule.strip_suffix('/'));
    of.is_some_and(|of| of == "*" || of == resource)
}

/// Whether a rule's path covers a path.
pub(crate) fn covers_path(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => rule == path,
    }
}

/// The rules of a stored role. A rule that cannot be read allows nothing.
pub fn rules_of(role: &Value) -> Vec<Rule> {
    let rules = role.get("rules").and_then(Value::as_array);
    rules.into_iter().flatten().filter_map(|rule| Rule::deserialize(rule).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(rule: Value) -> Rule {
        Rule::deserialize(rule).unwrap()
    }

    fn on<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Request<'a> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Request { verb, group, resource, subresource, name, path: "" }
    }

    #[test]
    fn each_part_of_a_rule_must_fit() {
        let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
        for (request, is_allowed) in [
            (on("get", "", "pods", "a"), true),
            (on("list", "", "pods", ""), false),
            (on("get", "apps", "pods", "a"), false),
            (on("get", "", "secrets", "a"), false),
            (on("get", "", "pods/log", "a"), false),
            (on("GET", "", "pods", "a"), false),
        ] {
            assert_eq!(pods.allows(&request), is_allowed, "{request:?}");
        }
    }

    #[test]
    fn review_may_join_resource_and_subresource() {
        for (resource, is_allowed) in [("pods/log", true), ("pods", false), ("*/log", false)] {
            let rule = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]}));
            let request =
                Request { verb: "get", resource: "pods/log", name: "a", ..Request::default() };
            assert_eq!(rule.allows(&request), is_allowed, "{resource}");
        }
    }

    #[test]
    fn stars_and_subresources() {
        for (resource, request, is_allowed) in [
            ("*", "pods", true),
            ("*", "pods/log", true),
            ("pods/log", "pods/log", true),
            ("pods/log", "pods", false),
            ("pods/*", "pods/log", false),
            ("*/log", "pods/log", true),
            ("*/log", "pods", false),
            ("*/", "pods", false),
            ("*/*", "pods/log", false),
        ] {
            let rule = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": [resource]}));
            assert_eq!(rule.allows(&on("x", "y", request, "")), is_allowed, "{resource} {request}");
        }
    }

    #[test]
    fn names_allow_no_collection() {
        let named = rule(json!({
            "verbs": ["*"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"],
        }));
        assert!(named.allows(&on("get", "", "pods", "b")));
        assert!(!named.allows(&on("get", "", "pods", "c")));
        assert!(!named.allows(&on("create", "", "pods", "")));
    }

    #[test]
    fn paths_end_with_a_star() {
        let rule = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]}));
        let path = |verb, path| Request { verb, path, ..Request::default() };
        assert!(rule.allows(&path("get", "/healthz")));
        assert!(!rule.allows(&path("get", "/healthz/")));
        assert!(rule.allows(&path("get", "/apis/apps/v1")));
        assert!(!rule.allows(&path("get", "/apis")));
        assert!(!rule.allows(&path("post", "/healthz")));
        assert!(!rule.allows(&on("get", "", "pods", "a")));
    }
}
