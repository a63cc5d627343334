//! Leases, each shared by many keys that expire at about the same time, as in kube-apiserver
//! (`k8s.io/apiserver/pkg/storage/etcd3/lease_manager.go`). A lease for each Event would cost etcd
//! more than the Event.

use crate::{
    cluster::{Cluster, Failure, Repeat},
    proto::{LeaseGrantAnswer, LeaseGrantCall, path},
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// Maximum number of keys per lease: kube-apiserver's `--lease-max-object-count`.
pub const LEASE_KEYS_MAX: u32 = 1000;
/// Maximum time that a key lives beyond its time to live because of sharing: kube-apiserver's
/// `--lease-reuse-duration-seconds`.
pub const LEASE_REUSE_MAX: Duration = Duration::from_secs(60);
/// Extra lifetime as a fraction of the time to live: 5 %, as in kube-apiserver.
const REUSE_DIVISOR: u64 = 20;
/// Maximum number of different times to live that are remembered.
const KINDS_MAX: usize = 64;

/// A lease that can still be shared.
#[derive(Debug, Clone, Copy)]
struct Lease {
    id: i64,
    expires: Instant,
    keys: u32,
}

/// The newest lease for each time to live in seconds.
pub(crate) struct Leases {
    last: Mutex<BTreeMap<u64, Lease>>,
}

impl Leases {
    pub(crate) fn new() -> Self {
        Self { last: Mutex::new(BTreeMap::new()) }
    }

    /// A lease that lives at least `ttl` from now, with room for `keys` more keys.
    pub(crate) async fn lease(
        &self,
        cluster: &Cluster,
        ttl: Duration,
        keys: u32,
    ) -> Result<i64, Failure> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = seconds.clamp(1, u64::from(u32::MAX));
        if let Some(id) = self.share(seconds, keys, Instant::now()) {
            return Ok(id);
        }
        let granted_from = Instant::now();
        let asked = seconds + reuse(seconds);
        let question = LeaseGrantCall { ttl: i64::try_from(asked).unwrap_or(i64::MAX) };
        // May be repeated: a duplicate lease expires unused.
        let answer: LeaseGrantAnswer =
            cluster.call(path::LEASE_GRANT, &question, Repeat::Freely).await?;
        if answer.id == 0 || !answer.error.is_empty() {
            return Err(Failure::Unavailable(format!("no lease was granted: {}", answer.error)));
        }
        let granted = u64::try_from(answer.ttl).unwrap_or_default().max(1);
        let lease =
            Lease { id: answer.id, expires: granted_from + Duration::from_secs(granted), keys };
        let mut last = self.last.lock();
        if last.len() >= KINDS_MAX && !last.contains_key(&seconds) {
            last.pop_first();
        }
        last.insert(seconds, lease);
        Ok(answer.id)
    }

    fn share(&self, seconds: u64, keys: u32, now: Instant) -> Option<i64> {
        let mut last = self.last.lock();
        let lease = last.get_mut(&seconds)?;
        let ttl = Duration::from_secs(seconds);
        let lives_long_enough = lease.expires >= now + ttl;
        let not_too_long = lease.expires <= now + ttl + Duration::from_secs(reuse(seconds).max(1));
        let room = lease.keys.saturating_add(keys) <= LEASE_KEYS_MAX;
        if !(lives_long_enough && not_too_long && room) {
            return None;
        }
        lease.keys += keys;
        Some(lease.id)
    }

    /// Forgets a lease that etcd does not have (any more).
    pub(crate) fn forget(&self, id: i64) {
        self.last.lock().retain(|_, lease| lease.id != id);
    }
}

/// Seconds that a lease lives longer than requested, so that later keys can share it.
fn reuse(seconds: u64) -> u64 {
    (seconds / REUSE_DIVISOR).min(LEASE_REUSE_MAX.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(seconds: u64, expires: Instant, keys: u32) -> Leases {
        let last = BTreeMap::from([(seconds, Lease { id: 7, expires, keys })]);
        Leases { last: Mutex::new(last) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_shared_while_it_lives_long_enough_and_has_room() {
        let now = Instant::now();
        let hour = 3600;
        assert_eq!(reuse(hour), 60);
        let fresh = now + Duration::from_secs(hour + 60);
        assert_eq!(leases(hour, fresh, 1).share(hour, 1, now), Some(7));
        assert_eq!(leases(hour, fresh, 999).share(hour, 1, now), Some(7), "the thousandth key");
        assert_eq!(leases(hour, fresh, 1000).share(hour, 1, now), None, "it is full");
        assert_eq!(leases(hour, fresh, 1).share(60, 1, now), None, "another time to live");
        let late = now + Duration::from_secs(61);
        assert_eq!(leases(hour, fresh, 1).share(hour, 1, late), None, "it would expire too early");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_lease_is_not_shared_again() {
        let now = Instant::now();
        let leases = leases(100, now + Duration::from_secs(105), 1);
        assert_eq!(leases.share(100, 1, now), Some(7));
        leases.forget(7);
        assert_eq!(leases.share(100, 1, now), None);
    }
}
