//! Applies queued deltas to the cache.
//!
//! # Theory
//!
//! A relist may have a million objects, and a batch a thousand objects whose index functions decode
//! them. Nothing here handles more than [`OBJECTS_PER_POLL_MAX`](super::OBJECTS_PER_POLL_MAX) of
//! them before other tasks have their turn, and the distribution lock is taken only for work that
//! takes the same time however large the cache is:
//!
//! | step of a relist                        | time per poll | lock             |
//! |-----------------------------------------|---------------|------------------|
//! | build the new state beside the old one  | a slice       | none             |
//! | swap the two, queue one walk per handler | constant      | distribution     |
//! | compare the states, call a handler      | a slice       | that handler's queue |
//! | free the old state                      | a slice       | none             |
//!
//! Readers see the old state until the swap. Deltas that arrive meanwhile wait in the queue, so
//! they are applied to the new state, in order.
use super::Shared;
use super::processor::Applied;
use crate::delta::{Delta, DeltaQueue, OrderedFifo};
use crate::indexer::{Functions, IndexResult, Relist, free, values_of};
use crate::intake::ObjectError;
use crate::object::Raw;
use crate::reflector::{ReflectorError, ReflectorObserver};
use crate::slices::{OBJECTS_PER_POLL_MAX, Slices, turn};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Runs until `stop`, or until the queue is closed.
pub(super) async fn consume(
    shared: Arc<Shared>,
    queue: Arc<OrderedFifo<Raw>>,
    stop: CancellationToken,
) {
    let mut stopped = pin!(stop.cancelled());
    loop {
        let batch = tokio::select! {
            biased;
            () = &mut stopped => return,
            // Cancel safe: a dropped pop has taken nothing.
            batch = queue.next_batch() => batch,
        };
        let Some(mut batch) = batch else { return };
        let began = shared.processor.lock().has_metrics().then(Instant::now);
        let mut deltas = std::mem::take(&mut batch.deltas);
        let n_deltas = deltas.len();
        // A relist is a batch of its own (FIFO-15).
        let applied = match deltas.pop() {
            Some(Delta::ReplacedAll { items, resource_version }) => {
                debug_assert!(deltas.is_empty(), "a relist among other deltas");
                relist(&shared, items, &resource_version).await
            }
            last => {
                deltas.extend(last);
                apply(&shared, deltas).await
            }
        };
        if let Some(began) = began {
            shared.processor.lock().measure(began.elapsed(), n_deltas, queue.len());
        }
        finish(&shared, applied).await;
        drop(batch);
        gather(&queue).await;
    }
}

/// Once the queue is empty, lets a source that has more events bring them, up to a slice: events
/// that are applied together cost less. Returns after one turn of the runtime without a further
/// event, so that an event that comes alone never waits.
async fn gather(queue: &OrderedFifo<Raw>) {
    if !queue.is_empty() {
        return;
    }
    let mut n_before = 0;
    loop {
        turn().await;
        let n_queued = queue.len();
        if n_queued == n_before || n_queued >= OBJECTS_PER_POLL_MAX {
            return;
        }
        n_before = n_queued;
    }
}

/// Applies deltas about single objects.
async fn apply(shared: &Shared, deltas: Vec<Delta<Raw>>) -> Applied {
    let mut functions = shared.processor.lock().functions().clone();
    loop {
        let indexed = index_objects(&functions, &deltas).await;
        let mut processor = shared.processor.lock();
        if Arc::ptr_eq(&functions, processor.functions()) {
            return processor.apply(deltas, indexed);
        }
        // An index was added meanwhile.
        functions = processor.functions().clone();
    }
}

/// Calls the index functions with all objects that the deltas store. Holds no lock, because the
/// functions are user code and may call the informer.
async fn index_objects(functions: &Functions, deltas: &[Delta<Raw>]) -> VecDeque<IndexResult> {
    let mut indexed = VecDeque::new();
    if functions.is_empty() {
        return indexed;
    }
    let stored = deltas.iter().filter(|delta| !delta.is_deletion()).filter_map(Delta::item);
    let mut slices = Slices::default();
    for object in stored {
        indexed.push_back(values_of(&**functions, object));
        slices.next().await;
    }
    indexed
}

/// Replaces the cache by the objects of a list.
async fn relist(shared: &Shared, items: Vec<Raw>, resource_version: &str) -> Applied {
    let mut slices = Slices::default();
    let mut relist = shared.processor.lock().begin_relist();
    for object in items {
        relist.add(object);
        slices.next().await;
    }
    loop {
        let mut relisted = Relist::finish(relist, resource_version);
        while relisted.merge() {
            slices.next().await;
        }
        let swapped = shared.processor.lock().end_relist(relisted, resource_version);
        let mut relisted = match swapped {
            Ok(applied) => return applied,
            Err(relisted) => relisted,
        };
        // An index was added meanwhile: its function has to be called with the new objects.
        relist = shared.processor.lock().begin_relist_again(&mut relisted);
        let mut objects = relisted.objects();
        while let Some(object) = objects.peek().cloned() {
            relist.add(object);
            objects.advance();
            slices.next().await;
        }
        drop(objects);
        free([relisted.into_snapshot::<()>()]).await;
    }
}

/// Reports the outcome, and frees what is no longer needed.
async fn finish(shared: &Shared, applied: Applied) {
    let Applied { rejected, became_synced, unused: mut states, replaced } = applied;
    for error in rejected {
        shared.board.skipped(Arc::new(ReflectorError::Object {
            resource: shared.resource_type.to_string(),
            source: ObjectError::Index(error),
        }));
    }
    if became_synced {
        shared.board.synced();
    }
    let mut slices = Slices::default();
    for replaced in replaced {
        let (entries, of_walks) = replaced.into_parts();
        states.extend(of_walks);
        for entry in entries {
            drop(entry);
            slices.next().await;
        }
    }
    // All handles of a state together: only the last one frees it.
    free(states).await;
}
