//! Reading what is cached of one type, over its informers.

use std::{fmt, sync::Arc};

use kube_core::Resource;
use serde::de::DeserializeOwned;
use setpoint_informer::{DecodeError, Key, Lister, NamespaceLister, Object, indexer::UnknownIndex};
use setpoint_object::label::Selector;

use super::CacheInformer;

/// A reading end of what is cached of one type: cheap to clone, used from any task, never waits.
///
/// It answers from what has arrived so far. Where the type has an informer per namespace (CCH-4), a
/// read of one namespace asks its informer, and one over all namespaces concatenates: that is not a
/// single moment.
pub struct CacheLister<K>(pub(super) CacheInformer<K>);

/// A cached read of a namespace that the rules leave out: nothing can be said about absence
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
    /// The rules leave the namespace out.
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
    /// The informers that it reads.
    pub fn informer(&self) -> &CacheInformer<K> {
        &self.0
    }

    /// The reading ends of its informers, in the order of [`CacheInformer::informers`].
    pub fn listers(&self) -> impl Iterator<Item = Lister<K>> {
        self.0.members().iter().map(|member| member.informer.lister())
    }

    /// The reading end of the informer that holds a namespace, and perhaps others.
    ///
    /// # Errors
    ///
    /// The rules name other namespaces.
    pub fn of_namespace(&self, namespace: &str) -> Result<Lister<K>, NamespaceNotCached> {
        Ok(self.0.of_namespace(namespace)?.lister())
    }

    /// The part of one namespace.
    ///
    /// # Errors
    ///
    /// The rules name other namespaces.
    pub fn namespaced(
        &self,
        namespace: impl Into<Arc<str>>,
    ) -> Result<NamespaceLister<K>, NamespaceNotCached> {
        let namespace = namespace.into();
        Ok(self.of_namespace(&namespace)?.namespaced(namespace))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.listers().map(|lister| lister.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.listers().all(|lister| lister.is_empty())
    }

    /// One object by key, not decoded.
    ///
    /// # Errors
    ///
    /// The rules name other namespaces.
    pub fn object(&self, key: &Key) -> Result<Option<Object<K>>, NamespaceNotCached> {
        Ok(self.of_namespace(&key.namespace)?.object(key))
    }

    /// The objects that an index files under a value, by key, not decoded.
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

    /// What was found by one informer after the other, by key.
    pub(crate) fn in_order(&self, mut found: Vec<Object<K>>) -> Vec<Object<K>> {
        if self.0.is_interleaved() {
            found.sort_by(|a, b| a.key().cmp(b.key()));
        }
        found
    }
}

impl<K: Resource + 'static> CacheLister<K> {
    /// The objects whose labels match, by key, not decoded.
    pub fn objects(&self, selector: &Selector) -> Vec<Object<K>> {
        let found = self.listers().flat_map(|lister| lister.objects(selector)).collect();
        self.in_order(found)
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> CacheLister<K> {
    /// One object; `None` when the cache has none of that name. The namespace of a cluster-scoped
    /// object is empty.
    ///
    /// # Errors
    ///
    /// The rules name other namespaces, or the object does not fit `K`.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, CacheReadError> {
        Ok(self.of_namespace(namespace)?.get(namespace, name)?)
    }

    /// One object by key.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_key(&self, key: &Key) -> Result<Option<Arc<K>>, CacheReadError> {
        Ok(self.of_namespace(&key.namespace)?.get_key(key)?)
    }

    /// The objects that an index files under a value, by key.
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
    /// The objects whose labels match, by namespace and name.
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
