//! A cluster's roles and bindings as plain objects, and decisions by looking at all of them.

use serde_json::Value;

/// The objects, each with its namespace (empty for those of the cluster) and name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Cluster {
    pub(crate) roles: Vec<(String, String, Value)>,
    pub(crate) bindings: Vec<(String, String, Value)>,
}

/// What a user wants to do.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    pub(crate) namespace: String,
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) name: String,
    /// Not empty: about this path, not about a resource.
    pub(crate) path: String,
}

fn texts<'v>(object: &'v Value, member: &str) -> Vec<&'v str> {
    object[member].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

impl Cluster {
    /// Whether some rule of some role of some binding of the user allows it.
    pub(crate) fn allows(&self, question: &Question) -> bool {
        self.bindings.iter().any(|(namespace, _, binding)| {
            let counts = namespace.is_empty() || *namespace == question.namespace;
            counts
                && is_bound(binding, namespace, question)
                && self.rules(binding, namespace).iter().any(|rule| rule_allows(rule, question))
        })
    }

    /// The rules of the role of a binding. Those of an aggregated role are the rules of all roles
    /// with its label.
    fn rules(&self, binding: &Value, namespace: &str) -> Vec<Value> {
        let role = &binding["roleRef"];
        let home = if role["kind"] == "ClusterRole" { "" } else { namespace };
        let named =
            |(own, name, _): &&(String, String, Value)| own == home && role["name"] == **name;
        let Some((_, _, role)) = self.roles.iter().find(named) else { return Vec::new() };
        let Some(label) = role["aggregates"].as_str() else { return rules_of(role) };
        let sources = self.roles.iter().filter(|(own, _, source)| {
            own.is_empty() && source["label"] == label && source["aggregates"].is_null()
        });
        sources.flat_map(|(_, _, source)| rules_of(source)).collect()
    }
}

pub(crate) fn rules_of(role: &Value) -> Vec<Value> {
    role["rules"].as_array().cloned().unwrap_or_default()
}

fn is_bound(binding: &Value, namespace: &str, question: &Question) -> bool {
    binding["subjects"].as_array().into_iter().flatten().any(|subject| {
        let name = subject["name"].as_str().unwrap();
        match subject["kind"].as_str().unwrap() {
            "User" => question.user == name,
            "Group" => question.groups.iter().any(|group| group == name),
            _ => {
                let own = subject["namespace"].as_str().unwrap_or(namespace);
                question.user == ["system", "serviceaccount", own, name].join(":")
            }
        }
    })
}

fn rule_allows(rule: &Value, question: &Question) -> bool {
    let any = |member: &str, wanted: &str| {
        texts(rule, member).iter().any(|one| *one == "*" || *one == wanted)
    };
    if !any("verbs", &question.verb) {
        return false;
    }
    if !question.path.is_empty() {
        return texts(rule, "nonResourceURLs").iter().any(|url| match url.find('*') {
            Some(star) if star + 1 == url.len() => question.path.starts_with(&url[..star]),
            _ => question.path == *url,
        });
    }
    let wanted = match question.subresource.as_str() {
        "" => question.resource.clone(),
        subresource => format!("{}/{subresource}", question.resource),
    };
    let any_of = format!("*/{}", question.subresource);
    let has_resource = texts(rule, "resources").iter().any(|one| {
        *one == "*" || *one == wanted || !question.subresource.is_empty() && *one == any_of
    });
    let names = texts(rule, "resourceNames");
    has_resource
        && any("apiGroups", &question.group)
        && (names.is_empty() || names.contains(&question.name.as_str()))
}
