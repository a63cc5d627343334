//! Workers: take a key, reconcile it, requeue it.

use std::{
    any::Any,
    hash::Hash,
    mem,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hashbrown::HashMap;
use parking_lot::Mutex;
use setpoint_object::panic;
use setpoint_workqueue::{AddOptions, DELAY_MAX, Item, RestingItem, WorkQueue};
use tokio::{
    task::coop::consume_budget,
    time::{Instant, sleep_until, timeout_at},
};
use tracing::Instrument;

use super::{
    ControllerError, Shared,
    error::{ReconcilePanic, ReconcileTimeout},
    options::Options,
    passes::{DynReconciler, Passes},
    stats::count,
};
use crate::{
    context::{CommonContext, Context, PassInfo},
    error::{BoxError, chain},
    events::ObjectReference,
    explain::Explainer,
    fence::Fence,
    pass::{Began, Cause, PassOutcome, ReconcileId, Written, cut},
    reconciler::{Action, Requeue, is_terminal, priority_of},
    request::{Request, RequestKey},
    shard::{Gate, GatePass},
    source::{LaggingCache, Sources},
    telemetry::{Trace, within},
};

/// The shared state of a controller's workers.
pub(super) struct Worker<R> {
    // Helpers.
    pub(super) common: CommonContext,
    pub(super) options: Options,
    pub(super) gate: Option<Arc<Gate<R>>>,
    pub(super) fence: Option<Arc<dyn Fence>>,
    pub(super) min_interval: Option<MinInterval<R>>,

    // Inputs.
    pub(super) queue: WorkQueue<R>,
    pub(super) sources: Arc<Sources<R>>,

    // State.
    pub(super) ids: Ids,
    pub(super) explainer: Arc<Explainer<R>>,
    pub(super) shared: Arc<Shared>,
}

/// Makes the ids of passes, from a seed.
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
    /// Reconciles keys until the queue is shut down or the controller stops. Keys still queued then
    /// are dropped: a start lists everything again.
    pub(super) async fn run(
        self: Arc<Self>,
        reconciler: Arc<dyn DynReconciler<R>>,
    ) -> Result<(), ControllerError> {
        // A token and a count of references of its own: workers do not contend for a shared cache
        // line.
        let stop = self.common.stopping.child_token();
        let common = Arc::new(CommonContext { stopping: stop.clone(), ..self.common.clone() });
        while let Some(item) = self.queue.get().await {
            // Boxed, so that a worker that waits for a key is small.
            Box::pin(self.burst(&*reconciler, item, &common)).await?;
            if stop.is_cancelled() || self.is_deposed() {
                break;
            }
        }
        Ok(())
    }

    /// Reconciles a key, and then others until none is queued and none is held back, or until the
    /// controller stops.
    async fn burst(
        &self,
        reconciler: &dyn DynReconciler<R>,
        first: Item<'_, R>,
        common: &Arc<CommonContext>,
    ) -> Result<(), ControllerError> {
        let mut resting: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let mut passes = Passes::new(reconciler);
        let mut next = Some(first);
        while let Some(item) = next {
            if common.stopping.is_cancelled() || self.is_deposed() {
                break;
            }
            if let Some(admitted) = self.admit(&item) {
                let (written, rest) = {
                    let pass = pin!(self.pass(&mut passes, &item, common, admitted.as_ref()));
                    poll_resting_while(&mut resting, pass).await?
                };
                drop(admitted);
                let lagging = match written.0.is_empty() || self.options.catch_up.is_zero() {
                    true => Vec::new(),
                    false => self.sources.lagging_caches(&written),
                };
                // If the key is to be requeued it was added already: its delay has begun.
                if lagging.is_empty() && rest.is_zero() {
                    item.done();
                } else {
                    // The worker goes on to other keys.
                    resting.push(self.hold_back(item.rest(), lagging, rest).boxed());
                }
            } else {
                drop(item);
            }
            next = if resting.is_empty() {
                // A worker that always finds a key yields when its budget is used up.
                consume_budget().await;
                self.queue.try_get()
            } else {
                poll_resting_while(&mut resting, pin!(self.queue.get())).await
            };
        }
        Ok(())
    }

    /// Whether this process has lost the leadership. After a stall, a worker may run before the
    /// manager notices the loss. No pass begins then, as another process may lead. A lost
    /// leadership never comes back.
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
                    // Another replica counts its failures from now on.
                    self.queue.forget(key);
                    return None;
                }
            },
            // The lease has expired: the manager is about to notice and end.
            None if self.common.client.check_fence().is_err() => return None,
            None => None,
        };
        if let Some(min_interval) = &self.min_interval
            && let Some(wait) = min_interval.wait(key, Instant::now())
        {
            let later = AddOptions::default().after(wait).priority(item.priority());
            self.queue.add_with(key.clone(), later.tag(item.tag()));
            count(&self.shared.counters.deferred);
            return None;
        }
        Some(entered)
    }

    /// Reconciles a key once; returns what the pass wrote, and how long the key rests.
    async fn pass(
        &self,
        passes: &mut Passes<'_, R>,
        item: &Item<'_, R>,
        common: &Arc<CommonContext>,
        admitted: Option<&GatePass>,
    ) -> Result<(Written, Duration), ControllerError> {
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
        let trace = self.trace(key, common, &began);
        let is_traced = trace.is_some() || !span.is_disabled();
        let recording = self.explainer.begin(key.clone(), began, is_traced);
        let info = PassInfo {
            reconcile_id: began.reconcile_id,
            attempt: began.attempt,
            priority: began.priority,
            cause: began.cause,
            deadline: self
                .options
                .reconcile_timeout
                .map(|timeout| began.at + timeout.min(DELAY_MAX)),
        };
        let context = Context::new(common.clone(), recording.pass(), info);
        let outcome = {
            let _active = self.shared.counters.begin();
            // Pinned here, because a future that is moved into another takes its size in it twice.
            let mut pass = pin!(
                within(trace.as_ref(), self.reconcile(passes, key.clone(), context))
                    .instrument(span.clone())
            );
            match admitted {
                None => pass.await,
                Some(admitted) => tokio::select! {
                    biased;
                    fenced = admitted.revoked() => Outcome::Revoked(fenced.into()),
                    outcome = &mut pass => outcome,
                },
            }
        };
        if matches!(outcome, Outcome::Revoked(_) | Outcome::Timeout(_)) {
            passes.cancel();
        }
        let ended = Instant::now();
        self.shared.counters.took.observe(ended.duration_since(at));
        let _entered = span.enter();
        let rest = match &outcome {
            Outcome::Ok(action) => action.rest,
            _ => Duration::ZERO,
        };
        let (outcome, failed) = match self.settle(item, outcome) {
            Ok(outcome) => (outcome, None),
            Err(error) => (PassOutcome::Panic(cut(error.to_string())), Some(error)),
        };
        recording.record_on(&span, &outcome);
        if let Some(trace) = &trace {
            trace.end(&outcome, &recording.notes(), common.clock.now());
        }
        let written = recording.end(ended, outcome);
        failed.map_or(Ok((written, rest)), Err)
    }

    /// The trace span of a pass, if passes are traced.
    fn trace(&self, key: &R, common: &CommonContext, began: &Began) -> Option<Trace> {
        let traces = self.options.traces.as_ref()?;
        let request = (key as &dyn Any).downcast_ref::<Request>();
        traces.begin(&self.options.name, key, request, began, common.clock.now())
    }

    async fn reconcile(&self, passes: &mut Passes<'_, R>, key: R, context: Context) -> Outcome {
        let deadline = context.deadline().zip(self.options.reconcile_timeout);
        let mut pass = AssertUnwindSafe(passes.begin(key, context)).catch_unwind();
        let ended = match deadline {
            Some((deadline, timeout)) => match timeout_at(deadline, &mut pass).await {
                Ok(ended) => ended,
                Err(_) => return Outcome::Timeout(ReconcileTimeout { timeout }),
            },
            None => pass.await,
        };
        match ended {
            Ok(Ok(action)) => Outcome::Ok(action),
            Ok(Err(error)) => Outcome::Error(error),
            Err(panic) => Outcome::Panic(panic::message(&*panic).to_owned()),
        }
    }
}

