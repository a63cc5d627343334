//! Keys of objects: from a resource to its prefix, from an object to its key, and back.
//!
//! | key                                  | resource                     | why                                           |
//! |--------------------------------------|------------------------------|-----------------------------------------------|
//! | `/registry/secrets/ns/name`          | `secrets`                    | built in: under its plural                    |
//! | `/registry/deployments/ns/name`      | `deployments.apps`           | whatever its group is                         |
//! | `/registry/services/specs/ns/name`   | `services`                   | an old exception (there are five)                 |
//! | `/registry/minions/name`             | `nodes`                      | another                                       |
//! | `/registry/ex.io/widgets/ns/name`    | `widgets.ex.io`              | custom: under group and plural                |
//! | `/registry/ranges/serviceips`        | none                         | it has no REST API                            |
//!
//! The layout is Kubernetes', so that a store can be handed from one server to the other.
use bytes::Bytes;
use std::collections::BTreeMap;

/// What every key of the API starts with.
pub const ROOT: &str = "/registry/";
/// The prefix of Services, which have addresses and ports beside.
pub const SERVICES: &str = "/registry/services/specs/";
/// The prefix of CustomResourceDefinitions, which say what else is served.
pub const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
/// Where the fences of definitions are: per definition a key that orders writes of its objects with
/// changes of its schema. No resource has this name: there is a dot in it.
pub const SCHEMA_FENCES: &str = "/registry/apiextensions.k8s.io/schema.fences/";
/// A key for each cluster address in use. Beside the keys in which kube-apiserver keeps its
/// bitmaps; not served.
pub const CLUSTER_ADDRESSES: &str = "/registry/ranges/serviceips/";
/// The same for node ports.
pub const NODE_PORTS: &str = "/registry/ranges/servicenodeports/";

/// Built-in resources that do not lie under their plural: group, resource, and where they lie.
const PLACES: [(&str, &str, &str); 5] = [
    ("", "services", "services/specs"),
    ("", "endpoints", "services/endpoints"),
    ("", "nodes", "minions"),
    ("", "replicationcontrollers", "controllers"),
    ("networking.k8s.io", "ingresses", "ingress"),
];
/// The first word of two that are neither a group nor a resource.
const SERVICES_WORD: &str = "services";
/// Built-in groups whose resources lie under group and plural, as custom resources do.
const GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// Where the objects of a resource are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Each in a namespace.
    Namespaced,
    /// In none: the resource is the whole cluster's.
    Cluster,
}
impl Scope {
    /// The scope of what is `namespaced` or not.
    pub fn of(is_namespaced: bool) -> Self {
        if is_namespaced { Self::Namespaced } else { Self::Cluster }
    }
    /// Whether objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        self == Self::Namespaced
    }
}
/// Displays as a definition and aggregated discovery write it: `Namespaced`, `Cluster`.
impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_namespaced() { "Namespaced" } else { "Cluster" })
    }
}

/// The prefix of a built-in resource: `/registry/configmaps/`.
pub fn built_in_prefix(group: &str, resource: &str) -> String {
    if GROUPS.contains(&group) {
        return custom_prefix(group, resource);
    }
    let found = PLACES.iter().find(|(g, r, _)| (*g, *r) == (group, resource));
    format!("{ROOT}{}/", found.map_or(resource, |(_, _, place)| place))
}

/// The prefix of a custom resource: `/registry/example.com/widgets/`.
pub fn custom_prefix(group: &str, resource: &str) -> String {
    format!("{ROOT}{group}/{resource}/")
}

/// The prefix of a namespace's objects; that of all of them when `namespace` is empty or there are
/// none.
pub fn collection(prefix: &str, scope: Scope, namespace: &str) -> Bytes {
    match namespace {
        "" => prefix.to_owned().into(),
        _ if !scope.is_namespaced() => prefix.to_owned().into(),
        namespace => format!("{prefix}{namespace}/").into(),
    }
}

/// The key of an object.
pub fn key(prefix: &str, scope: Scope, namespace: &str, name: &str) -> Bytes {
    let mut key = String::with_capacity(prefix.len() + namespace.len() + name.len() + 1);
    key.push_str(prefix);
    if scope.is_namespaced() {
        key.push_str(namespace);
        key.push('/');
    }
    key.push_str(name);
    Bytes::from(key)
}

/// Namespace and name in a key of which this many bytes are the prefix. Empty where there are none.
pub fn names(prefix_len: usize, scope: Scope, key: &[u8]) -> (&str, &str) {
    let rest = std::str::from_utf8(key.get(prefix_len..).unwrap_or_default()).unwrap_or_default();
    match scope {
        Scope::Namespaced => rest.split_once('/').unwrap_or(("", rest)),
        Scope::Cluster => ("", rest),
    }
}

/// The part of a key that names its resource, with the slash behind it: [`ROOT`] and one word, or
/// two when the first has a dot (a group) or is `services`. `None` when the key has no such part.
///
/// So a reader of keys needs no catalog.
pub fn prefix_of(key: &[u8]) -> Option<&str> {
    let rest = key.strip_prefix(ROOT.as_bytes())?;
    let word = |from: usize| {
        let len = rest.get(from..)?.iter().position(|b| *b == b'/')?;
        Some(from + len + 1)
    };
    let first = word(0)?;
    let has_two = rest[..first].contains(&b'.') || rest[..first - 1] == *SERVICES_WORD.as_bytes();
    let end = if has_two { word(first)? } else { first };
    // Keys are text: object and resource names are.
    std::str::from_utf8(&key[..ROOT.len() + end]).ok()
}

/// The resources that lie under one word, by that word.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    words: BTreeMap<&'static str, (&'static str, &'static str)>,
}
impl Directory {
    /// Of built-in resources, as `(group, plural)`. Where two groups serve the same objects
    /// (Events), the first is named.
    pub fn of(resources: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
        let mut words = BTreeMap::new();
        for (group, resource) in resources {
            let found = PLACES.iter().find(|(g, r, _)| (*g, *r) == (group, resource));
            let word = found.map_or(resource, |(_, _, place)| place);
            if !GROUPS.contains(&group) {
                words.entry(word).or_insert((group, resource));
            }
        }
        Self { words }
    }
    /// The group and the resource of a prefix that [`prefix_of`] gave. `None`: not one of the API.
    pub fn resource<'k>(&self, prefix: &'k str) -> Option<(&'k str, &'k str)> {
        let words = prefix.strip_prefix(ROOT)?.strip_suffix('/')?;
        match (self.words.get(words), words.split_once('/')) {
            (Some(known), _) => Some(*known),
            (None, Some((SERVICES_WORD, _)) | None) => None,
            (None, Some((group, resource))) => Some((group, resource)),
        }
    }
}

#[cfg(test)]
mod tests;
