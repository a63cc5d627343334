//! A worker: takes a key, has it reconciled, decides when it comes back.

use std::{
    any::Any,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture, stream::FuturesUnordered};
use setpoint_workqueue::{AddOptions, Item, WorkQueue};
use tokio::time::Instant;
use tracing::Instrument;

use super::{
    ControllerError, Shared, catch_up::beside, error::ReconcileTimeout, options::Options,
    pace::Pace, settle::Outcome, stats::count,
};
use crate::{
    context::{Context, Home, Which},
    error::panic_message,
    explain::Explainer,
    fence::Fence,
    pass::{Began, Cause, PassOutcome, ReconcileId, Written, cut},
    reconciler::Reconciler,
    request::{Request, RequestKey},
    shard::{Gate, GatePass},
    source::Sources,
    telemetry::{Trace, within},
};

/// A reconciler whose type is forgotten. It is forgotten once per worker, so that a pass costs no
/// allocation for it.
pub(super) trait DynReconciler<R>: Send + Sync {
    /// Works until the queue is shut down.
    fn work(
        self: Arc<Self>,
        worker: Arc<Worker<R>>,
    ) -> BoxFuture<'static, Result<(), ControllerError>>;
}

pub(super) struct Erased<T>(pub(super) T);

impl<R: RequestKey, T: Reconciler<R>> DynReconciler<R> for Erased<T> {
    fn work(
        self: Arc<Self>,
        worker: Arc<Worker<R>>,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        async move { worker.run(&self.0).await }.boxed()
    }
}

/// What a controller's workers share.
pub(super) struct Worker<R> {
    // Helpers.
    pub(super) home: Home,
    pub(super) options: Options,
    pub(super) gate: Option<Arc<Gate<R>>>,
    pub(super) fence: Option<Arc<dyn Fence>>,
    pub(super) pace: Option<Pace<R>>,

    // Inputs.
    pub(super) queue: WorkQueue<R>,
    pub(super) sources: Arc<Sources<R>>,

    // State.
    pub(super) ids: Ids,
    pub(super) explainer: Arc<Explainer<R>>,
    pub(super) shared: Arc<Shared>,
}

/// Numbers passes, and makes their ids of a seed.
pub(super) struct Ids {
    seed: u64,
    next: AtomicU64,
}

