//! A store with network latency: calls and batches are delayed, so that operations interleave.

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint::store::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// A store with latency.
#[derive(Debug, Clone)]
pub(crate) struct Distant {
    inner: Arc<dyn Store>,
    wire: Arc<Wire>,
}

#[derive(Debug)]
struct Wire {
    rng: Mutex<SmallRng>,
    /// The maximum latency in one direction.
    way_max: Duration,
    /// The maximum additional latency of a batch of a feed.
    feed_lag_max: Duration,
}

impl Wire {
    async fn way(&self) {
        let way = random_delay(&mut self.rng.lock().unwrap(), self.way_max);
        tokio::time::sleep(way).await;
    }
}

fn random_delay(rng: &mut SmallRng, max: Duration) -> Duration {
    let max = u64::try_from(max.as_micros()).unwrap();
    // Most latencies are short, so that later calls overtake long ones.
    let max = if rng.random_bool(0.7) { max / 8 } else { max };
    Duration::from_micros(rng.random_range(0..=max))
}

impl Distant {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        seed: u64,
        way_max: Duration,
        feed_lag_max: Duration,
    ) -> Self {
        let rng = Mutex::new(SmallRng::seed_from_u64(seed));
        Self { inner, wire: Arc::new(Wire { rng, way_max, feed_lag_max }) }
    }
}

impl Store for Distant {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async {
            self.wire.way().await;
            let answer = self.inner.revision().await;
            self.wire.way().await;
            answer
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move {
            self.wire.way().await;
            let answer = self.inner.get(key, at).await;
            self.wire.way().await;
            answer
        }
        .boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move {
            self.wire.way().await;
            let answer = self.inner.range(request).await;
            self.wire.way().await;
            answer
        }
        .boxed()
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            self.wire.way().await;
            let answer = self.inner.commit(txn).await;
            self.wire.way().await;
            answer
        }
        .boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            let feed = self.inner.changes(prefix, after).await?;
            let lag_max = self.wire.feed_lag_max;
            // A separate generator, because feeds wake in no particular order.
            let rng = SmallRng::from_rng(&mut *self.wire.rng.lock().unwrap());
            Ok(Box::new(DistantFeed { feed, rng, lag_max, under_way: None }) as Box<dyn ChangeFeed>)
        }
        .boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.compact(revision)
    }
}

struct DistantFeed {
    feed: Box<dyn ChangeFeed>,
    rng: SmallRng,
    lag_max: Duration,
    /// The batch in flight and its arrival time.
    under_way: Option<(Instant, Batch)>,
}

impl ChangeFeed for DistantFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            if self.under_way.is_none() {
                let batch = self.feed.next().await?;
                let arrival = Instant::now() + random_delay(&mut self.rng, self.lag_max);
                self.under_way = Some((arrival, batch));
            }
            // Cancel safe: a batch in flight stays in flight.
            if let Some((arrival, _)) = &self.under_way {
                tokio::time::sleep_until(*arrival).await;
            }
            Ok(self.under_way.take().map(|(_, batch)| batch).unwrap_or_default())
        }
        .boxed()
    }
}
