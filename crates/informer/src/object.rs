//! One cached object, whichever way the cache holds it.
mod body;
mod skimmed;

use crate::delta::Keyed;
use crate::key::Key;
use crate::policy::CachePolicy;
use crate::pool::{Codec, Pool, Slot};
use crate::record::Record;
use body::{Body, Identity};
pub(crate) use body::{PARTIAL_KIND, metadata_of};
use bytes::Bytes;
use kube_core::Resource;
use serde::de::{DeserializeOwned, Error as _};
use setpoint_object::{Head, Skim};
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Stands for the Rust type of objects where none is chosen: a cache holds objects that each
/// reader decodes as its own type.
pub(crate) enum Untyped {}

/// A handle for nobody's type: what the cache itself works with.
pub(crate) type Raw = Object<Untyped>;

/// A value that some reader decoded.
pub(crate) type AnyValue = Arc<dyn Any + Send + Sync>;

/// A handle to one version of one object: cheap to clone, shared with every other reader, never
/// changed (IDX-9).
///
/// What an enqueuing handler needs (key, uid, resourceVersion) costs no decode under any
/// [`CachePolicy`], and neither do labels and owners ([`skim`](Self::skim)); [`get`](Self::get)
/// gives the typed object.
///
/// `K` is what this reader decodes. Other readers of the same cache may hold handles of other types
/// to the same object: there is one copy of its bytes.
///
/// # In memory
///
/// Two allocations beside the name: this one, and the encoded object in exactly its size. uid and
/// resourceVersion are places in it; what is packed has their text before it.
pub struct Object<K>(Arc<Inner>, PhantomData<fn() -> K>);

pub(crate) struct Inner {
    key: Key,
    identity: Identity,
    body: Body,
    /// Only metadata was taken in.
    is_partial: bool,
    /// Packing was tried and won nothing.
    stays_plain: bool,
    pool: Option<Arc<Pool>>,
    decoded: Slot,
}

impl Inner {
    pub(crate) fn decoded(&self) -> &Slot {
        &self.decoded
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.left(self);
        }
    }
}

/// An object whose JSON does not fit its Rust type.
#[derive(Debug, Clone, thiserror::Error)]
#[error("decode {kind} {key} at resourceVersion {resource_version}")]
#[non_exhaustive]
pub struct DecodeError {
    /// Which object.
    pub key: Key,
    /// The name of the Rust type.
    pub kind: &'static str,
    /// Which version of it.
    pub resource_version: String,
    /// What the decoder says.
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

/// How an intake makes objects.
impl<K> Object<K> {
    fn from_parts(key: Key, identity: Identity, body: Body, pool: Option<Arc<Pool>>) -> Self {
        let policy = pool.as_ref().map(|pool| pool.policy);
        let inner = Inner {
            key,
            identity,
            body,
            is_partial: policy == Some(CachePolicy::Metadata),
            stays_plain: false,
            pool,
            decoded: Slot::default(),
        };
        Self(Arc::new(inner), PhantomData)
    }

    /// The same object for a reader of another type.
    pub(crate) fn cast<V>(&self) -> Object<V> {
        self.clone().into_type()
    }

    /// [`cast`](Self::cast), of a handle that is not needed any more.
    pub(crate) fn into_type<V>(self) -> Object<V> {
        Object(self.0, PhantomData)
    }

    /// An object that is kept as its JSON, of which this is the head.
    pub(crate) fn plain(key: Key, json: Bytes, head: &Head, pool: Option<Arc<Pool>>) -> Self {
        let (identity, body) = Body::plain(json, head);
        Self::from_parts(key, identity, body, pool)
    }

    /// An object that is kept decoded.
    pub(crate) fn decoded(key: Key, value: AnyValue, ids: (&str, &str), pool: Arc<Pool>) -> Self {
        let (identity, ids) = Identity::of(ids.0, ids.1);
        Self::from_parts(key, identity, Body::Decoded(value, ids), Some(pool))
    }

