//! Cached reads of one type, over all its informers.

use std::{fmt, sync::Arc};

use kube_core::Resource;
use serde::de::DeserializeOwned;
use setpoint_informer::{DecodeError, Key, Lister, NamespaceLister, Object, indexer::UnknownIndex};
use setpoint_object::label::Selector;

use super::CacheInformer;

/// Reads the cached objects of one type. Cheap to clone, usable from any task, never waits.
///
/// It answers from the objects that have arrived so far. If the type has one informer per namespace
/// (CCH-4), a read of one namespace reads its informer. A read of all namespaces concatenates the
/// informers' objects, which is not a snapshot of a single resource version.
pub struct CacheLister<K>(pub(super) CacheInformer<K>);

/// A cached read of a namespace that is not cached, so the absence of an object cannot be known
/// (CCH-4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "read {resource} of namespace {namespace:?} from the cache: that namespace is not cached. Cache it \
     (ManagerBuilder::namespaces), or read it live (Api::get_live, Api::list_live)"
)]
#[non_exhaustive]
pub struct NamespaceNotCached {
    /// The resource, with its group.
    pub resource: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
}

/// Why a read by a [`CacheLister`] failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CacheReadError {
    /// The namespace is not cached.
    #[error(transparent)]
    Namespace(#[from] NamespaceNotCached),
    /// An object does not fit its type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// There is no such index.
    #[error(transparent)]
    UnknownIndex(#[from] UnknownIndex),
}

impl<K> CacheLister<K> {
    /// The informers it reads.
    pub fn informer(&self) -> &CacheInformer<K> {
        &self.0
    }

    /// The listers of its informers, in the order of [`CacheInformer::informers`].
    pub fn listers(&self) -> impl Iterator<Item = Lister<K>> {
        self.0.members().iter().map(|member| member.informer.lister())
    }

    /// The lister of the informer that holds a namespace, and perhaps others.
    ///
    /// # Errors
    ///
    /// The namespace is not cached.
    pub fn of_namespace(&self, namespace: &str) -> Result<Lister<K>, NamespaceNotCached> {
        Ok(self.0.of_namespace(namespace)?.lister())
    }

    /// A lister of one namespace.
    ///
    /// # Errors
    ///
    /// The namespace is not cached.
    pub fn namespaced(
        &self,
        namespace: impl Into<Arc<str>>,
    ) -> Result<NamespaceLister<K>, NamespaceNotCached> {
        let namespace = namespace.into();
        Ok(self.of_namespace(&namespace)?.namespaced(namespace))
    }

    /// The number of cached objects.
    pub fn len(&self) -> usize {
        self.listers().map(|lister| lister.len()).sum()
    }

    /// Whether no object is cached.
    pub fn is_empty(&self) -> bool {
        self.listers().all(|lister| lister.is_empty())
    }

    /// Returns one object by key, not decoded.
    ///
    /// # Errors
    ///
    /// The namespace is not cached.
    pub fn object(&self, key: &Key) -> Result<Option<Object<K>>, NamespaceNotCached> {
        Ok(self.of_namespace(&key.namespace)?.object(key))
    }

    /// Returns the objects with a value in an index, sorted by key, not decoded.
    ///
    /// # Errors
    ///
    /// There is no such index.
    pub fn objects_by_index(
        &self,
        index: &str,
        value: &str,
    ) -> Result<Vec<Object<K>>, UnknownIndex> {
        let mut found = Vec::new();
        for lister in self.listers() {
            found.extend(lister.objects_by_index(index, value)?);
        }
        Ok(self.in_order(found))
    }

    /// Sorts objects found in several informers by key.
    pub(crate) fn in_order(&self, mut found: Vec<Object<K>>) -> Vec<Object<K>> {
        if self.0.is_interleaved() {
            found.sort_by(|a, b| a.key().cmp(b.key()));
        }
        found
    }
}

impl<K: Resource + 'static> CacheLister<K> {
    /// Returns the objects whose labels match, sorted by key, not decoded.
    pub fn objects(&self, selector: &Selector) -> Vec<Object<K>> {
        let found = self.listers().flat_map(|lister| lister.objects(selector)).collect();
        self.in_order(found)
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> CacheLister<K> {
    /// Returns one object; `None` if it is not in the cache. The namespace of a cluster-scoped
    /// object is empty.
    ///
    /// # Errors
    ///
    /// The namespace is not cached, or the object does not fit `K`.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, CacheReadError> {
        Ok(self.of_namespace(namespace)?.get(namespace, name)?)
    }

    /// Returns one object by key.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_key(&self, key: &Key) -> Result<Option<Arc<K>>, CacheReadError> {
        Ok(self.of_namespace(&key.namespace)?.get_key(key)?)
    }

    /// Returns the objects with a value in an index, sorted by key.
    ///
    /// # Errors
    ///
    /// There is no such index, or an object does not fit `K`.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, CacheReadError> {
        let objects = self.objects_by_index(index, value)?;
        Ok(objects.iter().map(Object::get).collect::<Result<_, _>>()?)
    }
}

impl<K: Resource + DeserializeOwned + Send + Sync + 'static> CacheLister<K> {
    /// Returns the objects whose labels match, sorted by key.
    ///
    /// # Errors
    ///
    /// An object does not fit `K`.
    pub fn list(&self, selector: &Selector) -> Result<Vec<Arc<K>>, DecodeError> {
        self.objects(selector).iter().map(Object::get).collect()
    }
}

impl<K> Clone for CacheLister<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for CacheLister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheLister").field(&self.0).finish()
    }
}
