//! Checks of a transaction that every engine makes first, and constants that engines share.

use crate::contract::*;
use bytes::Bytes;
use std::{collections::HashSet, time::Duration};
use tokio::time::Instant;

/// Up to this many operations, a linear search for duplicates is faster than a set.
const LOOKED_THROUGH: usize = 16;

/// The longest time to live; a longer one is cut to it. A hundred years: adding more to an
/// `Instant` overflows on some platforms.
const TTL_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The default maximum age of history: see the engines' options.
pub(crate) const HISTORY_AGE_MAX: Duration = Duration::from_secs(600);

/// Returns an error if a transaction is too large or writes one key twice.
///
/// # Errors
///
/// [`StoreError::TooLarge`], [`StoreError::DuplicateKey`].
pub fn check(txn: &Txn) -> Result<(), StoreError> {
    let size = txn.ops.iter().map(|op| op.key().len() + op.value().map_or(0, Bytes::len)).sum();
    if size > VALUE_BYTES_MAX {
        return Err(StoreError::TooLarge { size, max: VALUE_BYTES_MAX });
    }
    let keys = || txn.ops.iter().map(Op::key);
    let twice = if txn.ops.len() <= LOOKED_THROUGH {
        keys().enumerate().find(|(i, key)| keys().take(*i).any(|earlier| earlier == *key))
    } else {
        let mut seen = HashSet::with_capacity(txn.ops.len());
        keys().enumerate().find(|(_, key)| !seen.insert(*key))
    };
    match twice {
        Some((_, key)) => Err(StoreError::DuplicateKey { key: key.clone() }),
        None => Ok(()),
    }
}

/// When a value written `now` with this time to live expires.
pub(crate) fn expiry(now: Instant, ttl: Duration) -> Instant {
    now + ttl.min(TTL_MAX)
}
