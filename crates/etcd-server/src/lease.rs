//! Leases: keys that are deleted together when their time is over.

use crate::grpc::Status;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of leases.
pub const LEASES_MAX: usize = 100_000;
/// The shortest time to live, in seconds, as etcd's with its default election timeout.
const TTL_MIN: i64 = 2;
/// The longest time to live, in seconds, as etcd's.
const TTL_MAX: i64 = 9_000_000_000;

/// A lease.
#[derive(Debug)]
struct Lease {
    ttl: i64,
    ends: Instant,
    keys: BTreeSet<Bytes>,
}

/// All leases.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    leases: BTreeMap<i64, Lease>,
    /// Their ids by the end of their time.
    ends: BTreeSet<(Instant, i64)>,
    next_id: i64,
}

/// What is known of a lease.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// In seconds.
    pub(crate) ttl: i64,
    pub(crate) granted: i64,
    pub(crate) keys: Vec<Bytes>,
}

fn duration(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

impl Leases {
    /// Grants a lease; returns its id and time to live. Id 0 chooses one.
    pub(crate) fn grant(&mut self, id: i64, ttl: i64, now: Instant) -> Result<(i64, i64), Status> {
        if ttl > TTL_MAX {
            return Err(Status::lease_too_long());
        }
        if self.leases.contains_key(&id) {
            return Err(Status::lease_exists());
        }
        if self.leases.len() >= LEASES_MAX {
            return Err(Status::no_space());
        }
        let id = match id {
            0 => loop {
                self.next_id = (self.next_id + 1) & i64::MAX;
                if self.next_id != 0 && !self.leases.contains_key(&self.next_id) {
                    break self.next_id;
                }
            },
            id => id,
        };
        let ttl = ttl.max(TTL_MIN);
        let lease = Lease { ttl, ends: now + duration(ttl), keys: BTreeSet::new() };
        self.ends.insert((lease.ends, id));
        self.leases.insert(id, lease);
        Ok((id, ttl))
    }

    /// Whether a key may be written with this lease; 0 is none.
    pub(crate) fn check(&self, id: i64) -> Result<(), Status> {
        match id == 0 || self.leases.contains_key(&id) {
            true => Ok(()),
            false => Err(Status::lease_not_found()),
        }
    }

    pub(crate) fn attach(&mut self, id: i64, key: &Bytes) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(key.clone());
        }
    }

    pub(crate) fn detach(&mut self, id: i64, key: &Bytes) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.remove(key);
        }
    }

    /// Restarts its time to live and returns it; 0 if there is no such lease.
    pub(crate) fn keep_alive(&mut self, id: i64, now: Instant) -> i64 {
        match self.leases.get_mut(&id) {
            Some(lease) => {
                self.ends.remove(&(lease.ends, id));
                lease.ends = now + duration(lease.ttl);
                self.ends.insert((lease.ends, id));
                lease.ttl
            }
            None => 0,
        }
    }

    /// `None`: there is no such lease.
    pub(crate) fn remaining(&self, id: i64, now: Instant) -> Option<Remaining> {
        let lease = self.leases.get(&id)?;
        let left = lease.ends.saturating_duration_since(now);
        // Rounded up, so that a new lease has its whole time.
        let ttl = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let ttl = i64::try_from(ttl).unwrap_or(i64::MAX);
        Some(Remaining { ttl, granted: lease.ttl, keys: lease.keys.iter().cloned().collect() })
    }

    /// Their ids.
    pub(crate) fn ids(&self) -> impl Iterator<Item = i64> + '_ {
        self.leases.keys().copied()
    }

    /// Removes a lease; returns its keys, which the caller deletes.
    pub(crate) fn revoke(&mut self, id: i64) -> Result<Vec<Bytes>, Status> {
        let lease = self.leases.remove(&id).ok_or_else(Status::lease_not_found)?;
        self.ends.remove(&(lease.ends, id));
        Ok(lease.keys.into_iter().collect())
    }

    /// Removes those whose time is over; returns the keys of each.
    pub(crate) fn take_ended(&mut self, now: Instant) -> Vec<Vec<Bytes>> {
        let mut ended = Vec::new();
        while let Some((_, id)) = self.ends.first().copied().filter(|(ends, _)| *ends <= now) {
            self.ends.pop_first();
            let lease = self.leases.remove(&id);
            ended.extend(lease.map(|lease| lease.keys.into_iter().collect()));
        }
        ended
    }

    /// When the next one ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(ends, _)| *ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_end_in_time_unless_they_are_kept_alive_or_revoked() {
        let mut leases = Leases::default();
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        for (id, ttl) in [(7, 10), (8, 20), (9, 30)] {
            leases.grant(id, ttl, start).unwrap();
            leases.attach(id, &Bytes::from(id.to_string()));
        }
        assert_eq!(leases.grant(7, 10, start), Err(Status::lease_exists()));
        assert_eq!(leases.next_end(), Some(after(10)));
        assert_eq!(leases.keep_alive(7, after(5)), 10);
        assert_eq!((leases.next_end(), leases.take_ended(after(14))), (Some(after(15)), vec![]));
        assert_eq!(leases.revoke(8), Ok(vec![Bytes::from("8")]));
        assert_eq!(leases.take_ended(after(30)), [[Bytes::from("7")], [Bytes::from("9")]]);
        assert_eq!((leases.next_end(), leases.ids().count()), (None, 0));
        assert_eq!(leases.keep_alive(7, after(30)), 0);
    }
}
