//! One cached object, in any form.
mod body;
mod pool;
mod skimmed;

use crate::key::{Key, Keyed};
use crate::policy::CachePolicy;
use crate::record::Record;
pub(crate) use body::metadata_of;
use body::{Body, Identity};
use bytes::Bytes;
use kube_core::Resource;
pub use pool::DECODED_BYTES;
use pool::Slot;
pub(crate) use pool::{Codec, Pool, Training};
use serde::de::{DeserializeOwned, Error as _};
use setpoint_object::label::Selector;
use setpoint_object::{Head, Skim, skim};
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The Rust type of objects in the cache, which each reader decodes as its own type.
pub(crate) enum Untyped {}

/// An untyped handle, as the cache uses it.
pub(crate) type Raw = Object<Untyped>;

/// A decoded value.
pub(crate) type AnyValue = Arc<dyn Any + Send + Sync>;

/// A handle of one version of one object: cheap to clone, shared with other readers, immutable
/// (IDX-9).
///
/// Key, uid and resourceVersion need no decoding under any [`CachePolicy`], and neither do labels
/// and owners ([`skim`](Self::skim)). [`get`](Self::get) returns the typed object.
///
/// `K` is the type that this reader decodes. Handles of other types may refer to the same object;
/// there is one copy of its bytes.
///
/// # In memory
///
/// Two allocations beside the name: this one, and the encoded object in exactly its size. uid and
/// resourceVersion are ranges in it; a packed object has their text before it, a decoded one in its
/// metadata.
pub struct Object<K>(Arc<Inner>, PhantomData<fn() -> K>);

pub(crate) struct Inner {
    key: Key,
    identity: Identity,
    body: Body,
    pool: Option<Arc<Pool>>,
    decoded: Slot,
}

impl Inner {
    pub(crate) fn decoded(&self) -> &Slot {
        &self.decoded
    }

    /// uid and resourceVersion of a decoded value that has them in its metadata.
    fn value_ids(&self) -> Option<(&str, &str)> {
        match &self.body {
            Body::Decoded(value, beside) if beside.is_empty() => {
                Some(self.pool.as_ref()?.ids(value))
            }
            _ => None,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.on_removed(self);
        }
    }
}

/// An object whose JSON does not fit its Rust type.
#[derive(Debug, Clone, thiserror::Error)]
#[error("decode {kind} {key} at resourceVersion {resource_version}")]
#[non_exhaustive]
pub struct DecodeError {
    /// The object.
    pub key: Key,
    /// The name of the Rust type.
    pub kind: &'static str,
    /// Its version.
    pub resource_version: String,
    /// The error of the decoder.
    #[source]
    pub source: Arc<serde_json::Error>,
}

impl<K: 'static> Keyed for Object<K> {
    fn key(&self) -> &Key {
        self.key()
    }

    fn resource_version(&self) -> &str {
        self.resource_version()
    }
}

/// Constructors for intakes.
impl<K> Object<K> {
    fn from_parts(key: Key, identity: Identity, body: Body, pool: Option<Arc<Pool>>) -> Self {
        let inner = Inner { key, identity, body, pool, decoded: Slot::default() };
        Self(Arc::new(inner), PhantomData)
    }

    /// The same object for a reader of another type.
    pub(crate) fn cast<V>(&self) -> Object<V> {
        self.clone().into_type()
    }

    /// [`cast`](Self::cast) of an owned handle.
    pub(crate) fn into_type<V>(self) -> Object<V> {
        Object(self.0, PhantomData)
    }

    /// An object as JSON with this head.
    pub(crate) fn plain(key: Key, json: Bytes, head: &Head, pool: Option<Arc<Pool>>) -> Self {
        let (identity, body) = Body::plain(json, head);
        Self::from_parts(key, identity, body, pool)
    }

    /// A decoded object. Stores the identity beside the value only if its metadata has another.
    pub(crate) fn decoded(key: Key, value: AnyValue, ids: (&str, &str), pool: Arc<Pool>) -> Self {
        let (identity, beside) = match pool.ids(&value) == ids {
            true => (Identity::in_order(ids.0, ids.1), Box::default()),
            false => Identity::of(ids.0, ids.1),
        };
        Self::from_parts(key, identity, Body::Decoded(value, beside), Some(pool))
    }

    /// A packed object; or JSON, if packing does not make it smaller. Overwrites `scratch`.
    pub(crate) fn packed(
        key: Key,
        json: &[u8],
        head: &Head,
        pool: Arc<Pool>,
        codec: &Codec,
        scratch: &mut Vec<u8>,
    ) -> Self {
        match body::pack(codec, json, (&head.uid(json), &head.resource_version(json)), scratch) {
            Some((identity, body)) => Self::from_parts(key, identity, body, Some(pool)),
            None => {
                let (identity, body) = Body::plain(Bytes::copy_from_slice(json), head);
                Self::from_parts(key, identity, body.stay_plain(), Some(pool))
            }
        }
    }

