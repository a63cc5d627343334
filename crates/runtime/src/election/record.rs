//! The observed record of a Lease.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use setpoint_object::time::Clock;
use tokio::time::Instant;

/// How many unanswered writes are remembered. One is sent at a time, and awaited. Older ones count
/// as another process's, which is only slower.
const ATTEMPTS_MAX: usize = 16;

/// The Lease as it was last seen.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) lease: Lease,
    /// When its record was last seen to change, on this process's clock: LE-10.
    pub(super) changed: Instant,
}

impl Observed {
    pub(super) fn spec(&self) -> LeaseSpec {
        self.lease.spec.clone().unwrap_or_default()
    }

    pub(super) fn holder(&self) -> &str {
        holder(&self.lease)
    }

    /// Whether `lease` is newer than this one: a stale server or a late watch event may return an
    /// older version.
    pub(super) fn is_older_than(&self, lease: &Lease) -> bool {
        let version = |lease: &Lease| lease.metadata.resource_version.clone().unwrap_or_default();
        let (before, after) = (version(&self.lease), version(lease));
        if !self.is_same_object(lease) {
            return true;
        }
        match (before.parse::<u64>(), after.parse::<u64>()) {
            (Ok(before), Ok(after)) => before < after,
            _ => before != after,
        }
    }

    pub(super) fn is_same_object(&self, lease: &Lease) -> bool {
        self.lease.metadata.uid == lease.metadata.uid
    }

    /// From when on it may be taken if it does not change: LE-10, LE-11.
    pub(super) fn expires(&self) -> Instant {
        if self.holder().is_empty() {
            return self.changed;
        }
        let seconds = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        // A record without a duration expires at once: its writer does not rely on it.
        self.changed + Duration::from_secs(seconds.and_then(|s| s.try_into().ok()).unwrap_or(0))
    }
}

/// The holder of a Lease; empty if none.
pub(crate) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Writes without an answer: any of them may have been done.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Vec<LeaseSpec>);

impl Attempts {
    pub(crate) fn add(&mut self, spec: LeaseSpec) {
        if self.0.len() == ATTEMPTS_MAX {
            self.0.remove(0);
        }
        self.0.push(spec);
    }

    /// A later version was seen, so none of them can be done any more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn contains(&self, spec: &LeaseSpec) -> bool {
        self.0.contains(spec)
    }
}

/// The current time in the format of a Lease.
pub(crate) fn micro_time(clock: &Clock) -> MicroTime {
    let micros = i64::try_from(clock.now().0.as_micros()).unwrap_or(i64::MAX);
    MicroTime(Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX))
}
