//! Views of an election.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use tokio::{sync::watch, time::Instant};

use super::{ElectionOptions, RenewalOverdue};
use crate::{
    fence::{Deadline, Fence},
    metrics::family::{counter, gauge},
};

/// The state of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LeaderState {
    /// Another process holds the lease, or none does, or the elector does not run yet.
    #[default]
    Candidate,
    /// This process acquired the lease and has not noticed a loss. The fence decides whether it may
    /// write *now*.
    Leading,
    /// The elector has ended: it was stopped, or lost the lease. Always the last state, even if it
    /// never led (LE-13).
    Ended,
}

/// A view of an election: for health checks, metrics and tests. Cheap to clone; outlives the
/// elector.
#[derive(Clone)]
pub struct Leadership(Arc<Shared>);

pub(super) struct Shared {
    // Inputs.
    pub(super) lease_name: Arc<str>,
    pub(super) identity: Arc<str>,
    options: ElectionOptions,

    // State.
    pub(super) deadline: Arc<Deadline>,
    pub(super) state: watch::Sender<LeaderState>,
    pub(super) holder: watch::Sender<Arc<str>>,
    /// When the last successful renewal was sent.
    pub(super) renewed: Mutex<Option<Instant>>,
    pub(super) n_slow_paths: AtomicU64,
}

/// Sets the state to ended when dropped, however the election ends.
pub(super) struct Ended(pub(super) Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.deadline.close();
        self.0.state.send_replace(LeaderState::Ended);
    }
}

impl Shared {
    pub(super) fn new(lease_name: Arc<str>, options: ElectionOptions) -> Self {
        Self {
            lease_name,
            identity: options.identity.as_deref().unwrap_or_default().into(),
            deadline: Arc::new(Deadline::new(options.suspend_clock.clone())),
            options,
            state: watch::Sender::default(),
            holder: watch::Sender::new("".into()),
            renewed: Mutex::new(None),
            n_slow_paths: AtomicU64::new(0),
        }
    }
}

impl Leadership {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Whether this process leads now: it acquired the lease, and its deadline has not passed. The
    /// result may be outdated at once. Send guarded writes through a [fenced](Self::fence) client.
    pub fn is_leader(&self) -> bool {
        *self.0.state.borrow() == LeaderState::Leading && self.0.deadline.check().is_ok()
    }

    /// The current state.
    pub fn state(&self) -> LeaderState {
        *self.0.state.borrow()
    }

    /// The state, as a channel to watch for changes.
    pub fn watch(&self) -> watch::Receiver<LeaderState> {
        self.0.state.subscribe()
    }

    /// Waits until this process leads (true) or the election has ended (false). Cancel safe.
    pub async fn elected(&self) -> bool {
        let mut state = self.watch();
        let ended = state.wait_for(|state| *state != LeaderState::Candidate).await;
        ended.is_ok_and(|state| *state == LeaderState::Leading)
    }

    /// A fence that lets writes pass while this process holds the lease; for
    /// [`Client::fenced`](crate::Client::fenced).
    pub fn fence(&self) -> Arc<dyn Fence> {
        self.0.deadline.clone()
    }

    /// The last observed holder of the lease; `None` if it has none, and before the first read.
    pub fn leader_id(&self) -> Option<Arc<str>> {
        Some(self.0.holder.borrow().clone()).filter(|holder| !holder.is_empty())
    }

    /// This candidate's identity.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// The lease's name: the label `name` of its metrics (LE-17).
    pub fn name(&self) -> &str {
        &self.0.options.name
    }

    /// How many renewals needed a read first: `leader_election_slowpath_total` (LE-12).
    pub fn slow_paths(&self) -> u64 {
        self.0.n_slow_paths.load(Ordering::Relaxed)
    }

    /// A check for liveness probes (LE-16). Fails if this process considers itself leader and has
    /// not renewed for the lease's duration plus `tolerance`. It is stuck then, and should be
    /// restarted.
    ///
    /// # Errors
    ///
    /// As described.
    pub fn check_renewal(&self, tolerance: Duration) -> Result<(), RenewalOverdue> {
        if self.state() != LeaderState::Leading {
            return Ok(());
        }
        let since = self.0.renewed.lock().map_or(Duration::ZERO, |renewed| renewed.elapsed());
        if since > self.0.options.timings.lease.saturating_add(tolerance) {
            return Err(RenewalOverdue { since });
        }
        Ok(())
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("lease", &self.0.lease_name)
            .field("identity", &self.0.identity)
            .field("state", &self.state())
            .field("leader_id", &self.leader_id())
            .finish_non_exhaustive()
    }
}

/// Writes `leader_election_master_status` and `leader_election_slowpath_total` (LE-12, LE-17).
#[derive(Debug)]
pub(crate) struct ElectionCollector(pub(crate) Leadership);

impl Collector for ElectionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let labels = [("name", self.0.name())];
        let help = "Whether this process leads: 1, or 0";
        let leads = u64::from(self.0.is_leader());
        gauge(encoder, "leader_election_master_status", help)?.value(&labels, &leads)?;
        let help = "Renewals that had to read first";
        counter(encoder, "leader_election_slowpath", help)?.count(&labels, self.0.slow_paths())
    }
}
