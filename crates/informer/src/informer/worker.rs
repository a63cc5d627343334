//! Runs an informer.
use super::Shared;
use super::consumer::consume;
use super::intake::ObjectIntake;
use crate::delta::{DeltaQueue, OrderedFifo};
use crate::failure::pass_on_panic;
use crate::metrics::ReservedMetrics;
use crate::object::Raw;
use crate::reflector::{Reflector, ReflectorOptions, Resync};
use crate::source::ListWatch;
use rand::rngs::SmallRng;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runs an informer; the caller spawns it. Dropping it ends the informer.
#[must_use = "an informer does nothing until its worker is run"]
pub struct InformerWorker {
    source: Arc<dyn ListWatch>,
    options: ReflectorOptions,
    intake: ObjectIntake,
    rng: SmallRng,
    patience: Option<Duration>,
    end: End,
}

impl fmt::Debug for InformerWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerWorker")
            .field("resource", &self.end.0.resource_type.to_string())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Ends the informer when the worker is done or dropped, wherever it is.
struct End(Arc<Shared>, Option<ReservedMetrics>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.processor.lock().stop();
        self.0.board.stopped();
        // Another informer may use the name of its metrics now.
        self.1 = None;
    }
}

impl InformerWorker {
    pub(super) fn new(
        shared: Arc<Shared>,
        source: Arc<dyn ListWatch>,
        options: ReflectorOptions,
        intake: ObjectIntake,
        rng: SmallRng,
    ) -> Self {
        Self { source, options, intake, rng, patience: None, end: End(shared, None) }
    }

    pub(super) fn give_up_after(mut self, patience: Option<Duration>) -> Self {
        self.patience = patience;
        self
    }

    pub(super) fn metrics(mut self, metrics: Option<ReservedMetrics>) -> Self {
        self.end.1 = metrics;
        self
    }

    /// Runs the informer until `stop`. Then it drops what is queued (CTL-2, SHI-6), waits for the
    /// running calls of handlers, and ends.
    ///
    /// # Panics
    /// If the reflector or the consumer panics (REF-8). Panics of handlers are caught.
    pub async fn run(self, stop: CancellationToken) {
        let Self { source, options, intake, rng, patience, end } = self;
        let shared = &end.0;
        let queue = Arc::new(OrderedFifo::<Raw>::new());
        let (period, handlers_stop) = {
            let mut processor = shared.processor.lock();
            (processor.start(), processor.stop_token())
        };
        let stop = stop.child_token();
        let due = shared.clone();
        let reflector = Reflector::new(
            source,
            shared.resource_type.clone(),
            Box::new(intake),
            queue.clone(),
            shared.board.clone(),
            options,
            rng,
        )
        .resync(Resync { period, is_due: Box::new(move || due.processor.lock().resync_due()) });

        // One task for both ends of the queue: an event that the reflector queues is in the cache
        // by the end of the same poll, without a wake. (Of a busy watch, a few turns later.)
        let mut stages = JoinSet::new();
        // Boxed, because a future that is moved into another takes its size in it twice.
        let mut consumer = Box::pin(consume(shared.clone(), queue.clone(), stop.clone()));
        let mut reflector = Box::pin(reflector.run(stop.clone()));
        stages.spawn(async move {
            tokio::select! {
                biased;
                // Cancel safe: when one ends, the other is ended too.
                () = &mut reflector => {}
                // The consumer limits the work of a poll itself, and must get at the queue even if
                // the reflector has used up tokio's budget.
                () = tokio::task::unconstrained(&mut consumer) => {}
            }
        });
        let mut handlers = JoinSet::new();
        loop {
            for handler in shared.processor.lock().starting() {
                handlers.spawn(handler);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: the time counts from the status.
                () = shared.board.give_up(patience) => break,
                () = shared.wake.notified() => {}
                Some(ended) = stages.join_next() => {
                    pass_on_panic(ended);
                    break;
                }
                Some(ended) = handlers.join_next() => pass_on_panic(ended),
            }
        }
        stop.cancel();
        queue.close();
        while let Some(ended) = stages.join_next().await {
            pass_on_panic(ended);
        }
        handlers_stop.cancel();
        while let Some(ended) = handlers.join_next().await {
            pass_on_panic(ended);
        }
    }
}
