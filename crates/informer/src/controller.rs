//! The low-level controller: a reflector, a queue and a function that processes batches.
//!
//! # Theory
//!
//! For controllers that are wired by hand, with a store of their own or without one. A
//! [`Controller`] joins the stages and adds no state. [`apply`] is the usual process function; with
//! any kind of queue it makes the same changes of a store.
//!
//! | event                             | the controller                                                                        |
//! |-----------------------------------|---------------------------------------------------------------------------------------|
//! | it is stopped                     | closes the queue, drops queued deltas, waits for the running call (CTL-1, CTL-2)      |
//! | a call of the process function fails | logs it and goes on: the deltas are lost until the next relist or event (FIFO-20)  |
//! | a call panics                     | the same, after a pause of [`RESTART_AFTER`] (CTL-4)                                  |
//! | the reflector panics              | panics (REF-8)                                                                        |
//! | another owner closes the queue    | ends with an error; client-go polls a closed queue every second                       |
//! | a second run                      | does not compile: `run` consumes it (CTL-3)                                           |
//!
//! A relist is one call of the process function, whose duration grows with the list. Processing
//! that takes long should yield now and then; a [`SharedInformer`](crate::SharedInformer) does.
//!
//! ```
//! use parking_lot::Mutex;
//! use rand::SeedableRng;
//! use setpoint_informer::controller::{Controller, LogObserver, apply};
//! use setpoint_informer::delta::{Batch, DeltaFifo, DeltaQueue, KnownObjects};
//! use setpoint_informer::intake::RecordIntake;
//! use setpoint_informer::reflector::Reflector;
//! use setpoint_informer::source::scripted::{Answer, Script};
//! use setpoint_informer::source::ListPage;
//! use setpoint_informer::{Key, Record, ResourceType};
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//! use tokio_util::sync::CancellationToken;
//!
//! /// Your own store: here the encoded objects.
//! #[derive(Default)]
//! struct Store(Mutex<BTreeMap<Key, Record>>);
//!
//! impl KnownObjects<Record> for Store {
//!     fn keys(&self) -> Vec<Key> {
//!         self.0.lock().keys().cloned().collect()
//!     }
//!     fn get(&self, key: &Key) -> Option<Record> {
//!         self.0.lock().get(key).cloned()
//!     }
//! }
//!
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # let item = bytes::Bytes::from_static(br#"{"metadata":{"namespace":"ns","name":"a","resourceVersion":"1"}}"#);
//! # let source = Script::new([Answer::List(Ok(ListPage::new("1", vec![item])))]);
//! let resource_type = ResourceType::of::<ConfigMap>(&());
//! let store = Arc::new(Store::default());
//! let queue: Arc<dyn DeltaQueue<Record>> = Arc::new(DeltaFifo::new(store.clone()));
//! let reflector = Reflector::new(
//!     Arc::new(source),
//!     resource_type.clone(),
//!     Box::new(RecordIntake::new(resource_type.clone())),
//!     queue.clone(),
//!     Arc::new(LogObserver::new(&resource_type)),
//!     Default::default(),
//!     rand::rngs::SmallRng::seed_from_u64(1),
//! );
//! let (keys, mut changed) = tokio::sync::mpsc::unbounded_channel(); // in practice a work queue
//! let held = store.clone();
//! let process = move |batch: Batch<Record>| {
//!     apply(batch, &mut *held.0.lock(), |change| {
//!         let _ = keys.send(change.key().clone());
//!     });
//!     Ok(())
//! };
//! let controller = Controller::new(reflector, queue, process);
//! let (synced, stop) = (controller.synced(), CancellationToken::new());
//! let mut tasks = tokio::task::JoinSet::new();
//! tasks.spawn(controller.run(stop.clone()));
//!
//! synced.wait().await.unwrap(); // workers start after this
//! assert_eq!(changed.recv().await, Some(Key::new("ns", "a")));
//! assert!(store.get(&Key::new("ns", "a")).is_some());
//! stop.cancel();
//! tasks.join_next().await.unwrap().unwrap().unwrap();
//! # });
//! ```

mod apply;
mod log;

