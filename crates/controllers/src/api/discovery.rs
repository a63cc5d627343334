//! Reads the resources that the server serves from its aggregated discovery documents.

use super::{Api, RequestError};
use serde_json::Value;
use setpoint_object::url::escape_segment;
use std::collections::BTreeSet;

/// One resource in its group's preferred version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
}

impl Resource {
    pub(crate) fn serves(&self, verb: &str) -> bool {
        self.verbs.iter().any(|served| served == verb)
    }

    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The resource's name in the namespace controller's conditions: `pods.`, `deployments.apps`.
    pub(crate) fn dotted(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }

    /// The path of the collection. `namespace` is ignored for cluster-scoped resources; empty means
    /// all namespaces.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            format!("{root}/namespaces/{namespace}/{}", self.resource)
        } else {
            format!("{root}/{}", self.resource)
        }
    }

    /// The path of one object.
    pub(crate) fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection(namespace), escape_segment(name))
    }
}

fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// The result of one read of discovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Discovered {
    /// Every resource once, in its preferred version, in the server's order.
    pub(crate) resources: Vec<Resource>,
    /// Group versions that are registered but could not be read. Their resources are unknown.
    pub(crate) stale: Vec<String>,
    /// `apiVersion` and kind of everything that is served.
    pub(crate) kinds: BTreeSet<(String, String)>,
}

impl Discovered {
    /// The resource of a kind, in any version of the group that `api_version` names: an object has
    /// the same identity in all versions.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        let (group, _) = api_version.rsplit_once('/').unwrap_or_default();
        self.resources.iter().find(|resource| resource.group == group && resource.kind == kind)
    }

    /// The same, if that version of the kind is served.
    pub(crate) fn of_served_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        let is_served = self.kinds.contains(&(api_version.to_owned(), kind.to_owned()));
        self.of_kind(api_version, kind).filter(|_| is_served)
    }
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Reads both discovery documents.
pub(crate) async fn discover(api: &Api) -> Result<Discovered, RequestError> {
    let core = api.get_accepting("/api", AGGREGATED).await?;
    let groups = api.get_accepting("/apis", AGGREGATED).await?;
    let mut discovered = Discovered::default();
    for document in [core, groups] {
        for group in list(&document, "items") {
            take_group(group, &mut discovered);
        }
    }
    Ok(discovered)
}

fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn take_group(group: &Value, discovered: &mut Discovered) {
    let group_name = group["metadata"]["name"].as_str().unwrap_or_default();
    // A document has a group once. It may have thousands of resources.
    let mut known = BTreeSet::new();
    for version in list(group, "versions") {
        let version_name = version["version"].as_str().unwrap_or_default();
        if version["freshness"] == "Stale" {
            discovered.stale.push(format!("{group_name}/{version_name}"));
        }
        let api_version = api_version(group_name, version_name);
        for resource in list(version, "resources") {
            let text = |member: &str| resource[member].as_str().unwrap_or_default().to_owned();
            let kind = resource["responseKind"]["kind"].as_str().unwrap_or_default();
            discovered.kinds.insert((api_version.clone(), kind.to_owned()));
            if !known.insert(text("resource")) {
                continue;
            }
            discovered.resources.push(Resource {
                group: group_name.to_owned(),
                version: version_name.to_owned(),
                resource: text("resource"),
                kind: kind.to_owned(),
                namespaced: resource["scope"] == "Namespaced",
                verbs: list(resource, "verbs")
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_paths() {
        let roles = Resource {
            group: "rbac.authorization.k8s.io".to_owned(),
            version: "v1".to_owned(),
            resource: "roles".to_owned(),
            kind: "Role".to_owned(),
            namespaced: true,
            verbs: Vec::new(),
        };
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles";
        assert_eq!(roles.object("a", "system:b"), format!("{path}/system:b"));
        assert_eq!(roles.object("a", "a b?c#d"), format!("{path}/a%20b%3Fc%23d"));
    }
}
