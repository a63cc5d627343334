//! Resting a key until the caches show what its pass wrote: the next pass reads its own writes.

use std::pin::pin;

use futures::{StreamExt, stream::FuturesUnordered};
use setpoint_workqueue::RestingItem;
use tokio::time::{Instant, timeout_at};

use super::{stats::count, worker::Worker};
use crate::{request::RequestKey, source::Unshown};

impl<R: RequestKey> Worker<R> {
    /// Keeps a key from its next pass until these caches show what its last one wrote and its
    /// handlers were told of it, so that the events of the writes lead to one pass; or until the
    /// time-out passes or the controller stops.
    pub(super) async fn catch_up(&self, item: RestingItem<R>, unshown: Vec<Unshown>) {
        let deadline = Instant::now() + self.options.catch_up;
        let caught_up = async {
            let mut registrations = Vec::with_capacity(unshown.len());
            let shown = async {
                for Unshown { shown, registration } in unshown {
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
            () = self.home.stopping.cancelled() => {}
            // Cancel safe: it only looks.
            () = caught_up => {}
        }
        item.done();
    }
}

/// Awaits `work`, and meanwhile lets keys rest. Cancel safe if `work` is.
pub(super) async fn beside<T>(
    resting: &mut FuturesUnordered<impl Future<Output = ()>>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        if resting.is_empty() {
            return work.await;
        }
        tokio::select! {
            biased;
            // Cancel safe: it only looks. Before the work, so that keys that have rested are there
            // for it.
            _ = resting.next() => {}
            // Cancel safe: it is pinned outside.
            done = &mut work => return done,
        }
    }
}
