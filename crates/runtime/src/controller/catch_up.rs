//! Holding a key until the caches show what its pass wrote: reading one's own writes.

use std::time::Duration;

use crate::{client::Written, request::RequestKey, source::Sources};

/// Waits until the watched caches have come as far as these writes, or for `max`. Says whether they
/// have. Types that are not watched are not waited for.
pub(super) async fn catch_up<R: RequestKey>(
    sources: &Sources<R>,
    written: &Written,
    max: Duration,
) -> bool {
    let show = || {
        let mut written = written.0.iter();
        written
            .all(|((resource, namespace), version)| sources.reached(resource, namespace, *version))
    };
    if max.is_zero() || show() {
        return true;
    }
    let caught_up = async {
        loop {
            let mut arrived = std::pin::pin!(sources.arrived().notified());
            // From here on an event wakes this call, also one that comes before the await.
            arrived.as_mut().enable();
            if show() {
                return;
            }
            arrived.await;
        }
    };
    tokio::time::timeout(max, caught_up).await.is_ok()
}
