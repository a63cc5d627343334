//! Options of an election.

use std::{collections::BTreeMap, io, path::Path, time::Duration};

use setpoint_small_file::SmallFileError;

use super::OptionsError;
use crate::fence::SuspendClock;

/// How long candidates wait for a silent holder: 15 s (LE-1), as controller-runtime.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long a holder keeps leading without a successful renewal: 10 s (LE-1), as
/// controller-runtime.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often a holder renews, and the unit of a candidate's delays: 2 s (LE-1), as
/// controller-runtime.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Maximum bytes of the file with the namespace of a pod: 4 KiB. A name has at most 63.
const NAMESPACE_BYTES_MAX: usize = 4 << 10;

/// The shortest time-out of a request for a Lease: LE-5.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The durations of an election: LE-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// How long candidates wait for a silent holder. In whole seconds, as a Lease requires.
    pub lease: Duration,
    /// How long a holder keeps leading without a successful renewal.
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
    /// Checks the durations: LE-1.
    ///
    /// # Errors
    ///
    /// `lease > renew > 1.2 × retry > 0` does not hold, or the lease is not in whole seconds.
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

    /// The time-out of one request: LE-5.
    pub(crate) fn request_timeout(&self) -> Duration {
        REQUEST_TIMEOUT_MIN.max(self.renew / 2)
    }

    /// The lease duration as a Lease stores it.
    pub(crate) fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX)
    }
}

/// Options of an election: the Lease, the identity, the durations.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElectionOptions {
    /// The Lease's name.
    pub name: String,
    /// The Lease's namespace. Default: the pod's ([`in_cluster_namespace`]).
    pub namespace: Option<String>,
    /// The identity of this process; must be unique. Default: [`machine_identity`].
    pub identity: Option<String>,
    /// The durations. Default: 15 s, 10 s, 2 s.
    pub timings: Timings,
    /// Whether to release the lease when the election is stopped, so that the next leader need not
    /// wait. Default: no.
    ///
    /// Safe only if everything that the lease guards has ended by then: a
    /// [`Manager`](crate::Manager) stops its election last.
    pub release_on_stop: bool,
    /// Labels to set on the Lease while this candidate holds it. Default: none.
    pub labels: BTreeMap<String, String>,
    /// The kind of the lock object. Only `leases`, the default, is supported.
    pub lock: String,
    /// A clock that also counts suspended time. Default: none.
    pub suspend_clock: Option<SuspendClock>,
    /// The seed of a candidate's delays. Default: the manager's seed; without one, the operating
    /// system's entropy.
    pub seed: Option<u64>,
}

impl ElectionOptions {
    /// The defaults, for a Lease with this name.
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

    /// Sets the kind of lock by name, as in other programs' settings. Only `leases` is valid; the
    /// error for others says what to do (LE-2).
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

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The first of the rules LE-1 to LE-4 that is violated, except the namespace, which is
    /// resolved when the elector is made.
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

    /// Validated, with an identity, and the given namespace or the pod's: LE-3, LE-4.
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

/// The defaults, for a Lease with this name.
impl From<&str> for ElectionOptions {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The defaults, for a Lease with this name.
impl From<String> for ElectionOptions {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

/// The file with the namespace of a pod's service account.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// `<host name>_<uuid>`, with a uuid from the operating system's randomness: LE-4. Different at
/// each call.
///
/// An identity must be unique, also among restarts of this process, so it cannot come from a seed.
/// Call it once, in `main`, like [`Clock::wall`](crate::Clock::wall).
///
/// # Errors
///
/// The operating system provides no randomness.
pub fn machine_identity() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let uuid = crate::pass::ReconcileId(u128::from_be_bytes(bytes));
    Ok(format!("{}_{uuid}", machine_name()))
}

/// The machine's host name; `localhost` if it has none.
pub fn machine_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// The namespace of the pod that this process runs in, from its service account's file: LE-3.
///
/// # Errors
///
/// There is no such file, or it is empty.
pub fn in_cluster_namespace() -> Result<String, OptionsError> {
    namespace_of(Path::new(NAMESPACE_FILE))
}

pub(super) fn namespace_of(file: &Path) -> Result<String, OptionsError> {
    let no_namespace =
        |source| OptionsError::NoNamespace { path: file.display().to_string(), source };
    let text = setpoint_small_file::read_text(file, NAMESPACE_BYTES_MAX);
    let text = text.map_err(|error| match error {
        SmallFileError::Read { source, .. } => no_namespace(source),
        error => no_namespace(io::Error::new(io::ErrorKind::FileTooLarge, error)),
    })?;
    match text.trim() {
        "" => Err(no_namespace(io::Error::new(io::ErrorKind::InvalidData, "it is empty"))),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests;