    /// The packed form of an object that was stored before there was a dictionary; `None` if the
    /// object should stay as it is.
    pub(crate) fn repacked(&self) -> Option<Self> {
        let inner = &*self.0;
        let pool = inner.pool.as_ref().filter(|pool| pool.policy.packs())?;
        let codec = pool.codec()?;
        let json = inner.body.json().filter(|_| !inner.body.stays_plain())?;
        let ids = (self.uid(), self.resource_version());
        let (identity, body) = body::pack(codec, json, ids, &mut Vec::new())?;
        Some(Self::from_parts(inner.key.clone(), identity, body, Some(pool.clone())))
    }

    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.0.body, Body::Packed(_))
    }

    /// Whether the cache of this object holds decoded values.
    pub(crate) fn holds_value(&self) -> bool {
        self.0.pool.as_ref().is_some_and(|pool| pool.policy == CachePolicy::Decoded)
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// Must be called when the object has left the cache: drops its decoded values.
    pub(crate) fn on_removed(&self) {
        if let Some(pool) = &self.0.pool {
            pool.on_removed(&self.0);
        }
    }
}

impl<K> Object<K> {
    /// Namespace and name.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        &self.0.key.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.key.name
    }

    /// `metadata.uid`, which identifies the incarnation of a name (HWC-8). Empty if the server sent
    /// none.
    pub fn uid(&self) -> &str {
        match self.0.value_ids() {
            Some((uid, _)) => uid,
            None => self.0.body.text(self.0.identity.uid),
        }
    }

    /// `metadata.resourceVersion`; empty if the server sent none.
    pub fn resource_version(&self) -> &str {
        match self.0.value_ids() {
            Some((_, resource_version)) => resource_version,
            None => self.0.body.text(self.0.identity.resource_version),
        }
    }

    /// Whether both have this resourceVersion, which is not empty.
    pub(crate) fn has_version_of(&self, other: &Self) -> bool {
        match (self.0.identity.number, other.0.identity.number) {
            (0, _) | (_, 0) => {
                let version = self.resource_version();
                !version.is_empty() && version == other.resource_version()
            }
            (version, other) => version == other,
        }
    }

    /// The object's JSON, if the cache stores that: under `Compact`, or if the object could not be
    /// decoded or packed. See also [`json`](Self::json).
    pub fn bytes(&self) -> Option<&Bytes> {
        self.0.body.json()
    }

    /// The object's JSON. Unpacks a packed object. `None` if the cache stores the decoded value.
    pub fn json(&self) -> Option<Bytes> {
        match &self.0.body {
            Body::Decoded(..) => None,
            Body::Packed(packed) => self.unpack(packed).ok().map(Bytes::from),
            plain => plain.json().cloned(),
        }
    }

    /// Whether only type and metadata are stored (`CachePolicy::Metadata`). Other fields of
    /// [`get`](Self::get)'s value are empty, whatever the server has.
    pub fn is_partial(&self) -> bool {
        self.0.pool.as_ref().is_some_and(|pool| pool.policy == CachePolicy::Metadata)
    }

    /// The object as a `V`, if it is decoded.
    pub(crate) fn ready_as<V: Send + Sync + 'static>(&self) -> Option<Arc<V>> {
        match &self.0.body {
            Body::Decoded(value, _) => value.clone().downcast().ok(),
            _ => self.0.decoded.get(),
        }
    }

    /// Whether two handles refer to the same cached object.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn unpack(&self, packed: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let frame = packed.get(self.0.identity.end()..).unwrap_or_default();
        // Only the codec packs, and it is never replaced.
        let codec = self.0.pool.as_ref().and_then(|pool| pool.codec());
        let codec = codec.ok_or_else(|| serde_json::Error::custom("packed without a codec"))?;
        codec.unpack(frame).map_err(serde_json::Error::io)
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Object<K> {
    /// The typed object. Under `Decoded`, and for recently read objects, this costs a reference
    /// count; otherwise it decodes.
    ///
    /// # Errors
    /// If the object does not fit `K`.
    pub fn get(&self) -> Result<Arc<K>, DecodeError> {
        if let Some(value) = self.ready() {
            return Ok(value);
        }
        let (value, n_bytes) = self.decode()?;
        let value = Arc::new(value);
        if let Some(pool) = &self.0.pool {
            pool.keep(&self.0, value.clone(), n_bytes);
        }
        Ok(value)
    }

    /// The typed object, if it is decoded.
    pub(crate) fn ready(&self) -> Option<Arc<K>> {
        self.ready_as()
    }

    /// The typed object. A value that has to be decoded is not kept.
    pub(crate) fn look(&self) -> Result<Arc<K>, DecodeError> {
        self.ready().map_or_else(|| self.decode().map(|(value, _)| Arc::new(value)), Ok)
    }

    fn decode(&self) -> Result<(K, usize), DecodeError> {
        let decode = |json: &[u8]| match &self.0.pool {
            Some(pool) => pool.decode(json),
            None => crate::decode::whole(json).map(|(value, n_bytes, _)| (value, n_bytes)),
        };
        let decoded = match &self.0.body {
            Body::Packed(packed) => self.unpack(packed).and_then(|json| decode(&json)),
            body => decode(body.json().map_or(&[][..], |json| json)),
        };
        decoded.map_err(|source| DecodeError {
            key: self.0.key.clone(),
            kind: std::any::type_name::<K>(),
            resource_version: self.resource_version().to_owned(),
            source: Arc::new(source),
        })
    }

    /// An object in the form of a cache under `policy`. A single object is never packed.
    pub fn new(record: Record, policy: CachePolicy) -> Self {
        let Record { key, uid, resource_version, bytes } = record;
        let pool = Pool::new(policy, 0, None);
        if policy == CachePolicy::Decoded
            && let Ok(value) = crate::decode::from_slice::<K>(&bytes)
        {
            return Self::decoded(key, Arc::new(value), (&uid, &resource_version), pool);
        }
        let bytes = match policy {
            CachePolicy::Metadata => body::metadata_of(&bytes, ("", ""))
                .map_or(bytes, |(metadata, _)| Bytes::from(metadata)),
            _ => bytes,
        };
        let (identity, body) = Body::known(bytes, &uid, &resource_version);
        Self::from_parts(key, identity, body, Some(pool))
    }
}

