//! What may be chosen about an election.

use std::{collections::BTreeMap, time::Duration};

use super::{
    OptionsError,
    identity::{in_cluster_namespace, machine_identity},
};
use crate::fence::SuspendClock;

/// How long others wait for a holder that says nothing: 15 s (LE-1), as controller-runtime.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long a holder holds on without a renewal that succeeded: 10 s (LE-1), as controller-runtime.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often a holder renews, and the unit of a candidate's waits: 2 s (LE-1), as
/// controller-runtime.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The shortest time that a request for a Lease is waited for: LE-5.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The three spans of a lease: LE-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// How long others wait for a holder that says nothing. Whole seconds: a Lease has no others.
    pub lease: Duration,
    /// How long a holder holds on without a renewal that succeeded.
    pub renew: Duration,
    /// How often a holder renews.
    pub retry: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self { lease: LEASE_DURATION, renew: RENEW_DEADLINE, retry: RETRY_PERIOD }
    }
}

impl Timings {
    /// Whether a lease can be held by these: LE-1.
    ///
    /// # Errors
    ///
    /// `lease > renew > 1.2 × retry > 0` does not hold, or the lease is no whole number of seconds.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let Self { lease, renew, retry } = *self;
        // 1.2 × retry, in whole nanoseconds.
        let is_ordered = !retry.is_zero()
            && lease > renew
            && renew.as_nanos().saturating_mul(5) > retry.as_nanos().saturating_mul(6);
        if !is_ordered {
            return Err(OptionsError::Timings { lease, renew, retry });
        }
        if lease.subsec_nanos() != 0 || i32::try_from(lease.as_secs()).is_err() {
            return Err(OptionsError::LeaseSeconds { lease });
        }
        Ok(())
    }

    /// How long one request may take: LE-5.
    pub(crate) fn request_timeout(&self) -> Duration {
        REQUEST_TIMEOUT_MIN.max(self.renew / 2)
    }

    /// The lease as a Lease holds it.
    pub(crate) fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX)
    }
}

/// Which Lease is asked for, by whom, and how long each waits for the other.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElectionOptions {
    /// The Lease's name.
    pub name: String,
    /// The Lease's namespace. Default: the pod's ([`in_cluster_namespace`]).
    pub namespace: Option<String>,
    /// Who asks: this process's alone. Default: [`machine_identity`].
    pub identity: Option<String>,
    /// The spans. Default: 15 s, 10 s, 2 s.
    pub timings: Timings,
    /// Whether the lease is given up when the election is stopped, so that the next one need not
    /// wait. Default: no.
    ///
    /// Only right where everything guarded by it has ended by then: a [`Manager`](crate::Manager)
    /// stops its election last.
    pub release_on_stop: bool,
    /// Labels that the Lease carries while this candidate holds it. Default: none.
    pub labels: BTreeMap<String, String>,
    /// What kind of object is the lock. Default, and all there is: `leases`.
    pub lock: String,
    /// A clock that goes on while the machine is suspended. Default: none.
    pub suspend_clock: Option<SuspendClock>,
    /// The seed of a candidate's waits. Default: the manager's, and without one the operating
    /// system's entropy.
    pub seed: Option<u64>,
}

impl ElectionOptions {
    /// The defaults, for the Lease of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: None,
            identity: None,
            timings: Timings::default(),
            release_on_stop: false,
            labels: BTreeMap::new(),
            lock: "leases".to_owned(),
            suspend_clock: None,
            seed: None,
        }
    }

    /// Sets [`identity`](Self::identity).
    #[must_use]
    pub fn identity(self, identity: impl Into<String>) -> Self {
        Self { identity: Some(identity.into()), ..self }
    }

    /// Sets [`namespace`](Self::namespace).
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Sets [`timings`](Self::timings).
    #[must_use]
    pub fn timings(self, timings: Timings) -> Self {
        Self { timings, ..self }
    }

    /// Sets [`release_on_stop`](Self::release_on_stop).
    #[must_use]
    pub fn release_on_stop(self, release_on_stop: bool) -> Self {
        Self { release_on_stop, ..self }
    }

    /// Adds to [`labels`](Self::labels).
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The kind of lock by name, as other programs' settings have it. Only `leases` is accepted,
    /// others are refused with what to do (LE-2).
    #[must_use]
    pub fn lock(self, lock: impl Into<String>) -> Self {
        Self { lock: lock.into(), ..self }
    }

    /// Sets [`suspend_clock`](Self::suspend_clock).
    #[must_use]
    pub fn suspend_clock(self, clock: SuspendClock) -> Self {
        Self { suspend_clock: Some(clock), ..self }
    }

    /// Sets [`seed`](Self::seed).
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Whether an election can be held by these.
    ///
    /// # Errors
    ///
    /// The first rule of LE-1 to LE-4 that they break, but for the namespace, which is asked for
    /// when the elector is made.
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.lock != "leases" {
            return Err(OptionsError::Lock { lock: self.lock.clone() });
        }
        if self.name.is_empty() {
            return Err(OptionsError::NoName);
        }
        if self.identity.as_ref().is_some_and(String::is_empty) {
            return Err(OptionsError::NoIdentity);
        }
        self.timings.validate()
    }

    /// Checked, with an identity, and the namespace given or the pod's: LE-3, LE-4.
    pub(crate) fn resolved(mut self) -> Result<Self, OptionsError> {
        self.validate()?;
        if self.namespace.as_ref().is_none_or(String::is_empty) {
            self.namespace = Some(in_cluster_namespace()?);
        }
        if self.identity.is_none() {
            self.identity = Some(machine_identity().map_err(OptionsError::MachineIdentity)?);
        }
        Ok(self)
    }
}

/// The defaults, for the Lease of this name.
impl From<&str> for ElectionOptions {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The defaults, for the Lease of this name.
impl From<String> for ElectionOptions {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests;
