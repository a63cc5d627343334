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

use crate::object::Inner;
use crate::policy::CachePolicy;
use decoded::Ring;
use parking_lot::Mutex;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// How many objects a cache keeps decoded beside their encoded form, unless it is told
/// otherwise: 256. A controller's workers read an object several times within one reconcile, and
/// the objects of a burst again soon; a decoded Pod takes 25 KiB.
pub const DECODED_OBJECTS: usize = 256;

/// Shared by an informer's intake and its objects.
pub(crate) struct Pool<K> {
    pub(crate) policy: CachePolicy,
    /// There is one once a dictionary was trained; never another.
    codec: OnceLock<Codec>,
    decoded_max: usize,
    decoded: Mutex<Ring<K>>,
}

impl<K> fmt::Debug for Pool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("policy", &self.policy)
            .field("decoded_max", &self.decoded_max)
            .finish_non_exhaustive()
    }
}

impl<K> Pool<K> {
    pub(crate) fn new(policy: CachePolicy, decoded_max: usize) -> Arc<Self> {
        Arc::new(Self {
            policy,
            codec: OnceLock::new(),
            decoded_max,
            decoded: Mutex::new(Ring::default()),
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

    /// Keeps an object's value for its next reader.
    pub(crate) fn keep(&self, inner: &Arc<Inner<K>>, value: &Arc<K>) {
        if self.decoded_max == 0 || !inner.decoded().fill(value) {
            return;
        }
        let gone = self.decoded.lock().enter(inner, self.decoded_max);
        // What goes is freed without the lock.
        drop(gone);
    }
}
