//! Resources as the configuration names them, and as the store's keys hold them.
//!
//! | key                                  | resource                     |
//! |--------------------------------------|------------------------------|
//! | `/registry/secrets/ns/name`          | `secrets`                    |
//! | `/registry/deployments/ns/name`      | `deployments.apps`           |
//! | `/registry/services/specs/ns/name`   | `services`                   |
//! | `/registry/minions/name`             | `nodes`                      |
//! | `/registry/ex.io/widgets/ns/name`    | `widgets.ex.io`              |
//! | `/registry/ranges/serviceips`        | none: it has no REST API     |
//!
//! Built-in resources lie under their plural whatever their group is, with a few old exceptions; custom ones, and those of two
//! built-in groups, under group and plural.

use std::collections::BTreeMap;
use std::fmt;

/// Where every object lies.
const ROOT: &[u8] = b"/registry/";

/// A group and a resource; either may be `*` in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name.
    pub resource: String,
}

impl GroupResource {
    /// Reads `secrets`, `deployments.apps`, `*.` (all of the core group), `*.apps` or `*.*`: what comes before the first dot is the resource.
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group: group.to_owned(), resource: resource.to_owned() }
    }
}

/// As a configuration would name it.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.resource, &*self.group) {
            ("*", "") => f.write_str("*."),
            (resource, "") => f.write_str(resource),
            (resource, group) => write!(f, "{resource}.{group}"),
        }
    }
}

/// The part of a key that names its resource, with the slash behind it; the whole key when it has no such part.
///
/// Two words when the first has a dot or is `services`.
pub(crate) fn prefix_of(key: &[u8]) -> &[u8] {
    let Some(rest) = key.strip_prefix(ROOT) else { return key };
    let word = |from: usize| {
        let len = rest.get(from..)?.iter().position(|b| *b == b'/')?;
        Some(from + len + 1)
    };
    let end = match word(0) {
        Some(end) if rest[..end].contains(&b'.') || &rest[..end] == b"services/" => word(end),
        end => end,
    };
    end.map_or(key, |end| &key[..ROOT.len() + end])
}

/// What lies under which prefix.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Built-in resources by the one word that their keys have.
    words: BTreeMap<&'static str, (&'static str, &'static str)>,
}

impl Directory {
    /// Of every built-in resource.
    pub(crate) fn built_in() -> Self {
        let mut words = BTreeMap::new();
        for fact in setpoint_facts::RESOURCES {
            let word = match (fact.group, fact.resource) {
                // Two words, or one object's other face.
                ("", "services" | "endpoints")
                | ("apiextensions.k8s.io" | "apiregistration.k8s.io" | "events.k8s.io", _) => {
                    continue;
                }
                ("", "nodes") => "minions",
                ("", "replicationcontrollers") => "controllers",
                ("networking.k8s.io", "ingresses") => "ingress",
                (_, resource) => resource,
            };
            words.insert(word, (fact.group, fact.resource));
        }
        Self { words }
    }

    /// The group and the resource of a prefix that [`prefix_of`] gave. `None`: nothing that could be chosen.
    pub(crate) fn resource<'k>(&self, prefix: &'k [u8]) -> Option<(&'k str, &'k str)> {
        let words = std::str::from_utf8(prefix.strip_prefix(ROOT)?).ok()?.strip_suffix('/')?;
        match words.split_once('/') {
            Some(("services", "specs")) => Some(("", "services")),
            Some(("services", "endpoints")) => Some(("", "endpoints")),
            Some(("services", _)) => None,
            Some((group, resource)) => Some((group, resource)),
            None => self.words.get(words).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_and_written_as_kubernetes_does() {
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
    fn keys_tell_their_resource() {
        let directory = Directory::built_in();
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
            assert_eq!(directory.resource(prefix_of(key.as_bytes())), resource, "{key}");
        }
    }

    /// One word names one resource: no group may hide another's.
    #[test]
    fn every_stored_resource_has_a_word_of_its_own() {
        let mut seen = BTreeMap::new();
        for fact in setpoint_facts::RESOURCES.iter().filter(|fact| fact.serves("get")) {
            if let Some(group) = seen.insert(fact.resource, fact.group) {
                assert!(group == fact.group || fact.resource == "events", "{}", fact.resource);
            }
        }
    }

    proptest! {
        #[test]
        fn any_key_has_a_prefix(key in proptest::collection::vec(any::<u8>(), 0..40), under in any::<bool>()) {
            let key = if under { [ROOT, &key].concat() } else { key };
            prop_assert!(key.starts_with(prefix_of(&key)));
        }
    }
}
