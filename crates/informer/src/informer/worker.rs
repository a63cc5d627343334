//! What runs an informer.
use super::intake::ObjectIntake;
use super::{Shared, processor};
use crate::broken::Rule;
use crate::delta::{DeltaQueue, OrderedFifo};
use crate::metrics::ReservedMetrics;
use crate::object::Raw;
use crate::reflector::{
    ObjectError, Reflector, ReflectorError, ReflectorObserver, ReflectorOptions, Resync,
};
use crate::source::ListWatch;
use rand::rngs::SmallRng;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What runs an informer; the caller decides where. Dropping it ends the informer.
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
        // The name of its metrics is free for another.
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

    /// Runs the informer until `stop`. Then what is queued is dropped (CTL-2, SHI-6), calls to
    /// handlers that are running are waited for, and the future ends.
    ///
    /// # Panics
    /// When the reflector or the consumer panics, which they pass on (REF-8). Handlers' panics stay
    /// with them.
    pub async fn run(self, stop: CancellationToken) {
        let Self { source, options, intake, rng, patience, end } = self;
        let (shared, broken) = (&end.0, options.broken);
        let queue: Arc<dyn DeltaQueue<Raw>> = Arc::new(OrderedFifo::new());
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

        // One task for both ends of the queue: what the reflector has queued is in the cache by the
        // end of the same poll, and nobody is woken for it.
        if broken.is(Rule::SyncedAtOnce) {
            shared.board.synced();
        }
        let mut stages = JoinSet::new();
        // Boxed, because a future that is moved into another takes its size in it twice.
        let mut consumer = Box::pin(consume(shared.clone(), queue.clone(), stop.clone()));
        let mut reflector = Box::pin(reflector.run(stop.clone()));
        stages.spawn(async move {
            tokio::select! {
                biased;
                // Cancel safe: where one of them ends, both do.
                () = &mut reflector => {}
                // It does no more in one poll than the queue can hold; and tokio's budget, which
                // the reflector may have used up, must not keep the queue from it.
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
                // Cancel safe: the time counts from what the status says.
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

/// Takes deltas out of the queue into the cache.
async fn consume(shared: Arc<Shared>, queue: Arc<dyn DeltaQueue<Raw>>, stop: CancellationToken) {
    let mut stopped = pin!(stop.cancelled());
    loop {
        let batch = tokio::select! {
            biased;
            () = &mut stopped => return,
            batch = queue.pop_batch() => batch,
        };
        let Some(mut batch) = batch else { return };
        let mut functions = shared.processor.lock().functions().clone();
        let applied = loop {
            let asked = processor::ask(&functions, &batch.deltas);
            let mut processor = shared.processor.lock();
            if !Arc::ptr_eq(&functions, processor.functions()) {
                // An index was added meanwhile.
                functions = processor.functions().clone();
                continue;
            }
            let began = processor.has_metrics().then(Instant::now);
            let n_deltas = batch.deltas.len();
            let applied = processor.apply(std::mem::take(&mut batch.deltas), asked);
            if let Some(began) = began {
                processor.measure(began.elapsed(), n_deltas, queue.len());
            }
            break applied;
        };
        for error in applied.rejected {
            shared.board.skipped(Arc::new(ReflectorError::Object {
                resource: shared.resource_type.to_string(),
                source: ObjectError::Index(error),
            }));
        }
        if applied.became_synced {
            shared.board.synced();
        }
    }
}

fn pass_on_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
