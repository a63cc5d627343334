//! A membership at work: the gate before a controller's workers, their fenced client, and the
//! member beside them.

use std::sync::Arc;

use setpoint_object::time::Clock;
use setpoint_workqueue::{AddOptions, WorkQueue};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Gate, Member, Sharded, member::Requeue};
use crate::{client::Client, pass::Cause, request::RequestKey, source::Sources};

/// How many Lease durations a refused key is of interest: one until a silent owner's Lease expires,
/// and one until its keys have moved.
const PATIENCE_LEASES: u32 = 2;

/// What a sharded controller has beside what others have.
pub(crate) struct Attached<R> {
    /// Before its workers.
    pub(crate) gate: Arc<Gate<R>>,
    /// For its reconciler.
    pub(crate) client: Client,
    member: JoinSet<()>,
    stop: CancellationToken,
}

impl<R: RequestKey> Attached<R> {
    /// Joins the group. What is gained comes out of the caches of the sources, into the queue.
    pub(crate) fn start(
        sharded: Sharded,
        (client, clock, seed): (&Client, Clock, u64),
        sources: Arc<Sources<R>>,
        queue: WorkQueue<R>,
    ) -> Self {
        let state = sharded.state.clone();
        let patience = sharded.options.timings.lease * PATIENCE_LEASES;
        let gate = Arc::new(Gate::new(state.clone(), patience));
        let requeue: Requeue = Box::new({
            let gate = gate.clone();
            move |is_gained| {
                let only = |key: &R| is_gained(&key.to_string());
                sources.requeue(&only);
                for key in gate.take(&only) {
                    queue.add_with(key, AddOptions::default().tag(Cause::HandOver.tag()));
                }
            }
        });
        let member = Member::new(sharded, client.kube().clone(), clock, seed, requeue);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(member.run(stop.clone()));
        let client = client.fenced(state.deadline.clone());
        Self { gate, client, member: tasks, stop }
    }

    /// Leaves the group: the workers have ended.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        while self.member.join_next().await.is_some() {}
    }
}
