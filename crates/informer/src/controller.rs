//! The low-level controller: a reflector, a queue and a function that processes what leaves it.
//!
//! # Theory
//!
//! This is what an informer is made of, for those who wire a controller by hand: with a store of
//! their own, or with none. A [`Controller`] joins the stages and adds no state. [`apply`] is the
//! usual process function; it gives for every kind of queue the same changes of a store.
//!
//! | what happens                      | what the controller does                                                              |
//! |-----------------------------------|---------------------------------------------------------------------------------------|
//! | it is stopped                     | closes the queue, drops what waits, lets the running process call end (CTL-1, CTL-2)  |
//! | a process call fails              | logs it and goes on: the deltas are gone, and the next relist or event repairs (FIFO-20) |
//! | a process call panics             | the same, and begins again after [`RESTART_AFTER`] (CTL-4)                            |
//! | the reflector panics              | passes it on (REF-8)                                                                  |
//! | somebody else closes the queue    | ends, and says so; client-go goes on asking a closed queue every second               |
//! | it is to run twice                | cannot be said: running takes it (CTL-3)                                              |
//!
//! ```
//! use parking_lot::Mutex;
//! use rand::SeedableRng;
//! use setpoint_informer::controller::{Controller, LogObserver, apply};
//! use setpoint_informer::delta::{Batch, DeltaQueue, KnownObjects};
//! use setpoint_informer::source::scripted::{Answer, Script};
//! use setpoint_informer::source::ListPage;
//! use setpoint_informer::{DeltaFifo, Key, Record, RecordIntake, Reflector, ResourceType};
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
//! let (keys, mut changed) = tokio::sync::mpsc::unbounded_channel(); // a work queue, in earnest
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
use crate::reflector::Reflector;
use futures::FutureExt;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long after a panic of the process function the next batch is taken: 1 s, as client-go
/// (CTL-4).
pub const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Why deltas were not processed.
pub type ProcessError = Box<dyn std::error::Error + Send + Sync>;

/// Takes in what leaves a queue. Closures that take a batch are; a type of its own may wait.
pub trait Process<T>: Send + 'static {
    /// Processes one batch, which is done when it is dropped. One call at a time.
    ///
    /// # Errors
    /// When something could not be processed. It is logged and not tried again (FIFO-20).
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
    /// A controller whose reflector writes to `queue`. It does nothing until it is run.
    pub fn new(reflector: Reflector<T>, queue: Arc<dyn DeltaQueue<T>>, process: P) -> Self {
        Self { reflector, queue, process }
    }

    /// Whether the first list has been processed (FIFO-22).
    pub fn synced(&self) -> Synced {
        self.queue.synced()
    }

    /// Runs until `stop`. The queue is closed then, or when this is dropped.
    ///
    /// # Errors
    /// When somebody else closed the queue.
    ///
    /// # Panics
    /// When the reflector panics (REF-8).
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
            // Without a stop, a stage ends when it finds the queue closed; the consumer takes out
            // what is left first.
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

/// Closes a queue when a controller ends, in whichever way.
struct Close<T: Keyed>(Arc<dyn DeltaQueue<T>>);

impl<T: Keyed> Drop for Close<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Takes batches out of the queue, one after the other. What still waits at `stop` is dropped
/// (CTL-2).
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
        // Also catches what a closure does before it gives its future.
        match AssertUnwindSafe(async { process.process(batch).await }).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("process deltas: {}", crate::status::chain(&*error)),
            Err(_) => {
                tracing::error!("processing deltas panicked; going on with the next ones");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(RESTART_AFTER) => {}
                }
            }
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

#[cfg(test)]
mod tests;
