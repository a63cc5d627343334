//! What every engine asks of a transaction before it looks at it, and the numbers that engines
//! share.

use crate::contract::*;
use bytes::Bytes;
use std::{collections::HashSet, time::Duration};
use tokio::time::Instant;

/// Up to so many operations, looking through them beats a set.
const LOOKED_THROUGH: usize = 16;

/// The longest time to live; a longer one is cut to it. A hundred years: beyond it, moments no
/// longer add up on every platform.
const TTL_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How old history may become by default: see the engines' options.
pub(crate) const HISTORY_AGE_MAX: Duration = Duration::from_secs(600);

/// Refuses a transaction that is too large or that writes one key twice.
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

/// The moment at which something of this time to live is over.
pub(crate) fn death(now: Instant, ttl: Duration) -> Instant {
    now + ttl.min(TTL_MAX)
}
