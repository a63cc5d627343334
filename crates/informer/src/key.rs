//! The namespace and name of an object.
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The namespace and name of an object: the key in a cache and in a work queue.
///
/// Displays and parses as `namespace/name`, or `name` for a cluster-scoped object (IDX-1).
/// client-go calls the text a storage key. Ordered by namespace, then name. A clone shares the
/// text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// A key. Cluster-scoped objects have an empty namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self::new("", name)
    }

    /// The key of an object, from its metadata.
    pub fn of<K: kube_core::Resource>(object: &K) -> Self {
        let meta = object.meta();
        let text = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or_default());
        Self { namespace: text(&meta.namespace), name: text(&meta.name) }
    }

    /// The namespace as API paths use it: `None` for a cluster-scoped object.
    pub fn namespace_opt(&self) -> Option<&str> {
        Some(&*self.namespace).filter(|namespace| !namespace.is_empty())
    }
}

/// A version of an object with its name: what a [delta queue](crate::delta) can carry.
pub trait Keyed: Send + Sync + 'static {
    /// Namespace and name.
    fn key(&self) -> &Key;
    /// `metadata.resourceVersion`; empty when the server sent none.
    fn resource_version(&self) -> &str;
}

/// By namespace, then name. Most keys of a cache share the text of their namespace, so the
/// comparison does not read it.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let namespaces = if Arc::ptr_eq(&self.namespace, &other.namespace) {
            Ordering::Equal
        } else {
            self.namespace.cmp(&other.namespace)
        };
        namespaces.then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace_opt() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The text of `Display`, quoted.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A text that is not a key, since it has more than one `/`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected key format: {0:?}")]
pub struct KeyError(pub String);

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, _) => Ok(Self::cluster(name)),
            (Some(namespace), Some(name), None) => Ok(Self::new(namespace, name)),
            _ => Err(KeyError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idx_1_a_key_is_namespace_and_name_or_the_name_alone() {
        assert_eq!(Key::new("a", "b").to_string(), "a/b");
        assert_eq!(Key::cluster("b").to_string(), "b");
        assert_eq!("a/b".parse(), Ok(Key::new("a", "b")));
        assert_eq!("b".parse(), Ok(Key::cluster("b")));
    }

    #[test]
    fn idx_1_a_key_with_two_slashes_is_refused() {
        assert_eq!("a/b/c".parse::<Key>(), Err(KeyError("a/b/c".to_owned())));
    }
}
