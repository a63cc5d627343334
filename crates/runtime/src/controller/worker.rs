//! A worker: takes a key, has it reconciled, decides when it comes back.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use rand::{Rng, rngs::SmallRng};
use setpoint_object::time::Clock;
use setpoint_workqueue::WorkQueue;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    ControllerError, Options, Shared,
    catch_up::Caches,
    error::{ReconcilePanic, ReconcileTimeout, panic_message},
    stats::count,
};
use crate::{
    client::{Client, Written},
    context::{Context, ReconcileId},
    event::EventRecorder,
    reconciler::{Action, BoxError, Reconciler, Requeue, chain, is_terminal},
    request::RequestKey,
};

/// A reconciler whose type is forgotten.
pub(super) trait DynReconciler<R>: Send + Sync {
    fn reconcile(&self, request: R, context: Context) -> BoxFuture<'_, Result<Action, BoxError>>;
}

pub(super) struct Erased<T>(pub(super) T);

impl<R: RequestKey, T: Reconciler<R>> DynReconciler<R> for Erased<T> {
    fn reconcile(&self, request: R, context: Context) -> BoxFuture<'_, Result<Action, BoxError>> {
        async move { self.0.reconcile(request, context).await.map_err(Into::into) }.boxed()
    }
}

/// What a controller's workers share.
pub(super) struct Worker<R> {
    // Helpers.
    pub(super) reconciler: Arc<dyn DynReconciler<R>>,
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) clock: Clock,
    pub(super) options: Options,

    // Inputs.
    pub(super) queue: WorkQueue<R>,
    pub(super) stop: CancellationToken,
    pub(super) caches: Caches,

    // State.
    pub(super) ids: Mutex<SmallRng>,
    pub(super) shared: Arc<Shared>,
}

/// How a pass ended.
enum Outcome {
    Ok(Action),
    Error(BoxError),
    Panic(String),
    Timeout(ReconcileTimeout),
}

impl<R: RequestKey> Worker<R> {
    /// Reconciles keys until the queue is shut down or the controller is to stop. What is still queued then is left: a start lists anew.
    pub(super) async fn run(&self) -> Result<(), ControllerError> {
        loop {
            let item = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                // Cancel safe: a dropped `get` has taken nothing.
                item = self.queue.get() => item,
            };
            let Some(item) = item else { return Ok(()) };
            let written = self.pass(item.key()).await?;
            // The key was added again before, if it is to come back: its wait has begun.
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                // Cancel safe: it only looks.
                shown = self.caches.catch_up(&written, self.options.catch_up) => if !shown {
                    tracing::debug!(controller = %self.options.name, object = %item.key(), "the caches do not show what was written yet");
                },
            }
            item.done();
        }
    }

    /// One pass over a key; gives what it wrote.
    async fn pass(&self, key: &R) -> Result<Written, ControllerError> {
        let name = &self.options.name;
        let reconcile_id = ReconcileId(self.ids.lock().random());
        let client = self.client.for_pass(name, key.to_string(), reconcile_id);
        let context = Context {
            client: client.clone(),
            recorder: self.recorder.clone(),
            clock: self.clock.clone(),
            stopping: self.stop.clone(),
            controller: name.clone(),
            reconcile_id,
            attempt: self.queue.num_requeues(key),
        };
        let span =
            tracing::info_span!("reconcile", controller = %name, object = %key, id = %reconcile_id);
        let outcome = {
            let _active = self.shared.counters.begin();
            self.reconcile(key.clone(), context).instrument(span.clone()).await
        };
        let _entered = span.enter();
        self.settle(key, outcome)?;
        Ok(client.written())
    }

    async fn reconcile(&self, key: R, context: Context) -> Outcome {
        // The call itself may panic, as well as the future it gives.
        let pass = AssertUnwindSafe(async { self.reconciler.reconcile(key, context).await })
            .catch_unwind();
        let ended = match self.options.reconcile_timeout {
            Some(timeout) => match tokio::time::timeout(timeout, pass).await {
                Ok(ended) => ended,
                Err(_) => return Outcome::Timeout(ReconcileTimeout { timeout }),
            },
            None => pass.await,
        };
        match ended {
            Ok(Ok(action)) => Outcome::Ok(action),
            Ok(Err(error)) => Outcome::Error(error),
            Err(panic) => Outcome::Panic(panic_message(&*panic)),
        }
    }

    /// What happens to the key: the table at [`Action`].
    fn settle(&self, key: &R, outcome: Outcome) -> Result<(), ControllerError> {
        let counters = &self.shared.counters;
        let error: BoxError = match outcome {
            Outcome::Ok(action) => {
                match action.requeue {
                    Requeue::After(delay) if !delay.is_zero() => {
                        self.queue.forget(key);
                        self.queue.add_after(key.clone(), delay);
                        count(&counters.requeue_after);
                    }
                    Requeue::Never | Requeue::After(_) => {
                        self.queue.forget(key);
                        count(&counters.success);
                    }
                    Requeue::RateLimited => {
                        self.queue.add_rate_limited(key.clone());
                        count(&counters.requeue);
                    }
                }
                tracing::debug!(?action, "reconciled");
                return Ok(());
            }
            Outcome::Error(error) => error,
            Outcome::Panic(message) => {
                count(&counters.panics);
                if !self.options.recovers_panics {
                    return Err(ControllerError::Panic {
                        name: self.options.name.clone(),
                        message,
                    });
                }
                ReconcilePanic { message }.into()
            }
            Outcome::Timeout(timeout) => {
                count(&counters.timeouts);
                timeout.into()
            }
        };
        count(&counters.error);
        if is_terminal(&*error) {
            count(&counters.terminal);
            tracing::error!(error = chain(&*error), "reconcile failed for good");
        } else {
            self.queue.add_rate_limited(key.clone());
            tracing::warn!(
                error = chain(&*error),
                attempt = self.queue.num_requeues(key),
                "reconcile failed"
            );
        }
        Ok(())
    }
}
