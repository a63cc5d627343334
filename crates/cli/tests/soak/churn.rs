//! Writers: each has its own objects and counts its writes in them.

use crate::program::Asker;
use rand::distr::{Alphanumeric, SampleString as _};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The collection of the objects.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const EVENTS: &str = "/api/v1/namespaces/default/events";
/// Values of the label `shard`, one for each writer.
pub(crate) const SHARDS: usize = 8;
/// Objects of a shard.
const OBJECTS: usize = 25;
/// Pause between two writes of one writer, long enough for a slow machine.
const PERIOD: Duration = Duration::from_millis(40);
/// Pause between two Events.
const EVENT_PERIOD: Duration = Duration::from_millis(100);
/// Size of an object's value.
pub(crate) const VALUE_BYTES: usize = 4096;

/// The remaining objects of a writer, with the count of each.
pub(crate) type Remaining = BTreeMap<String, u64>;

/// The result of a writer.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub left: Remaining,
    pub n_writes: u64,
    pub slowest: Duration,
}

/// Creates, updates and deletes the objects of a shard until `stop`.
///
/// Adds the number of writes to `n_so_far`.
pub(crate) async fn write(
    shard: usize,
    asker: Asker,
    n_so_far: Arc<AtomicU64>,
    stop: CancellationToken,
) -> Written {
    let mut rng = SmallRng::seed_from_u64(shard as u64);
    let mut written = Written::default();
    let (mut counts, mut revisions) = (BTreeMap::<String, u64>::new(), BTreeMap::new());
    let mut pace = pace(PERIOD);
    while !stop.is_cancelled() {
        pace.tick().await;
        let name = format!("s{shard}-{}", rng.random_range(0..OBJECTS));
        let path = format!("{MAPS}/{name}");
        let started = Instant::now();
        match revisions.get(&name) {
            Some(_) if rng.random_bool(0.15) => {
                asker.ask("DELETE", &path, &Value::Null).await;
                revisions.remove(&name);
                written.left.remove(&name);
            }
            at => {
                let n = counts.entry(name.clone()).or_default();
                *n += 1;
                // Hardly compressible.
                let payload = Alphanumeric.sample_string(&mut rng, VALUE_BYTES);
                let mut map = json!({
                    "metadata": {"name": name, "labels": {"shard": shard.to_string()}},
                    "data": {"n": n.to_string(), "payload": payload},
                });
                let answer = match at {
                    Some(at) => {
                        map["metadata"]["resourceVersion"] = Value::clone(at);
                        asker.ask("PUT", &path, &map).await
                    }
                    None => asker.ask("POST", MAPS, &map).await,
                };
                written.left.insert(name.clone(), *n);
                revisions.insert(name, answer["metadata"]["resourceVersion"].clone());
            }
        }
        written.n_writes += 1;
        n_so_far.fetch_add(1, Ordering::Relaxed);
        written.slowest = written.slowest.max(started.elapsed());
    }
    written
}

/// Creates Events until `stop`; returns their number.
pub(crate) async fn create_events(asker: Asker, stop: CancellationToken) -> u64 {
    let mut pace = pace(EVENT_PERIOD);
    let mut n = 0;
    while !stop.is_cancelled() {
        pace.tick().await;
        n += 1;
        let about = json!({"kind": "ConfigMap", "namespace": "default", "name": "s0-0"});
        let event = json!({
            "metadata": {"name": format!("e{n}")}, "involvedObject": about, "reason": "Soaked", "message": "x".repeat(500),
        });
        asker.ask("POST", EVENTS, &event).await;
    }
    n
}

/// A ticker that does not catch up after the machine was slow.
fn pace(period: Duration) -> Interval {
    let mut pace = interval(period);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}
