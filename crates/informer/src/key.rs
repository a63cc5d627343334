//! The namespace and name of an object.
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The namespace and name of an object: the key in a cache and in a work queue.
///
/// Displays and parses as `namespace/name`, or `name` for a cluster-scoped object (IDX-1).
/// client-go calls the text a storage key. Ordered as servers order their lists, by that text: by
/// namespace, each followed by a slash, then by name. A clone shares the text.
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

/// The largest number of namespaces whose text is kept to be shared.
const NAMESPACES_MAX: usize = 4096;

/// Shares the text of namespaces among keys: it is stored once, and equal texts are compared by
/// their address.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    last: Option<Arc<str>>,
    known: hashbrown::HashSet<Arc<str>>,
}

impl Namespaces {
    pub(crate) fn share(&mut self, namespace: &str) -> Arc<str> {
        // A list is sorted by namespace.
        if let Some(last) = &self.last
            && **last == *namespace
        {
            return last.clone();
        }
        let shared = match self.known.get(namespace) {
            Some(known) => known.clone(),
            None => {
                if self.known.len() >= NAMESPACES_MAX {
                    self.known.clear();
                }
                let new: Arc<str> = Arc::from(namespace);
                self.known.insert(new.clone());
                new
            }
        };
        self.last.insert(shared).clone()
    }
}

/// A version of an object with its name: what a [delta queue](crate::delta) can carry.
pub trait Keyed: Send + Sync + 'static {
    /// Namespace and name.
    fn key(&self) -> &Key;
    /// `metadata.resourceVersion`; empty when the server sent none.
    fn resource_version(&self) -> &str;
}

/// The byte between namespace and name. A name of a namespace has characters before and after it.
pub(crate) const SEPARATOR: u8 = b'/';

/// The order of keys, of their namespaces and names. Most keys of a cache share the text of their
/// namespace, so the comparison does not read it.
pub(crate) fn compare(a: (&str, &str), b: (&str, &str)) -> Ordering {
    let ((a_namespace, a_name), (b_namespace, b_name)) = (a, b);
    if std::ptr::eq(a_namespace, b_namespace) || a_namespace == b_namespace {
        return a_name.cmp(b_name);
    }
    let (a, b) = (a_namespace.as_bytes(), b_namespace.as_bytes());
    let n_both = a.len().min(b.len());
    let next = |namespace: &[u8]| namespace.get(n_both).copied().unwrap_or(SEPARATOR);
    let order = a[..n_both].cmp(&b[..n_both]).then_with(|| next(a).cmp(&next(b)));
    // The separator in a namespace, which no server accepts.
    order.then_with(|| text(a_namespace, a_name).cmp(text(b_namespace, b_name))).then(a.cmp(b))
}

/// The text of a key, which its order compares.
pub(crate) fn text<'a>(namespace: &'a str, name: &'a str) -> impl Iterator<Item = u8> + use<'a> {
    namespace.bytes().chain([SEPARATOR]).chain(name.bytes())
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        compare((&self.namespace, &self.name), (&other.namespace, &other.name))
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
    fn keys_have_the_order_of_their_text() {
        let keys = ["z", "a-b/a", "a.b/a", "a/b", "a/ba", "a0/a", "aa/a", "b/a"];
        let keys = keys.map(|key| key.parse::<Key>().unwrap());
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    }

    #[test]
    fn namespaces_share_their_text_and_are_bounded() {
        let mut namespaces = Namespaces::default();
        let (a, b) = (namespaces.share("a"), namespaces.share("b"));
        assert!(Arc::ptr_eq(&a, &namespaces.share("a")) && Arc::ptr_eq(&b, &namespaces.share("b")));
        for n in 0..2 * NAMESPACES_MAX {
            assert_eq!(*namespaces.share(&n.to_string()), n.to_string());
        }
        assert!(namespaces.known.len() <= NAMESPACES_MAX);
    }

    #[test]
    fn idx_1_a_key_with_two_slashes_is_refused() {
        assert_eq!("a/b/c".parse::<Key>(), Err(KeyError("a/b/c".to_owned())));
    }
}
