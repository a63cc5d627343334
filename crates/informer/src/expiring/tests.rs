use super::*;
use crate::controller::apply;
use crate::delta::{Delta, DeltaFifo, DeltaQueue};
use crate::record::Record;
use crate::testing::record;
use futures::FutureExt;
use std::sync::Arc;
use tokio::time::advance;

const TTL: Duration = Duration::from_secs(10);

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn shown(objects: &[Record]) -> Vec<String> {
    objects
        .iter()
        .map(|object| format!("{}@{}", object.key.name, object.resource_version))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn fac_10_expired_object_is_removed_by_a_read() {
    let store = ExpiringStore::new(TTL);
    assert!(store.put(record("a", 1)).is_none());
    advance(TTL / 2).await;
    store.put(record("b", 1));
    advance(TTL / 2 - Duration::from_millis(1)).await;
    assert_eq!(shown(&store.list()), ["a@1", "b@1"]);
    advance(Duration::from_millis(1)).await;
    assert!(store.get(&key("a")).is_none());
    assert_eq!((store.keys(), store.len()), (vec![key("b")], 1));
    assert!(store.remove(&key("a")).is_none());
}

#[tokio::test(start_paused = true)]
async fn longest_time_to_live_is_for_ever() {
    let store = ExpiringStore::new(Duration::MAX);
    store.put(record("a", 1));
    advance(TTL * 1_000_000).await;
    assert_eq!(shown(&store.list()), ["a@1"]);
}

#[tokio::test(start_paused = true)]
async fn fac_10_time_counts_from_the_last_insertion() {
    let store = ExpiringStore::new(TTL);
    store.put(record("a", 1));
    advance(TTL - Duration::from_millis(1)).await;
    assert_eq!(store.put(record("a", 2)).map(|old| old.resource_version), Some("1".into()));
    advance(TTL - Duration::from_millis(1)).await;
    assert_eq!(shown(&store.list()), ["a@2"]);
    advance(TTL).await;
    assert!(store.put(record("a", 3)).is_none(), "an expired object is not returned");
}

#[tokio::test(start_paused = true)]
async fn fac_10_full_store_removes_the_object_that_expires_first() {
    let store = ExpiringStore::new(TTL).objects_max(2);
    for (name, version) in [("a", 1), ("b", 1), ("a", 2), ("c", 1)] {
        store.put(record(name, version));
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(shown(&store.list()), ["a@2", "c@1"]);
    store.put(record("a", 3));
    assert_eq!(shown(&store.list()), ["a@3", "c@1"], "replacing an object evicts no other");
    assert_eq!(store.replace(["x", "y", "z"].map(|name| record(name, 1)).into()).len(), 2);
    assert_eq!(shown(&store.list()), ["y@1", "z@1"]);
    let state = store.state.lock();
    assert_eq!((state.objects.len(), state.by_end.len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn fac_10_it_can_be_the_store_of_a_queue() {
    let store = Arc::new(ExpiringStore::new(TTL));
    let queue = DeltaFifo::new(store.clone());
    let list = |items: Vec<Record>| Delta::ReplacedAll { items, resource_version: "1".into() };
    for delta in [list(vec![record("a", 1), record("b", 1)]), list(vec![record("b", 2)])] {
        assert_eq!(queue.offer(delta), Ok(None));
        while let Some(batch) = queue.pop_batch().now_or_never().flatten() {
            apply(batch, &mut &*store, |_| {});
        }
    }
    assert_eq!(shown(&store.list()), ["b@2"]);
}
