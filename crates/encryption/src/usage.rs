//! Counts of writes per key.

use crate::cipher::Kind;
use crate::provider::{Key, KeyId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Maximum number of values that one AES-GCM key may encrypt with random nonces: 2^32, by NIST SP
/// 800-38D §8.3.
///
/// Beyond it the chance of a repeated nonce exceeds 2^-32. A repeated nonce exposes both values and
/// allows forgeries. Kubernetes' documentation is more careful and recommends a new key every
/// 200,000 writes.
pub const GCM_WRITES_MAX: u64 = 1 << 32;

/// From here on a warning is logged: half of the maximum.
pub const GCM_WRITES_WARNED: u64 = GCM_WRITES_MAX / 2;

/// Counts writes per key since the start of this process. Does not include writes by other servers
/// or earlier processes.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    writes: Mutex<BTreeMap<KeyId, u64>>,
}

impl Usage {
    /// Counts a write. Warns at [`GCM_WRITES_WARNED`], and again at [`GCM_WRITES_MAX`].
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

    /// Number of writes of a key.
    pub(crate) fn of(&self, key: &Key) -> u64 {
        self.writes.lock().get(&key.id).copied().unwrap_or(0)
    }
}
