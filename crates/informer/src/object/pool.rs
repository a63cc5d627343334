//! The parts that all objects of a cache share: the codec that packs them, and the decoded values.

#[cfg(feature = "compressed")]
mod codec;
#[cfg(not(feature = "compressed"))]
#[path = "pool/no_codec.rs"]
mod codec;
mod decoded;
mod training;

pub(crate) use codec::Codec;
pub(crate) use decoded::Slot;
pub(crate) use training::Training;

use crate::decode;
use crate::object::{AnyValue, Inner};
use crate::policy::CachePolicy;
use decoded::Places;
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The default size of the decoded objects that a cache keeps beside encoded ones: 32 MiB, a
/// thousand Pods or fifty thousand structs of a few fields.
pub const DECODED_BYTES: usize = 32 << 20;

/// Returns uid and resourceVersion of a decoded value; empty texts for those that it lacks.
pub(crate) type IdsOf = fn(&(dyn Any + Send + Sync)) -> (&str, &str);

/// The state shared by the intake and the objects of an informer.
pub(crate) struct Pool {
    pub(crate) policy: CachePolicy,
    /// For the values of [`CachePolicy::Decoded`]. `None` for values whose metadata is unknown.
    ids_of: Option<IdsOf>,
    /// Set once, when the dictionary has been trained.
    codec: OnceLock<Codec>,
    decoded_max: usize,
    decoded: Mutex<Places>,
    /// The decoded types, and whether they declare only a part of the objects.
    shapes: RwLock<Vec<(TypeId, bool)>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("policy", &self.policy)
            .field("decoded_max", &self.decoded_max)
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(policy: CachePolicy, decoded_max: usize, ids_of: Option<IdsOf>) -> Arc<Self> {
        Arc::new(Self {
            policy,
            ids_of,
            codec: OnceLock::new(),
            decoded_max,
            decoded: Mutex::default(),
            shapes: RwLock::default(),
        })
    }

    /// uid and resourceVersion in the metadata of a decoded value.
    pub(crate) fn ids<'a>(&self, value: &'a AnyValue) -> (&'a str, &'a str) {
        self.ids_of.map_or_else(Default::default, |ids_of| ids_of(&**value))
    }

    /// The codec, once the dictionary has been trained.
    pub(crate) fn codec(&self) -> Option<&Codec> {
        self.codec.get()
    }

    /// Sets the codec. Later calls have no effect.
    pub(crate) fn set_codec(&self, codec: Codec) {
        let _ = self.codec.set(codec);
    }

    /// Decodes an object as `K`, in the best way for the type. Also returns the bytes of the value.
    pub(crate) fn decode<K: DeserializeOwned + 'static>(
        &self,
        json: &[u8],
    ) -> Result<(K, usize), serde_json::Error> {
        let of = TypeId::of::<K>();
        let known = self.shapes.read().iter().find(|(known, _)| *known == of).map(|(_, is)| *is);
        if known == Some(true) {
            return decode::part(json);
        }
        let (value, n_bytes, is_part) = decode::whole(json)?;
        if known.is_none() {
            let mut shapes = self.shapes.write();
            if shapes.iter().all(|(known, _)| *known != of) {
                shapes.push((of, is_part));
            }
        }
        Ok((value, n_bytes))
    }

    /// Keeps a decoded value for the next reader.
    pub(crate) fn keep(&self, inner: &Arc<Inner>, value: AnyValue, n_bytes: usize) {
        if self.decoded_max == 0 {
            return;
        }
        let gone = self.decoded.lock().enter(inner, value, n_bytes, self.decoded_max);
        // Freed without the lock.
        drop(gone);
    }

    /// The object has left the cache or is dropped: drops its values.
    pub(crate) fn on_removed(&self, inner: &Inner) {
        if !inner.decoded().is_empty() {
            let gone = self.decoded.lock().leave(inner);
            drop(gone);
        }
    }

    /// The size of the kept values, bytes.
    pub(crate) fn decoded_bytes(&self) -> usize {
        self.decoded.lock().n_bytes()
    }
}
