//! Holding a key until the caches show what its pass wrote: reading one's own writes.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::client::Written;

/// How far a cache has come: its resourceVersion.
type Reached = Box<dyn Fn() -> Arc<str> + Send + Sync>;

/// The caches that a controller watches.
pub(super) struct Caches {
    /// By resource.
    pub(super) watched: Vec<(String, Reached)>,
    /// An event arrived from one of them.
    pub(super) arrived: Arc<Notify>,
}

impl Caches {
    /// Waits until the watched caches have come as far as these writes, or for `max`. Says whether they have. Types that are not watched
    /// are not waited for.
    pub(super) async fn catch_up(&self, written: &Written, max: Duration) -> bool {
        if max.is_zero() || self.show(written) {
            return true;
        }
        let caught_up = async {
            loop {
                let mut arrived = std::pin::pin!(self.arrived.notified());
                // From here on an event wakes this call, also one that comes before the await.
                arrived.as_mut().enable();
                if self.show(written) {
                    return;
                }
                arrived.await;
            }
        };
        tokio::time::timeout(max, caught_up).await.is_ok()
    }

    fn show(&self, written: &Written) -> bool {
        written.0.iter().all(|(resource, version)| {
            let mut of_resource =
                self.watched.iter().filter(|(watched, _)| **watched == **resource);
            of_resource.all(|(_, reached)| {
                reached().parse::<u64>().is_ok_and(|reached| reached >= *version)
            })
        })
    }
}
