//! Reading a cache.
use super::State;
use super::freshness::Freshness;
use super::snapshot::{Snapshot, UnknownIndex};
use super::tree::KeyRef;
use crate::delta::KnownObjects;
use crate::key::Key;
use crate::object::{DecodeError, Object};
use kube_core::Resource;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use setpoint_object::label::Selector;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A reader of a cache: cheap to clone, usable from any task, never waits (FAC-6).
///
/// It reads what has arrived so far; before the informer has synced that is nothing. Objects are
/// shared and read-only. Methods that return typed objects decode under `Compact`; methods that
/// return [`Object`] never do. Selectors are evaluated on encoded objects, so only matches are
/// decoded. Methods that return a `Vec` read everything in one piece on the caller's thread;
/// [`select`](Self::select) reads one object at a time.
///
/// `K` is the type that this reader decodes; listers of other types may read the same cache.
pub struct Lister<K>(Arc<RwLock<Arc<State>>>, pub(super) Arc<Freshness>, PhantomData<fn() -> K>);

/// Why a typed read failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// An object does not fit its type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// There is no such index.
    #[error(transparent)]
    UnknownIndex(#[from] UnknownIndex),
}

impl<K> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.snapshot(), f)
    }
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self::new(self.0.clone(), self.1.clone())
    }
}

impl<K> Lister<K> {
    pub(super) fn new(state: Arc<RwLock<Arc<State>>>, freshness: Arc<Freshness>) -> Self {
        Self(state, freshness, PhantomData)
    }

    /// A reader of the same cache for another type.
    pub(crate) fn cast<V>(&self) -> Lister<V> {
        Lister::new(self.0.clone(), self.1.clone())
    }

    /// The cache as it is now, for several reads that must agree.
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot::of(self.0.read().clone())
    }

    /// One object by key, not decoded.
    pub fn object(&self, key: &Key) -> Option<Object<K>> {
        self.find(key.into())
    }

    /// The stored object, if it is this version.
    pub(crate) fn version(
        &self,
        namespace: &str,
        name: &str,
        (uid, resource_version): (&str, &str),
    ) -> Option<Object<K>> {
        if resource_version.is_empty() {
            return None;
        }
        let object = self.find(KeyRef { namespace, name })?;
        let is_same = object.resource_version() == resource_version && object.uid() == uid;
        is_same.then_some(object)
    }

    fn find(&self, key: KeyRef<'_>) -> Option<Object<K>> {
        self.0.read().objects.get(key).map(|held| held.object.cast())
    }

    /// The resourceVersion up to which the cache is complete; empty before the first list.
    pub fn resource_version(&self) -> Arc<str> {
        self.0.read().resource_version.clone()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A reader of one namespace.
    pub fn namespaced(&self, namespace: impl Into<Arc<str>>) -> NamespaceLister<K> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }

    /// The objects of a value in an index, by key, not decoded.
    ///
    /// # Errors
    /// If there is no such index.
    pub fn objects_by_index(
        &self,
        index: &str,
        value: &str,
    ) -> Result<Vec<Object<K>>, UnknownIndex> {
        Ok(self.snapshot().by_index(index, value)?.collect())
    }
}

impl<K: Resource + 'static> Lister<K> {
    /// The objects whose labels match, by key, not decoded.
    pub fn objects(&self, selector: &Selector) -> Vec<Object<K>> {
        let snapshot = self.snapshot();
        let candidates = snapshot.candidates(selector, None);
        candidates.filter(|object| object.has_labels(selector)).collect()
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Lister<K> {
    /// One object, if the cache has it. The namespace of a cluster-scoped object is empty.
    ///
    /// # Errors
    /// If the object does not fit `K`.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, DecodeError> {
        self.read(KeyRef { namespace, name })
    }

    /// One object by key.
    ///
    /// # Errors
    /// If the object does not fit `K`.
    pub fn get_key(&self, key: &Key) -> Result<Option<Arc<K>>, DecodeError> {
        self.read(key.into())
    }

    fn read(&self, key: KeyRef<'_>) -> Result<Option<Arc<K>>, DecodeError> {
        let object = {
            let state = self.0.read();
            let Some(held) = state.objects.get(key) else { return Ok(None) };
            if let Some(value) = held.object.ready_as() {
                return Ok(Some(value));
            }
            held.object.cast::<K>()
        };
        // Decoded without the lock.
        object.get().map(Some)
    }

    /// The objects of a value in an index, by key.
    ///
    /// # Errors
    /// If there is no such index, or an object does not fit `K`.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, ReadError> {
        let objects = self.objects_by_index(index, value)?;
        Ok(objects.iter().map(Object::get).collect::<Result<_, _>>()?)
    }
}

impl<K: Resource + DeserializeOwned + Send + Sync + 'static> Lister<K> {
    /// The objects whose labels match, in the order of their keys.
    ///
    /// # Errors
    /// If an object does not fit `K`. [`Readable`](super::Readable) is for callers that can act on
    /// the others.
    pub fn list(&self, selector: &Selector) -> Result<Vec<Arc<K>>, DecodeError> {
        let snapshot = self.snapshot();
        let objects = snapshot.candidates(selector, None);
        objects.filter(|object| object.has_labels(selector)).map(|object| object.get()).collect()
    }
}

impl<K: Send + Sync + 'static> KnownObjects<Object<K>> for Lister<K> {
    fn keys(&self) -> Vec<Key> {
        self.snapshot().iter().map(|object| object.key().clone()).collect()
    }

    fn get(&self, key: &Key) -> Option<Object<K>> {
        self.object(key)
    }
}

/// A [`Lister`] of one namespace.
pub struct NamespaceLister<K> {
    lister: Lister<K>,
    namespace: Arc<str>,
}

impl<K> fmt::Debug for NamespaceLister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceLister")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl<K> Clone for NamespaceLister<K> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), namespace: self.namespace.clone() }
    }
}

impl<K: Resource + DeserializeOwned + Send + Sync + 'static> NamespaceLister<K> {
    /// One object, if the cache has it.
    ///
    /// # Errors
    /// If the object does not fit `K`.
    pub fn get(&self, name: &str) -> Result<Option<Arc<K>>, DecodeError> {
        self.lister.get(&self.namespace, name)
    }

    /// The objects whose labels match, by name.
    ///
    /// # Errors
    /// If an object does not fit `K`.
    pub fn list(&self, selector: &Selector) -> Result<Vec<Arc<K>>, DecodeError> {
        let snapshot = self.lister.snapshot();
        let objects = snapshot.candidates(selector, Some(&self.namespace));
        objects.filter(|object| object.has_labels(selector)).map(|object| object.get()).collect()
    }

    /// The objects whose labels match, by name, not decoded.
    pub fn objects(&self, selector: &Selector) -> Vec<Object<K>> {
        let snapshot = self.lister.snapshot();
        let objects = snapshot.candidates(selector, Some(&self.namespace));
        objects.filter(|object| object.has_labels(selector)).collect()
    }
}