impl<K: Resource + 'static> Object<K> {
    /// The object's metadata, without decoding.
    ///
    /// Under `Decoded` it is borrowed from the value: `api_version`, `kind`, `managed_fields` and
    /// the timestamps are empty, except a set `deletion_timestamp`. A packed object is unpacked and
    /// its metadata copied.
    pub fn skim(&self) -> Skim<'_> {
        match &self.0.body {
            Body::Decoded(value, _) => value
                .downcast_ref()
                .map(|object: &K| skimmed::of(object.meta()))
                .unwrap_or_default(),
            Body::Packed(packed) => {
                let json = self.unpack(packed).unwrap_or_default();
                Skim::of(&json).map(skimmed::owned).unwrap_or_default()
            }
            // The intake has scanned the bytes, so a skim succeeds.
            body => body.json().and_then(|json| Skim::of(json).ok()).unwrap_or_default(),
        }
    }

    /// Whether the labels match. Reads nothing else of the object.
    pub(crate) fn has_labels(&self, selector: &Selector) -> bool {
        if selector.is_everything() {
            return true;
        }
        if let Body::Decoded(value, _) = &self.0.body {
            let labels = value.downcast_ref::<K>().and_then(|value| value.meta().labels.as_ref());
            return selector.matches(|key| labels?.get(key).map(String::as_str));
        }
        let json = self.json().unwrap_or_default();
        let labels = skim::labels(&json[skim::labels_range(&json)]);
        selector
            .matches(|key| labels.iter().find(|(label, _)| label == key).map(|(_, value)| &**value))
    }

    /// Something of each label. Reads nothing else of the object.
    pub(crate) fn map_labels<T>(&self, mut of: impl FnMut(&str, &str) -> T) -> Vec<T> {
        if let Body::Decoded(value, _) = &self.0.body {
            let labels = value.downcast_ref::<K>().and_then(|value| value.meta().labels.as_ref());
            return labels.into_iter().flatten().map(|(key, value)| of(key, value)).collect();
        }
        let json = self.json().unwrap_or_default();
        let labels = skim::labels(&json[skim::labels_range(&json)]);
        labels.iter().map(|(key, value)| of(key, value)).collect()
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        match &self.0.body {
            Body::Decoded(value, _) => {
                let labels = value.downcast_ref::<K>()?.meta().labels.as_ref()?;
                labels.get(key).map(|value| Cow::Borrowed(value.as_str()))
            }
            _ => self.skim().labels.into_iter().find(|(label, _)| label == key).map(|(_, v)| v),
        }
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

/// Key and resourceVersion.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.resource_version())
    }
}

#[cfg(test)]
mod tests;
