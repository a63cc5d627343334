//! Resources as the configuration names them.

use setpoint_object::keys::Directory;
use std::fmt;

/// A group and a resource; either may be `*` in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name.
    pub resource: String,
}

impl GroupResource {
    /// Parses `secrets`, `deployments.apps`, `*.` (all of the core group), `*.apps` or `*.*`: the
    /// part before the first dot is the resource.
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group: group.to_owned(), resource: resource.to_owned() }
    }
}

/// The form of a configuration.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.resource, &*self.group) {
            ("*", "") => f.write_str("*."),
            (resource, "") => f.write_str(resource),
            (resource, group) => write!(f, "{resource}.{group}"),
        }
    }
}

/// The key prefixes of every built-in resource.
pub(crate) fn built_in() -> Directory {
    Directory::of(setpoint_facts::RESOURCES.iter().map(|fact| (fact.group, fact.resource)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_object::keys::prefix_of;
    use std::collections::BTreeMap;

    #[test]
    fn names_are_parsed_and_formatted_as_in_kubernetes() {
        for (text, group, resource) in [
            ("secrets", "", "secrets"),
            ("deployments.apps", "apps", "deployments"),
            ("widgets.a.example.com", "a.example.com", "widgets"),
            ("*.", "", "*"),
            ("*.apps", "apps", "*"),
            ("*.*", "*", "*"),
        ] {
            let name = GroupResource::parse(text);
            assert_eq!((&*name.group, &*name.resource), (group, resource));
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn keys_have_their_resource() {
        let directory = built_in();
        for (key, resource) in [
            ("/registry/secrets/default/a", Some(("", "secrets"))),
            ("/registry/deployments/default/a", Some(("apps", "deployments"))),
            ("/registry/services/specs/default/a", Some(("", "services"))),
            ("/registry/services/endpoints/default/a", Some(("", "endpoints"))),
            ("/registry/minions/a", Some(("", "nodes"))),
            ("/registry/controllers/default/a", Some(("", "replicationcontrollers"))),
            ("/registry/ingress/default/a", Some(("networking.k8s.io", "ingresses"))),
            ("/registry/events/default/a", Some(("", "events"))),
            ("/registry/leases/kube-system/a", Some(("coordination.k8s.io", "leases"))),
            (
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a",
                Some(("apiextensions.k8s.io", "customresourcedefinitions")),
            ),
            ("/registry/example.com/widgets/default/a", Some(("example.com", "widgets"))),
            ("/registry/ranges/serviceips", None),
            ("/registry/odd", None),
            ("/registry/", None),
            ("compact_rev_key", None),
            ("", None),
        ] {
            let found = prefix_of(key.as_bytes()).and_then(|prefix| directory.resource(prefix));
            assert_eq!(found, resource, "{key}");
        }
    }

    /// The name in a key identifies one resource: no group can hide another's.
    #[test]
    fn every_stored_resource_has_a_unique_name_in_keys() {
        let mut seen = BTreeMap::new();
        for fact in setpoint_facts::RESOURCES.iter().filter(|fact| fact.serves("get")) {
            if let Some(group) = seen.insert(fact.resource, fact.group) {
                assert!(group == fact.group || fact.resource == "events", "{}", fact.resource);
            }
        }
    }
}
