//! The other Leases of a group: their claims, and which have expired.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

use super::ownership::Claim;
use crate::election::holder;

/// The other Leases, by name.
#[derive(Debug, Default)]
pub(super) struct Roster(BTreeMap<String, Other>);

#[derive(Debug)]
struct Other {
    uid: Option<String>,
    resource_version: Option<String>,
    holder: Arc<str>,
    claim: Claim,
    duration: Duration,
    /// When it was last seen to change, on this process's clock: LE-10.
    changed: Instant,
    /// No removal is tried before.
    patience: Instant,
}

/// A Lease to delete, if it is still at this version.
#[derive(Debug, Clone)]
pub(super) struct Expired {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
}

impl Roster {
    /// Updates from the watch.
    pub(super) fn update<'a>(&mut self, leases: impl Iterator<Item = &'a Lease>) {
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.0);
        for lease in leases {
            let Some(name) = lease.metadata.name.clone() else { continue };
            let (uid, resource_version) =
                (lease.metadata.uid.clone(), lease.metadata.resource_version.clone());
            let other = match before.remove(&name) {
                Some(other) if other.uid == uid && other.resource_version == resource_version => {
                    other
                }
                _ => Other {
                    uid,
                    resource_version,
                    holder: holder(lease).into(),
                    claim: Claim::of(lease),
                    duration: duration(lease),
                    changed: now,
                    patience: now,
                },
            };
            self.0.insert(name, other);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = Arc<str>> {
        self.0.values().map(|other| other.holder.clone())
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        self.0.values().map(|other| other.claim.clone()).collect()
    }

    /// When the next Lease expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.0.values().map(Other::due).min()
    }

    /// A Lease that has expired; it is not returned again for `pause`.
    pub(super) fn take_expired(&mut self, pause: Duration) -> Option<Expired> {
        let now = Instant::now();
        let (name, other) = self.0.iter_mut().find(|(_, other)| other.due() <= now)?;
        other.patience = now + pause;
        Some(Expired {
            name: name.clone(),
            uid: other.uid.clone(),
            resource_version: other.resource_version.clone(),
        })
    }
}

impl Other {
    fn due(&self) -> Instant {
        (self.changed + self.duration).max(self.patience)
    }
}

/// The duration of a Lease. One without a duration has the longest possible.
fn duration(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    Duration::from_secs(seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(u64::from(u16::MAX)))
}
