//! The gate of a sharded controller, and its membership.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use setpoint_informer::informer::Slices;
use setpoint_object::time::Clock;
use setpoint_workqueue::{AddOptions, WorkQueue};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Member, Sharded, hand_over::HandOvers, state::State};
use crate::{
    client::Client,
    fence::{Deadline, Fence, Fenced},
    pass::Cause,
    request::RequestKey,
    source::{Only, Sources},
};

/// How many refused keys of other replicas are remembered, in case this replica becomes their
/// owner.
///
/// 65,536: the events of a minute, at 1000 a second. For older ones, a hand-over still finds the
/// keys of cached objects.
pub const REFUSED_KEYS_MAX: usize = 1 << 16;

/// Decides at each pass whether this replica may reconcile the key, and remembers the refused keys.
pub(crate) struct Gate<R> {
    state: Arc<State>,
    /// How long refused keys are remembered. A pass that a crashed owner missed is at most this
    /// much older than its Lease.
    patience: Duration,
    keys: Mutex<VecDeque<(Instant, R)>>,
}

impl<R: RequestKey> Gate<R> {
    pub(super) fn new(state: Arc<State>, patience: Duration) -> Self {
        Self { state, patience, keys: Mutex::default() }
    }

    /// Starts a pass over `key` if permitted. Otherwise the key gets no pass here.
    pub(crate) fn enter(&self, key: &R) -> Option<GatePass> {
        let Some(number) = self.state.begin(&key.to_string()) else {
            self.note(key.clone());
            return None;
        };
        let state = self.state.clone();
        let deadline = state.deadline.clone();
        Some(GatePass { _running: Running { state, number }, deadline })
    }

    fn note(&self, key: R) {
        let now = Instant::now();
        let mut keys = self.keys.lock();
        while keys.front().is_some_and(|(at, _)| now.duration_since(*at) > self.patience)
            || keys.len() >= REFUSED_KEYS_MAX
        {
            keys.pop_front();
        }
        keys.push_back((now, key));
    }

    /// Queues the remembered keys that match, and forgets them. For a single caller.
    async fn requeue(&self, only: &Only<'_, R>, queue: &WorkQueue<R>) {
        let all = std::mem::take(&mut *self.keys.lock());
        let (mut rest, mut slices) = (VecDeque::new(), Slices::default());
        for (at, key) in all {
            if only(&key) {
                queue.add_with(key, AddOptions::default().tag(Cause::HandOver.tag()));
            } else {
                rest.push_back((at, key));
            }
            slices.next().await;
        }
        let mut keys = self.keys.lock();
        // Those that were refused meanwhile are the newest.
        rest.append(&mut keys);
        let n_too_many = rest.len().saturating_sub(REFUSED_KEYS_MAX);
        rest.drain(..n_too_many);
        *keys = rest;
    }
}

/// The permission to reconcile one key. Dropped when the pass has ended and all its requests have
/// been answered or dropped, before the key may be handed out again.
pub(crate) struct GatePass {
    _running: Running,
    deadline: Arc<Deadline>,
}

impl GatePass {
    /// Waits until the permission is revoked: the pass is to be dropped. Cancel safe.
    pub(crate) async fn revoked(&self) -> Fenced {
        self.deadline.passed().await;
        self.deadline.check().err().unwrap_or(Fenced::NotHeld)
    }
}

/// A running pass.
struct Running {
    state: Arc<State>,
    number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.end(self.number);
    }
}

/// How many lease durations refused keys are remembered: one until a silent owner's Lease expires,
/// and one until its keys have moved.
const PATIENCE_LEASES: u32 = 2;

/// The membership of a sharded controller.
pub(crate) struct Attached<R> {
    /// For its workers.
    pub(crate) gate: Arc<Gate<R>>,
    /// For its reconciler; fenced.
    pub(crate) client: Client,
    member: JoinSet<()>,
    stop: CancellationToken,
}

impl<R: RequestKey> Attached<R> {
    /// Joins the group. Gained keys are queued from the sources' caches, in slices, so that the
    /// renewal of the Lease does not wait for them.
    pub(crate) fn start(
        sharded: Sharded,
        (client, clock, seed): (&Client, Clock, u64),
        sources: Arc<Sources<R>>,
        queue: WorkQueue<R>,
    ) -> Self {
        let state = sharded.state.clone();
        let patience = sharded.options.timings.lease * PATIENCE_LEASES;
        let gate = Arc::new(Gate::new(state.clone(), patience));
        let hand_overs = Arc::new(HandOvers::new(state.clone()));
        let kube = client.kube().clone();
        let member = Member::new(sharded, kube, clock, seed, hand_overs.clone());
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let (member, gate) = (member.run(stop.clone()), gate.clone());
            let hand_over = async move {
                loop {
                    let is_gained = hand_overs.next().await;
                    let only = move |key: &R| is_gained(&key.to_string());
                    sources.requeue(&only).await;
                    gate.requeue(&only, &queue).await;
                }
            };
            // One task: if a key's function panics, the Lease expires, and others take over.
            async move {
                tokio::select! {
                    biased;
                    () = member => {}
                    // Dropped with the member: its keys are others' then.
                    () = hand_over => {}
                }
            }
        });
        let client = client.fenced(state.deadline.clone());
        Self { gate, client, member: tasks, stop }
    }

    /// Leaves the group, after the workers have ended.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        while self.member.join_next().await.is_some() {}
    }
}
