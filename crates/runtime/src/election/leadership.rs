//! What others see of an election.

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

/// How far an election has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LeaderState {
    /// Somebody else holds the lease, or nobody yet, or the elector does not run yet.
    #[default]
    Candidate,
    /// This process took the lease, and has not noticed that it lost it. Whether it may write *now*
    /// says the fence.
    Leading,
    /// The elector has ended: it was stopped, or lost the lease. Always the last state, also of one
    /// that never led (LE-13).
    Ended,
}

/// A view of an election: for gates, probes, metrics and tests. Cheap to clone; outlives the
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
    /// When the last renewal that succeeded was sent.
    pub(super) renewed: Mutex<Option<Instant>>,
    pub(super) n_slow_paths: AtomicU64,
}

/// Says that an election has ended, however it ends.
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

    /// Whether this process leads now: it took the lease, and its deadline has not passed. True
    /// means no more than that it was so when asked; what must not happen without the lease goes
    /// through a [fenced](Self::fence) client.
    pub fn is_leader(&self) -> bool {
        *self.0.state.borrow() == LeaderState::Leading && self.0.deadline.check().is_ok()
    }

    /// How far the election has come.
    pub fn state(&self) -> LeaderState {
        *self.0.state.borrow()
    }

    /// How far the election has come, to be told of changes.
    pub fn watch(&self) -> watch::Receiver<LeaderState> {
        self.0.state.subscribe()
    }

    /// Waits until this process leads (true) or the election has ended (false). Cancel safe.
    pub async fn elected(&self) -> bool {
        let mut state = self.watch();
        let ended = state.wait_for(|state| *state != LeaderState::Candidate).await;
        ended.is_ok_and(|state| *state == LeaderState::Leading)
    }

    /// Lets writes pass while this process holds the lease; for
    /// [`Client::fenced`](crate::Client::fenced).
    pub fn fence(&self) -> Arc<dyn Fence> {
        self.0.deadline.clone()
    }

    /// Who holds the lease, as this process last saw it; `None` for nobody, or before the first
    /// read.
    pub fn leader_id(&self) -> Option<Arc<str>> {
        Some(self.0.holder.borrow().clone()).filter(|holder| !holder.is_empty())
    }

    /// This candidate's identity.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// The lease's name: the label `name` of the metrics (LE-17).
    pub fn name(&self) -> &str {
        &self.0.options.name
    }

    /// How many renewals could not be done without reading first: `leader_election_slowpath_total`
    /// (LE-12).
    pub fn slow_paths(&self) -> u64 {
        self.0.n_slow_paths.load(Ordering::Relaxed)
    }

    /// For a liveness probe (LE-16): fails when this process still holds itself for the leader
    /// although it has not renewed for the lease's duration and `tolerance` more. Then it is stuck,
    /// and should be started anew.
    ///
    /// # Errors
    ///
    /// As told.
    pub fn check_renewal(&self, tolerance: Duration) -> Result<(), RenewalOverdue> {
        if self.state() != LeaderState::Leading {
            return Ok(());
        }
        let since = self.0.renewed.lock().map_or(Duration::ZERO, |renewed| renewed.elapsed());
        if since > self.0.options.timings.lease + tolerance {
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