    /// An object that is packed, or kept as its JSON where that wins nothing. `scratch` is
    /// overwritten.
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
                let mut object = Self::from_parts(key, identity, body, Some(pool));
                if let Some(inner) = Arc::get_mut(&mut object.0) {
                    inner.stays_plain = true;
                }
                object
            }
        }
    }

    /// The packed form of an object that was taken in before there was something to pack it with;
    /// `None` when it is as it should be.
    pub(crate) fn repacked(&self) -> Option<Self> {
        let inner = &*self.0;
        let pool = inner.pool.as_ref().filter(|pool| pool.policy.packs() && !inner.stays_plain)?;
        let codec = pool.codec()?;
        let json = inner.body.json()?;
        let ids = (self.uid(), self.resource_version());
        let (identity, body) = body::pack(codec, json, ids, &mut Vec::new())?;
        Some(Self::from_parts(inner.key.clone(), identity, body, Some(pool.clone())))
    }

    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.0.body, Body::Packed(_))
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// The object has left the cache: nobody will read it there again.
    pub(crate) fn left(&self) {
        if let Some(pool) = &self.0.pool {
            pool.left(&self.0);
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

    /// `metadata.uid`: which incarnation of the name this is (HWC-8). Empty when the server sent
    /// none.
    pub fn uid(&self) -> &str {
        self.0.body.text(self.0.identity.uid)
    }

    /// `metadata.resourceVersion`; empty when the server sent none.
    pub fn resource_version(&self) -> &str {
        self.0.body.text(self.0.identity.resource_version)
    }

    /// The object's JSON, when the cache keeps it as that: under `Compact`, or when it could not be
    /// decoded or packed. Under any policy but `Decoded` there is [`json`](Self::json).
    pub fn bytes(&self) -> Option<&Bytes> {
        self.0.body.json()
    }

    /// The object's JSON; what is packed is unpacked anew. `None` when the cache keeps the decoded
    /// value.
    pub fn json(&self) -> Option<Bytes> {
        match &self.0.body {
            Body::Decoded(..) => None,
            Body::Packed(packed) => self.unpack(packed).ok().map(Bytes::from),
            plain => plain.json().cloned(),
        }
    }

    /// Whether this is only the object's type and metadata (`CachePolicy::Metadata`): what else
    /// [`get`](Self::get) gives is empty whatever the server holds.
    pub fn is_partial(&self) -> bool {
        self.0.is_partial
    }

    /// The object as a `V` where it needs no decoding.
    pub(crate) fn ready_as<V: Send + Sync + 'static>(&self) -> Option<Arc<V>> {
        match &self.0.body {
            Body::Decoded(value, _) => value.clone().downcast().ok(),
            _ => self.0.decoded.get(),
        }
    }

    /// Whether two handles are to the same cached value.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn unpack(&self, packed: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let frame = packed.get(self.0.identity.end()..).unwrap_or_default();
        // Only a codec packs, and there is never another one.
        let codec = self.0.pool.as_ref().and_then(|pool| pool.codec());
        let codec = codec.ok_or_else(|| serde_json::Error::custom("packed without a codec"))?;
        codec.unpack(frame).map_err(serde_json::Error::io)
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Object<K> {
    /// The typed object. Under `Decoded`, and for the objects that were read last, this counts a
    /// reference; otherwise it decodes.
    ///
    /// # Errors
    /// When the object does not fit `K`.
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

    /// The typed object where it needs no decoding.
    pub(crate) fn ready(&self) -> Option<Arc<K>> {
        self.ready_as()
    }

    /// The typed object for one look: it is decoded, if need be, and not kept.
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

    /// Makes the cached form of an object, as a cache under `policy` holds it. One object alone is
    /// never packed.
    pub fn new(record: Record, policy: CachePolicy) -> Self {
        let Record { key, uid, resource_version, bytes } = record;
        let pool = Pool::new(policy, 0);
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
    /// The object's metadata, without decoding it.
    ///
    /// Under `Decoded` it is borrowed from the value: `api_version`, `kind`, the timestamps and
    /// `managed_fields` are then left empty, except `deletion_timestamp`, which is non-empty when
    /// set. What is packed is unpacked for it, and copied out.
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
            // Bytes enter a cache by a scan, so they skim.
            body => body.json().and_then(|json| Skim::of(json).ok()).unwrap_or_default(),
        }
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

/// Key and resourceVersion: enough to tell versions apart in logs.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.resource_version())
    }
}

#[cfg(test)]
mod tests;
