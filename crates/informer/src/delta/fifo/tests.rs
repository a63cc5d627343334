use super::*;
use crate::delta::DELTAS_MAX;
use crate::delta::tests::{Kind, Line as Bench, added, deleted, list, show, updated};
use crate::record::Record;
use crate::testing::record;
use futures::FutureExt;

fn pop(queue: &OrderedFifo<Record>) -> Vec<String> {
    show(&queue.pop_batch().now_or_never().unwrap().unwrap().deltas)
}

fn put(queue: &OrderedFifo<Record>, deltas: impl IntoIterator<Item = Delta<Record>>) {
    for delta in deltas {
        assert_eq!(queue.offer(delta), Ok(None));
    }
}

#[test]
fn fifo_15_a_batch_stops_before_a_repeated_key() {
    let queue = OrderedFifo::new();
    put(&queue, ["a", "b", "a", "c"].map(|name| updated(name, 1)));
    assert_eq!(pop(&queue), ["~a@1", "~b@1"]);
    assert_eq!(pop(&queue), ["~a@1", "~c@1"]);
    assert!(queue.pop_batch().now_or_never().is_none(), "the reader of an empty queue waits");
    // A popped delta is not in the next batch.
    put(&queue, [updated("c", 2), updated("a", 2)]);
    assert_eq!(pop(&queue), ["~c@2", "~a@2"]);
}

#[test]
fn fifo_15_a_batch_has_at_most_a_thousand() {
    let queue = OrderedFifo::new();
    put(&queue, (0..DELTAS_MAX).map(|n| updated(&n.to_string(), 1)));
    assert_eq!((pop(&queue).len(), pop(&queue).len()), (BATCH_MAX, BATCH_MAX));
}

#[test]
fn fifo_14_fifo_15_whole_cache_deltas_come_as_they_are_and_alone() {
    let queue = OrderedFifo::new();
    let bookmark = Delta::Bookmark { resource_version: "2".into() };
    put(&queue, [list(&[("a", 1)]), updated("a", 2), Delta::SyncAll, bookmark, updated("b", 3)]);
    let batches: Vec<_> = (0..5).map(|_| pop(&queue)).collect();
    assert_eq!(batches, [["[a@1]"], ["~a@2"], ["**"], ["#2"], ["~b@3"]]);
}

#[test]
fn fifo_10_fifo_11_every_event_is_delivered_even_the_deletion_of_an_unknown_object() {
    for kind in [Kind::Atomic, Kind::Ordered] {
        let bench = Bench::new(kind);
        for delta in [deleted("x", 1), deleted("x", 2), updated("a", 3), updated("a", 3)] {
            assert!(bench.offer(delta));
        }
        let all: Vec<String> =
            std::iter::from_fn(|| bench.pop()).flat_map(|batch| show(&batch.deltas)).collect();
        assert_eq!(all, ["-x@1", "-x@2", "~a@3", "~a@3"]);
    }
}

#[test]
fn fifo_12_tombstones_come_first_and_queued_keys_before_stored_ones() {
    let bench = Bench::new(Kind::Ordered);
    for name in ["old", "both", "kept"] {
        assert!(bench.offer(added(name, 1)));
    }
    bench.process();
    for delta in [updated("both", 2), added("queue", 2), added("dead", 2), deleted("dead", 3)] {
        assert!(bench.offer(delta));
    }
    assert!(bench.offer(list(&[("kept", 1), ("new", 4)])));
    let all: Vec<String> =
        std::iter::from_fn(|| bench.pop()).flat_map(|batch| show(&batch.deltas)).collect();
    let waited = ["~both@2", "+queue@2", "+dead@2", "-dead@3"];
    let gone = ["-both@2?", "-queue@2?", "-old@1?"];
    assert_eq!(all, [&waited[..], &gone, &["=kept@1", "=new@4"]].concat());
}

#[test]
fn fifo_13_resync_skips_keys_with_queued_deltas() {
    let bench = Bench::new(Kind::Ordered);
    for name in ["a", "b"] {
        assert!(bench.offer(added(name, 1)));
    }
    bench.process();
    assert!(bench.offer(updated("a", 2)) && bench.offer(Delta::SyncAll));
    assert_eq!(show(&bench.pop().unwrap().deltas), ["~a@2", "*b@1"]);
}

#[test]
fn fifo_14_ordered_queue_drops_bookmarks() {
    let bench = Bench::new(Kind::Ordered);
    assert!(bench.offer(Delta::Bookmark { resource_version: "1".into() }));
    assert!(bench.pop().is_none());
}

#[test]
fn fifo_17_memory_of_a_burst_is_freed() {
    let mut line = Batches {
        hasher: DefaultHashBuilder::default(),
        known: None,
        batches: VecDeque::new(),
        hashes: HashTable::new(),
        is_open: false,
        n_deltas: 0,
        is_populated: false,
    };
    for _ in 0..DELTAS_MAX {
        line.take(Delta::<Record>::SyncAll, None);
    }
    for n in 0..BATCH_MAX {
        line.take(Delta::Updated(record(&n.to_string(), 1)), Some(n as u64));
    }
    while line.pop().is_some() {}
    assert!(line.batches.capacity() <= IDLE_CAPACITY_MAX, "{}", line.batches.capacity());
    assert!(line.hashes.is_empty() && line.hashes.capacity() <= 4 * BATCH_MAX);
    assert_eq!(line.len(), 0);
}

/// Two keys with one hash: the batch ends, and nothing is lost.
#[test]
fn fifo_15_a_collision_of_hashes_only_ends_a_batch_early() {
    let mut line = Batches {
        hasher: DefaultHashBuilder::default(),
        known: None,
        batches: VecDeque::new(),
        hashes: HashTable::new(),
        is_open: false,
        n_deltas: 0,
        is_populated: false,
    };
    for name in ["a", "b"] {
        line.take(updated(name, 1), Some(7));
    }
    let batches: Vec<_> =
        std::iter::from_fn(|| line.pop()).map(|popped| show(&popped.deltas)).collect();
    assert_eq!(batches, [["~a@1"], ["~b@1"]]);
}