pub use apply::{Change, DeltaStore, apply};
pub use log::LogObserver;

use crate::delta::{Batch, DeltaQueue, Keyed, QueueClosed, Synced};
use crate::failure::pass_on_panic;
use crate::reflector::Reflector;
use futures::FutureExt;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The pause after a panic of the process function: 1 s, as client-go (CTL-4).
pub const RESTART_AFTER: Duration = Duration::from_secs(1);

/// The error of a process function.
pub type ProcessError = Box<dyn std::error::Error + Send + Sync>;

/// Processes batches. Implemented by closures; implement it for a type to await in it.
pub trait Process<T>: Send + 'static {
    /// Processes one batch, which is processed when it is dropped. There is one call at a time.
    ///
    /// # Errors
    /// If a delta could not be processed. The error is logged, and nothing is retried (FIFO-20).
    fn process(&mut self, batch: Batch<T>)
    -> impl Future<Output = Result<(), ProcessError>> + Send;
}

impl<T, F> Process<T> for F
where
    F: FnMut(Batch<T>) -> Result<(), ProcessError> + Send + 'static,
{
    fn process(
        &mut self,
        batch: Batch<T>,
    ) -> impl Future<Output = Result<(), ProcessError>> + Send {
        std::future::ready(self(batch))
    }
}

/// Joins a reflector, its queue and a process function. See the [module's theory](self).
#[must_use = "a controller does nothing until it is run"]
pub struct Controller<T, P> {
    reflector: Reflector<T>,
    queue: Arc<dyn DeltaQueue<T>>,
    process: P,
}

impl<T, P> fmt::Debug for Controller<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("reflector", &self.reflector).finish_non_exhaustive()
    }
}

impl<T: Keyed, P: Process<T>> Controller<T, P> {
    /// A controller whose reflector writes to `queue`. Does nothing until it is run.
    pub fn new(reflector: Reflector<T>, queue: Arc<dyn DeltaQueue<T>>, process: P) -> Self {
        Self { reflector, queue, process }
    }

    /// Whether the first list has been processed (FIFO-22).
    pub fn synced(&self) -> Synced {
        self.queue.synced()
    }

    /// Runs until `stop`, and then closes the queue. Dropping the future closes it, too.
    ///
    /// # Errors
    /// If another owner closed the queue.
    ///
    /// # Panics
    /// If the reflector panics (REF-8).
    pub async fn run(self, stop: CancellationToken) -> Result<(), QueueClosed> {
        let Self { reflector, queue, process } = self;
        let _close = Close(queue.clone());
        let reflector_stop = stop.child_token();
        let mut stages = JoinSet::new();
        stages.spawn(reflector.run(reflector_stop.clone()));
        stages.spawn(consume(queue.clone(), process, stop.clone()));
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            // Without a stop, a stage ends when the queue is closed; the consumer empties it first.
            Some(ended) = stages.join_next() => pass_on_panic(ended),
        }
        let was_stopped = stop.is_cancelled();
        queue.close();
        reflector_stop.cancel();
        while let Some(ended) = stages.join_next().await {
            pass_on_panic(ended);
        }
        if was_stopped { Ok(()) } else { Err(QueueClosed) }
    }
}

/// Closes a queue when its controller ends in any way.
struct Close<T: Keyed>(Arc<dyn DeltaQueue<T>>);

impl<T: Keyed> Drop for Close<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Pops and processes batches, one after the other. At `stop` the rest is dropped (CTL-2).
async fn consume<T: Keyed, P: Process<T>>(
    queue: Arc<dyn DeltaQueue<T>>,
    mut process: P,
    stop: CancellationToken,
) {
    loop {
        let batch = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            // Cancel safe: a dropped pop has taken nothing.
            batch = queue.pop_batch() => batch,
        };
        let Some(batch) = batch else { return };
        // Also catches a panic of a closure before it returns its future.
        match AssertUnwindSafe(async { process.process(batch).await }).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("process deltas: {}", crate::failure::chain(&*error)),
            Err(_) => {
                tracing::error!("processing deltas panicked; continuing with the next ones");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = sleep(RESTART_AFTER) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