/// Enforces the minimum time between the starts of two passes over one key.
///
/// Start times are in two generations. Each time the interval has passed, the old generation is
/// dropped and the young one becomes the old. So a key is remembered for at least one interval and
/// at most two, and memory is bounded by the passes of two intervals.
pub(super) struct MinInterval<R> {
    interval: Duration,
    starts: Mutex<Starts<R>>,
}

struct Starts<R> {
    young: HashMap<R, Instant>,
    old: HashMap<R, Instant>,
    turned: Option<Instant>,
}

impl<R: Clone + Eq + Hash> MinInterval<R> {
    /// Starts of passes over one key are at least `interval` apart.
    pub(super) fn new(interval: Duration) -> Self {
        let starts = Starts { young: HashMap::new(), old: HashMap::new(), turned: None };
        Self { interval: interval.min(DELAY_MAX), starts: Mutex::new(starts) }
    }

    /// How long the key must still wait. `None`: it may start, and is recorded as started now.
    pub(super) fn wait(&self, key: &R, now: Instant) -> Option<Duration> {
        let mut starts = self.starts.lock();
        let expired = starts.turn(self.interval, now);
        let last = starts.young.get(key).or_else(|| starts.old.get(key));
        let due = last.map(|last| *last + self.interval).filter(|due| *due > now);
        if due.is_none() {
            starts.young.insert(key.clone(), now);
        }
        // Without the lock, since they may be many.
        drop(starts);
        drop(expired);
        due.map(|due| due - now)
    }
}

