//! Store keys of objects: from a resource to its prefix, from an object to its key, and back.
//!
//! | key | resource | rule |
//! |---|---|---|
//! | `/registry/secrets/ns/name` | `secrets` | built in: under its plural |
//! | `/registry/deployments/ns/name` | `deployments.apps` | built in: the group is left out |
//! | `/registry/services/specs/ns/name` | `services` | historical exception (there are five) |
//! | `/registry/minions/name` | `nodes` | another exception |
//! | `/registry/ex.io/widgets/ns/name` | `widgets.ex.io` | custom: under group and plural |
//! | `/registry/ranges/serviceips` | none | has no REST API |
//!
//! The layout is that of Kubernetes, so that servers can be exchanged over the same store.
use bytes::Bytes;
use std::collections::BTreeMap;

/// Prefix of all keys of the API.
pub const ROOT: &str = "/registry/";
/// Prefix of Services, which also own addresses and ports.
pub const SERVICES: &str = "/registry/services/specs/";
/// Prefix of CustomResourceDefinitions, which determine the custom resources that are served.
pub const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
/// Prefix of the schema fences. A definition's fence orders writes of its objects with changes of
/// its schema. No resource can have this name, because it contains a dot.
pub const SCHEMA_FENCES: &str = "/registry/apiextensions.k8s.io/schema.fences/";
/// Prefix of IPAddresses: each cluster address of a Service has one.
pub const IP_ADDRESSES: &str = "/registry/ipaddresses/";
/// Prefix of ServiceCIDRs, the networks that cluster addresses come from.
pub const SERVICE_CIDRS: &str = "/registry/servicecidrs/";
/// Prefix of one key per cluster address in use. Next to the keys of kube-apiserver's bitmaps; not
/// served.
pub const CLUSTER_ADDRESSES: &str = "/registry/ranges/serviceips/";
/// Prefix of one key per server that can be reached, as kube-apiservers write them; not served.
pub const PUBLISHED: &str = "/registry/masterleases/";
/// Prefix of one key per server that passes requests on to others, as kube-apiservers write them;
/// not served.
pub const PEERS: &str = "/registry/peerserverleases/";
/// The key of kube-apiserver's bitmap of node ports. It exists if there is a kube-apiserver.
pub const NODE_PORT_BITMAP: &str = "/registry/ranges/servicenodeports";
/// Prefix of one key per node port in use.
pub const NODE_PORTS: &str = "/registry/ranges/servicenodeports/";

/// Prefixes of a server's own records. They may look like objects: a claim of an address has the
/// uid of its Service.
const RECORDS: [&str; 4] = ["/registry/ranges/", PUBLISHED, PEERS, SCHEMA_FENCES];

/// Built-in resources that are not stored under their plural: group, resource, and path.
const PLACES: [(&str, &str, &str); 5] = [
    ("", "services", "services/specs"),
    ("", "endpoints", "services/endpoints"),
    ("", "nodes", "minions"),
    ("", "replicationcontrollers", "controllers"),
    ("networking.k8s.io", "ingresses", "ingress"),
];
/// The only first word of two words that is neither a group nor a resource.
const SERVICES_WORD: &str = "services";
/// Built-in groups whose resources are stored under group and plural, as custom resources are.
const GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// Whether the objects of a resource are in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Each object is in a namespace.
    Namespaced,
    /// Objects belong to the whole cluster.
    Cluster,
}
impl Scope {
    /// The scope for a `namespaced` flag.
    pub fn of(is_namespaced: bool) -> Self {
        if is_namespaced { Self::Namespaced } else { Self::Cluster }
    }
    /// Whether objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        self == Self::Namespaced
    }
}
/// Displays as in definitions and aggregated discovery: `Namespaced`, `Cluster`.
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
    [ROOT, found.map_or(resource, |(_, _, place)| place), "/"].concat()
}

/// The prefix of a custom resource: `/registry/example.com/widgets/`.
pub fn custom_prefix(group: &str, resource: &str) -> String {
    [ROOT, group, "/", resource, "/"].concat()
}

/// The prefix of a namespace's objects; of all objects if `namespace` is empty or the resource is
/// cluster-scoped.
pub fn collection(prefix: &str, scope: Scope, namespace: &str) -> Bytes {
    match namespace {
        "" => prefix.to_owned().into(),
        _ if !scope.is_namespaced() => prefix.to_owned().into(),
        namespace => [prefix, namespace, "/"].concat().into(),
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

/// The namespace and name in a key whose prefix has this length. Empty where absent.
pub fn names(prefix_len: usize, scope: Scope, key: &[u8]) -> (&str, &str) {
    let rest = std::str::from_utf8(key.get(prefix_len..).unwrap_or_default()).unwrap_or_default();
    match scope {
        Scope::Namespaced => rest.split_once('/').unwrap_or(("", rest)),
        Scope::Cluster => ("", rest),
    }
}

/// Whether a key is of a server's own record, not of an object.
pub fn is_record(key: &[u8]) -> bool {
    RECORDS.iter().any(|prefix| key.starts_with(prefix.as_bytes()))
}

/// The part of a key that names its resource, with the trailing slash: [`ROOT`] and one word, or
/// two words if the first contains a dot (a group) or is `services`. `None` if the key has no such
/// part.
///
/// Needs no catalog.
pub fn prefix_of(key: &[u8]) -> Option<&str> {
    let rest = key.strip_prefix(ROOT.as_bytes())?;
    let word = |from: usize| {
        let len = rest.get(from..)?.iter().position(|b| *b == b'/')?;
        Some(from + len + 1)
    };
    let first = word(0)?;
    let has_two = rest[..first].contains(&b'.') || rest[..first - 1] == *SERVICES_WORD.as_bytes();
    let end = if has_two { word(first)? } else { first };
    // Keys are text, because object and resource names are.
    std::str::from_utf8(&key[..ROOT.len() + end]).ok()
}

/// Maps the first word of a key to its resource.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    words: BTreeMap<&'static str, (&'static str, &'static str)>,
}
impl Directory {
    /// Creates a directory of built-in resources, given as `(group, plural)`. If two groups serve
    /// the same objects (Events), the first counts.
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
    /// The group and the resource of a prefix from [`prefix_of`]; `None` if it is not a resource of
    /// the API.
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
