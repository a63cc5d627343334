//! Options of a sharded controller.

use std::{fmt, sync::Arc};

use super::state::{ShardView, State};
use crate::{
    election::{OptionsError, Timings, in_cluster_namespace},
    fence::SuspendClock,
};

/// How many replicas can share a controller. An additional one waits until another leaves.
///
/// 64: a promise then takes at most 9 kB on a Lease, and each renewal of a Lease is sent to every
/// member.
pub const MEMBERS_MAX: usize = 64;

/// The longest identity, in bytes.
pub(super) const IDENTITY_BYTES_MAX: usize = 128;

/// The longest name of a group, in bytes: a label's value, and with 17 more the name of a Lease.
const GROUP_BYTES_MAX: usize = 46;

/// The group of a replica, and its identity.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShardOptions {
    /// The group: all replicas of one controller. A DNS label of at most 46 bytes.
    pub group: String,
    /// The identity of this replica; unique, at most 128 bytes. See
    /// [`machine_identity`](crate::election::machine_identity).
    ///
    /// It determines which keys the replica wins. With a stable identity, a restarted replica keeps
    /// its keys. But it waits for its previous Lease to expire, unless it left cleanly.
    pub identity: String,
    /// The Leases' namespace. Default: the pod's.
    pub namespace: Option<String>,
    /// The durations of each member's Lease. Default: 15 s, 10 s, 2 s.
    pub timings: Timings,
    /// A clock that also counts suspended time. Default: none.
    pub suspend_clock: Option<SuspendClock>,
}

impl ShardOptions {
    /// The defaults, for this group and identity.
    pub fn new(group: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            identity: identity.into(),
            namespace: None,
            timings: Timings::default(),
            suspend_clock: None,
        }
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

    /// Sets [`suspend_clock`](Self::suspend_clock).
    #[must_use]
    pub fn suspend_clock(self, clock: SuspendClock) -> Self {
        Self { suspend_clock: Some(clock), ..self }
    }
}

/// A replica's membership in a group; for
/// [`ControllerBuilder::sharded`](crate::ControllerBuilder::sharded).
pub struct Sharded {
    pub(super) options: ShardOptions,
    pub(super) namespace: String,
    pub(super) state: Arc<State>,
}

impl Sharded {
    /// A membership. Sends no request before the controller runs.
    ///
    /// # Errors
    ///
    /// The group or the identity is invalid in a Lease, the durations violate LE-1, or no namespace
    /// is given and this process runs in no pod.
    pub fn new(options: ShardOptions) -> Result<Self, OptionsError> {
        options.timings.validate()?;
        let is_label = |text: &str| {
            let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
            text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
        };
        if !(1..=GROUP_BYTES_MAX).contains(&options.group.len()) || !is_label(&options.group) {
            return Err(OptionsError::Group { group: options.group });
        }
        if options.identity.is_empty() || options.identity.len() > IDENTITY_BYTES_MAX {
            return Err(OptionsError::NoIdentity);
        }
        let namespace = match &options.namespace {
            Some(namespace) if !namespace.is_empty() => namespace.clone(),
            _ => in_cluster_namespace()?,
        };
        let state = Arc::new(State::new(options.suspend_clock.clone()));
        Ok(Self { options, namespace, state })
    }

    /// A view of the membership; outlives the controller.
    pub fn view(&self) -> ShardView {
        ShardView { state: self.state.clone() }
    }
}

impl fmt::Debug for Sharded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded").field("options", &self.options).finish_non_exhaustive()
    }
}