impl<R> Starts<R> {
    /// Returns what has expired.
    fn turn(&mut self, interval: Duration, now: Instant) -> [HashMap<R, Instant>; 2] {
        let turned = *self.turned.get_or_insert(now);
        let passed = now.saturating_duration_since(turned);
        if passed < interval {
            return Default::default();
        }
        self.turned = Some(now);
        let young = mem::take(&mut self.young);
        // No pass has started since: the young generation has expired too.
        if passed >= interval.saturating_mul(2) {
            return [mem::take(&mut self.old), young];
        }
        [mem::replace(&mut self.old, young), HashMap::new()]
    }
}

impl<R: RequestKey> Worker<R> {
    /// Holds a key back until its rest is over, and these caches show what its last pass wrote and
    /// have delivered it to their handlers, so that the events of the writes lead to one pass. The
    /// caches have a time-out. Ends early when the controller stops.
    pub(super) async fn hold_back(
        &self,
        item: RestingItem<R>,
        lagging: Vec<LaggingCache>,
        rest: Duration,
    ) {
        let now = Instant::now();
        let deadline = now + self.options.catch_up.min(DELAY_MAX);
        let caught_up = async {
            let mut registrations = Vec::with_capacity(lagging.len());
            let shown = async {
                for LaggingCache { shown, registration } in lagging {
                    shown.await;
                    registrations.extend(registration);
                }
            };
            if timeout_at(deadline, shown).await.is_err() {
                count(&self.shared.counters.catch_up_timeouts);
                tracing::debug!(controller = %self.options.name, object = %item.key(), "the caches do not show what was written yet");
                return;
            }
            let delivered = async {
                for registration in &registrations {
                    registration.delivered().await;
                }
            };
            _ = timeout_at(deadline, delivered).await;
        };
        tokio::select! {
            biased;
            () = self.common.stopping.cancelled() => {}
            // Cancel safe: it only observes.
            _ = async { tokio::join!(caught_up, sleep_until(now + rest.min(DELAY_MAX))) } => {}
        }
        item.done();
    }
}

/// Awaits `work`, and polls the futures of held-back keys meanwhile. Cancel safe if `work` is.
pub(super) async fn poll_resting_while<T>(
    resting: &mut FuturesUnordered<BoxFuture<'_, ()>>,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> T {
    loop {
        if resting.is_empty() {
            return work.await;
        }
        tokio::select! {
            biased;
            // Cancel safe: it only observes. Polled before the work, so that keys are free in time
            // for it.
            _ = resting.next() => {}
            // Cancel safe: it is pinned outside.
            done = &mut work => return done,
        }
    }
}

/// The result of a pass.
pub(super) enum Outcome {
    Ok(Action),
    Error(BoxError),
    /// It was ended, because another process may have the key by now.
    Revoked(BoxError),
    Panic(String),
    Timeout(ReconcileTimeout),
}

impl<R: RequestKey> Worker<R> {
    /// Counts the pass, requeues its key if due, and returns the outcome for the record. The key is
    /// still in flight, so that a requeue waits until it is done.
    pub(super) fn settle(
        &self,
        item: &Item<'_, R>,
        outcome: Outcome,
    ) -> Result<PassOutcome, ControllerError> {
        let counters = &self.shared.counters;
        let mut remembered = None;
        let error: BoxError = match outcome {
            Outcome::Ok(action) => return Ok(self.succeed(item, action)),
            Outcome::Error(error) | Outcome::Revoked(error) => error,
            Outcome::Panic(message) => {
                count(&counters.panics);
                if !self.options.recovers_panics {
                    let name = self.options.name.clone();
                    return Err(ControllerError::Panic { name, message });
                }
                remembered = Some(PassOutcome::Panic(cut(message.clone())));
                ReconcilePanic { message }.into()
            }
            Outcome::Timeout(timeout) => {
                count(&counters.timeouts);
                remembered = Some(PassOutcome::Timeout);
                timeout.into()
            }
        };
        count(&counters.error);
        self.fail(item, &error);
        Ok(remembered.unwrap_or_else(|| {
            let text = cut(chain(&*error));
            if is_terminal(&*error) {
                PassOutcome::Terminal(text)
            } else {
                PassOutcome::Error(text)
            }
        }))
    }

