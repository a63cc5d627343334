//! What the objects of one cache have in common: how they are packed, and which of them are kept
//! decoded.

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
use std::any::TypeId;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// How many bytes of decoded objects a cache keeps beside the encoded ones, unless it is told
/// otherwise: 32 MiB. That is a thousand Pods, or fifty thousand structs of a few fields.
pub const DECODED_BYTES: usize = 32 << 20;

/// Shared by an informer's intake and its objects.
pub(crate) struct Pool {
    pub(crate) policy: CachePolicy,
    /// There is one once a dictionary was trained; never another.
    codec: OnceLock<Codec>,
    decoded_max: usize,
    decoded: Mutex<Places>,
    /// The types that were decoded, and whether they declare only a part of the objects.
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
    pub(crate) fn new(policy: CachePolicy, decoded_max: usize) -> Arc<Self> {
        Arc::new(Self {
            policy,
            codec: OnceLock::new(),
            decoded_max,
            decoded: Mutex::default(),
            shapes: RwLock::default(),
        })
    }

    /// What packs and unpacks; none before it was trained.
    pub(crate) fn codec(&self) -> Option<&Codec> {
        self.codec.get()
    }

    /// The first one counts.
    pub(crate) fn set_codec(&self, codec: Codec) {
        let _ = self.codec.set(codec);
    }

    /// Decodes an object as `K`, in the way that is best for it; gives how many bytes it takes.
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

    /// Keeps an object's value for its next reader.
    pub(crate) fn keep(&self, inner: &Arc<Inner>, value: AnyValue, n_bytes: usize) {
        if self.decoded_max == 0 {
            return;
        }
        let gone = self.decoded.lock().enter(inner, value, n_bytes, self.decoded_max);
        // What goes is freed without the lock.
        drop(gone);
    }

    /// The object has left the cache, or goes itself, and its values go.
    pub(crate) fn left(&self, inner: &Inner) {
        if !inner.decoded().is_empty() {
            let gone = self.decoded.lock().leave(inner);
            drop(gone);
        }
    }

    /// How many bytes the kept values take.
    pub(crate) fn decoded_bytes(&self) -> usize {
        self.decoded.lock().n_bytes()
    }
}
