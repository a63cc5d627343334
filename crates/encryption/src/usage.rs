//! How often a key has written.

use crate::cipher::Kind;
use crate::provider::{Key, KeyId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// How many values one key of AES-GCM may encrypt with random nonces: 2^32, after NIST SP 800-38D
/// §8.3.
///
/// With more of them the chance that two have the same nonce is above 2^-32, and such a pair gives
/// away both values and lets others forge. Kubernetes' documentation, more careful, asks for a new
/// key every 200,000 writes.
pub const GCM_WRITES_MAX: u64 = 1 << 32;

/// From here on the log says that a key is near its end: half of what it may do.
pub const GCM_WRITES_WARNED: u64 = GCM_WRITES_MAX / 2;

/// Counts writes by key, since the start of this program: what other servers wrote with a key, or
/// this one before, it does not know.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    writes: Mutex<BTreeMap<KeyId, u64>>,
}

impl Usage {
    /// Counts a write; warns at [`GCM_WRITES_WARNED`] and, once more, at [`GCM_WRITES_MAX`].
    pub(crate) fn count(&self, key: &Key) -> u64 {
        let n = {
            let mut writes = self.writes.lock();
            let n = writes.entry(key.id).or_default();
            *n += 1;
            *n
        };
        if key.kind == Kind::AesGcm {
            match n {
                GCM_WRITES_WARNED => tracing::warn!(
                    key = key.name,
                    writes = n,
                    "this key of aesgcm has half of its writes behind it: rotate it"
                ),
                GCM_WRITES_MAX => tracing::error!(
                    key = key.name,
                    writes = n,
                    "this key of aesgcm has written as often as is safe: rotate it now"
                ),
                _ => {}
            }
        }
        n
    }

    /// How often a key has written.
    pub(crate) fn of(&self, key: &Key) -> u64 {
        self.writes.lock().get(&key.id).copied().unwrap_or(0)
    }
}