impl Ids {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, next: AtomicU64::new(0) }
    }

    fn next(&self) -> ReconcileId {
        ReconcileId::of(self.seed, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl<R: RequestKey> Worker<R> {
    /// Reconciles keys until the queue is shut down or the controller is to stop. What is still
    /// queued then is left: a start lists anew.
    async fn run(&self, reconciler: &impl Reconciler<R>) -> Result<(), ControllerError> {
        // Of its own: to look at and to count references to is then to touch what no other worker
        // touches.
        let stop = self.home.stopping.child_token();
        let home = Arc::new(Home { stopping: stop.clone(), ..self.home.clone() });
        let mut resting = FuturesUnordered::new();
        while let Some(item) = beside(&mut resting, self.queue.get()).await {
            if stop.is_cancelled() || self.is_deposed() {
                break;
            }
            let Some(admitted) = self.admit(&item) else { continue };
            let pass = self.pass(reconciler, &item, &home, admitted.as_ref());
            let written = beside(&mut resting, pass).await?;
            drop(admitted);
            // The key was added again before, if it is to come back: its wait has begun.
            if written.0.is_empty() || self.options.catch_up.is_zero() {
                item.done();
                continue;
            }
            match self.sources.unshown(&written) {
                unshown if unshown.is_empty() => item.done(),
                // The worker goes on to other keys.
                unshown => resting.push(self.catch_up(item.rest(), unshown)),
            }
        }
        Ok(())
    }

    /// Whether this process led and does so no more. After a stall a worker may run before the
    /// manager has learnt it; where another may lead, no pass begins. What was lost is not had
    /// again.
    fn is_deposed(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.check().is_err())
    }

    /// Whether a pass over a key may begin.
    fn admit(&self, item: &Item<'_, R>) -> Option<Option<GatePass>> {
        let key = item.key();
        let entered = match &self.gate {
            Some(gate) => match gate.enter(key) {
                Some(entered) => Some(entered),
                None => {
                    count(&self.shared.counters.not_ours);
                    return None;
                }
            },
            // A leader whose time is over begins nothing more: its manager is about to notice, and
            // to end.
            None if self.home.client.check_fence().is_err() => return None,
            None => None,
        };
        if let Some(pace) = &self.pace
            && let Some(wait) = pace.wait(key, Instant::now())
        {
            let later = AddOptions::default().after(wait).priority(item.priority());
            self.queue.add_with(key.clone(), later.tag(item.tag()));
            count(&self.shared.counters.deferred);
            return None;
        }
        Some(entered)
    }

    /// One pass over a key; gives what it wrote.
    async fn pass(
        &self,
        reconciler: &impl Reconciler<R>,
        item: &Item<'_, R>,
        home: &Arc<Home>,
        admitted: Option<&GatePass>,
    ) -> Result<Written, ControllerError> {
        let key = item.key();
        let at = Instant::now();
        let (tag, waited) = item.tag_and_waited();
        let began = Began {
            at,
            reconcile_id: self.ids.next(),
            cause: Cause::of_tag(tag),
            n_events: item.n_adds(),
            waited,
            priority: item.priority(),
            attempt: self.queue.num_requeues(key),
        };
        let span = began.span(&self.options.name, key);
        let trace = self.trace(key, home, &began);
        let is_told = trace.is_some() || !span.is_disabled();
        let recording = self.explainer.begin(key.clone(), began, is_told);
        let which = Which {
            reconcile_id: began.reconcile_id,
            attempt: began.attempt,
            priority: began.priority,
            cause: began.cause,
            deadline: self.options.reconcile_timeout.map(|timeout| began.at + timeout),
        };
        let context = Context::new(home.clone(), recording.pass(), which);
        let outcome = {
            let _active = self.shared.counters.begin();
            let pass = self.reconcile(reconciler, key.clone(), context);
            let pass = within(trace.as_ref(), pass).instrument(span.clone());
            match admitted {
                None => pass.await,
                Some(admitted) => tokio::select! {
                    biased;
                    fenced = admitted.revoked() => Outcome::Error(fenced.into()),
                    outcome = pass => outcome,
                },
            }
        };
        let ended = Instant::now();
        self.shared.counters.took.observe(ended.duration_since(at));
        let _entered = span.enter();
        let (outcome, failed) = match self.settle(item, outcome) {
            Ok(outcome) => (outcome, None),
            Err(error) => (PassOutcome::Panic(cut(error.to_string())), Some(error)),
        };
        recording.tell(&span, &outcome);
        if let Some(trace) = &trace {
            trace.end(&outcome, &recording.notes(), home.clock.now());
        }
        let written = recording.end(ended, outcome);
        failed.map_or(Ok(written), Err)
    }

    /// The span of a pass that begins, where passes are traced.
    fn trace(&self, key: &R, home: &Home, began: &Began) -> Option<Trace> {
        let traces = self.options.traces.as_ref()?;
        let request = (key as &dyn Any).downcast_ref::<Request>();
        traces.begin(&self.options.name, key, request, began, home.clock.now())
    }

    async fn reconcile(
        &self,
        reconciler: &impl Reconciler<R>,
        key: R,
        context: Context,
    ) -> Outcome {
        let deadline = context.deadline().zip(self.options.reconcile_timeout);
        // The call itself may panic, as well as the future it gives.
        let pass =
            AssertUnwindSafe(async { reconciler.reconcile(key, context).await }).catch_unwind();
        let ended = match deadline {
            Some((deadline, timeout)) => match tokio::time::timeout_at(deadline, pass).await {
                Ok(ended) => ended,
                Err(_) => return Outcome::Timeout(ReconcileTimeout { timeout }),
            },
            None => pass.await,
        };
        match ended {
            Ok(Ok(action)) => Outcome::Ok(action),
            Ok(Err(error)) => Outcome::Error(error.into()),
            Err(panic) => Outcome::Panic(panic_message(&*panic)),
        }
    }
}