    fn succeed(&self, item: &Item<'_, R>, action: Action) -> PassOutcome {
        let (key, counters) = (item.key(), &self.shared.counters);
        let again = |cause| self.requeue_options(item, cause, action.priority);
        let remembered = match action.requeue {
            Requeue::After(delay) if !delay.is_zero() => {
                self.queue.forget(key);
                self.queue.add_with(key.clone(), again(Cause::Timer).after(delay));
                count(&counters.requeue_after);
                PassOutcome::RequeueAfter(delay)
            }
            Requeue::Never | Requeue::After(_) => {
                self.queue.forget(key);
                count(&counters.success);
                PassOutcome::Success
            }
            Requeue::RateLimited => {
                self.queue.add_with(key.clone(), again(Cause::Retry).rate_limited());
                count(&counters.requeue);
                PassOutcome::Requeue
            }
        };
        tracing::debug!(?action, "reconciled");
        remembered
    }

    fn fail(&self, item: &Item<'_, R>, error: &BoxError) {
        let (key, counters) = (item.key(), &self.shared.counters);
        if is_terminal(&**error) {
            count(&counters.terminal);
            tracing::error!(
                error = chain(&**error),
                "reconcile failed: not retried before the next change"
            );
            return;
        }
        let attempt = self.queue.num_requeues(key).saturating_add(1);
        if self.options.attempts_max.is_some_and(|max| attempt >= max) {
            self.queue.forget(key);
            count(&counters.given_up);
            tracing::error!(
                error = chain(&**error),
                attempt,
                "reconcile failed too often: given up"
            );
            self.report_given_up(key, attempt, error);
            return;
        }
        let again = self.requeue_options(item, Cause::Retry, priority_of(&**error));
        self.queue.add_failed(key.clone(), &**error, again);
        tracing::warn!(error = chain(&**error), attempt, "reconcile failed");
    }

    /// Options of a requeue: the priority that the pass set, or else the key's own (PQ-44, RES-12).
    fn requeue_options(
        &self,
        item: &Item<'_, R>,
        cause: Cause,
        priority: Option<i32>,
    ) -> AddOptions {
        AddOptions::default().tag(cause.tag()).priority(priority.unwrap_or(item.priority()))
    }

    /// Records a Warning event that the key was given up, if keys are names of objects.
    fn report_given_up(&self, key: &R, attempt: u32, error: &BoxError) {
        let request = (key as &dyn Any).downcast_ref::<Request>();
        let (Some(kind), Some(request)) = (&self.options.kind, request) else { return };
        let regarding = ObjectReference {
            api_version: kind.group_version().to_string(),
            kind: kind.kind.to_string(),
            namespace: request.namespace.to_string(),
            name: request.name.to_string(),
            ..ObjectReference::default()
        };
        let message = format!("gave up after {attempt} attempts: {}", chain(&**error));
        self.common.recorder.warning(&regarding, "ReconcileGivenUp", message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn starts_over_one_key_are_the_interval_apart_and_other_keys_are_not_delayed() {
        let min_interval = MinInterval::new(Duration::from_secs(10));
        let start = Instant::now();
        let wait = |key, at: u64| min_interval.wait(&key, start + Duration::from_secs(at));
        assert_eq!(wait("a", 0), None);
        assert_eq!(wait("a", 4), Some(Duration::from_secs(6)));
        assert_eq!(wait("b", 4), None);
        assert_eq!(wait("a", 9), Some(Duration::from_secs(1)), "a wait is not a start");
        assert_eq!(wait("a", 10), None);
        assert_eq!(wait("b", 12), Some(Duration::from_secs(2)), "it is in the old generation");
        assert_eq!(wait("a", 19), Some(Duration::from_secs(1)));
        assert_eq!(wait("b", 14), None);
    }

    #[tokio::test(start_paused = true)]
    async fn longest_interval_is_for_ever() {
        let min_interval = MinInterval::new(Duration::MAX);
        assert_eq!(min_interval.wait(&"a", Instant::now()), None);
        assert_eq!(min_interval.wait(&"a", Instant::now()), Some(DELAY_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn starts_older_than_two_intervals_are_forgotten() {
        let min_interval = MinInterval::new(Duration::from_secs(10));
        let start = Instant::now();
        for n in 0..1000_u64 {
            assert_eq!(min_interval.wait(&n, start + Duration::from_secs(n)), None);
            let began = min_interval.starts.lock();
            assert!(began.young.len() + began.old.len() <= 20);
        }
        assert_eq!(min_interval.wait(&0, start + Duration::from_secs(5000)), None);
        let began = min_interval.starts.lock();
        assert_eq!((began.young.len(), began.old.len()), (1, 0));
    }
}
