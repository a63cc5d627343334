use super::*;
use crate::delta::DELTAS_MAX;
use crate::delta::tests::{Kind, Line as Bench, Store, added, deleted, list, show, updated};
use crate::record::Record;
use crate::testing::record;

fn batches(bench: &Bench) -> Vec<Vec<String>> {
    std::iter::from_fn(|| bench.pop()).map(|batch| show(&batch.deltas)).collect()
}

fn put(bench: &Bench, deltas: impl IntoIterator<Item = Delta<Record>>) {
    for delta in deltas {
        assert!(bench.offer(delta));
    }
}

fn missed(name: &str, version: u64) -> Delta<Record> {
    let object = record(name, version);
    Delta::DeletedFinalStateUnknown { key: object.key.clone(), last_known: Some(object) }
}

#[test]
fn fifo_1_slots_are_popped_whole_in_the_order_of_their_first_delta() {
    let bench = Bench::new(Kind::Keyed);
    put(&bench, [added("a", 1), added("b", 2), updated("a", 3), added("c", 4), added("d", 5)]);
    assert_eq!(batches(&bench), [vec!["+a@1", "~a@3"], vec!["+b@2", "+c@4", "+d@5"]]);
    // A key whose slot was popped is appended again.
    put(&bench, [added("b", 6), updated("a", 7)]);
    assert_eq!(batches(&bench), [["+b@6", "~a@7"]]);
}

#[test]
fn fifo_2_only_consecutive_deletions_merge_and_the_watched_one_stays() {
    for (deltas, left) in [
        (vec![added("a", 1), deleted("a", 2), deleted("a", 3)], "+a@1 -a@2"),
        (vec![added("a", 1), deleted("a", 2), missed("a", 1)], "+a@1 -a@2"),
        (vec![added("a", 1), missed("a", 1), deleted("a", 3)], "+a@1 -a@3"),
        (vec![added("a", 1), missed("a", 1), missed("a", 2)], "+a@1 -a@2?"),
        (vec![updated("a", 1), updated("a", 1), updated("a", 2)], "~a@1 ~a@1 ~a@2"),
        (
            vec![added("a", 1), deleted("a", 2), added("a", 3), deleted("a", 4)],
            "+a@1 -a@2 +a@3 -a@4",
        ),
    ] {
        let bench = Bench::new(Kind::Keyed);
        put(&bench, deltas);
        assert_eq!(bench.queue.len(), left.split(' ').count());
        assert_eq!(batches(&bench), [left.split(' ').collect::<Vec<_>>()]);
    }
}

#[test]
fn fifo_3_deletion_of_an_unknown_key_is_dropped() {
    let bench = Bench::new(Kind::Keyed);
    put(&bench, [deleted("x", 1), added("a", 2)]);
    bench.process();
    put(&bench, [deleted("x", 3), deleted("a", 4), added("b", 5), deleted("b", 6)]);
    assert_eq!(batches(&bench), [vec!["-a@4"], vec!["+b@5", "-b@6"]]);
}

#[test]
fn fifo_4_list_items_come_before_tombstones_of_queued_and_stored_keys() {
    let bench = Bench::new(Kind::Keyed);
    put(&bench, ["old", "both", "kept"].map(|name| added(name, 1)));
    bench.process();
    put(&bench, [updated("both", 2), added("queue", 2), added("dead", 2), deleted("dead", 3)]);
    put(&bench, [list(&[("kept", 1), ("new", 4)])]);
    let expected = [
        vec!["~both@2", "-both@2?"],
        vec!["+queue@2", "-queue@2?"],
        vec!["+dead@2", "-dead@3"],
        vec!["=kept@1", "=new@4", "-old@1?"],
    ];
    assert_eq!(batches(&bench), expected);
}

#[test]
fn fifo_4_a_tombstone_without_an_object_when_the_lookup_fails() {
    struct Forgetful;
    impl KnownObjects<Record> for Forgetful {
        fn keys(&self) -> Vec<Key> {
            vec![Key::cluster("a")]
        }
        fn get(&self, _key: &Key) -> Option<Record> {
            None
        }
    }
    let queue = DeltaFifo::new(Arc::new(Forgetful));
    assert_eq!(queue.offer(list(&[])), Ok(None));
    let batch = queue.pop_batch().now_or_never().flatten().unwrap();
    assert_eq!(show(&batch.deltas), ["-a?"]);
}

#[test]
fn fifo_5_resync_skips_keys_with_queued_deltas() {
    let bench = Bench::new(Kind::Keyed);
    put(&bench, [added("a", 1), added("b", 1)]);
    bench.process();
    put(&bench, [updated("a", 2), Delta::SyncAll, Delta::SyncAll]);
    assert_eq!(batches(&bench), [["~a@2", "*b@1"]]);
}

#[test]
fn fifo_17_memory_of_a_burst_is_freed() {
    let mut slots = Slots {
        known: Arc::new(Store::default()),
        slots: VecDeque::new(),
        numbers: HashMap::new(),
        first: 0,
        n_deltas: 0,
        is_populated: false,
        n_initial: 0,
    };
    for n in 0..2 * DELTAS_MAX {
        slots.take(added(&n.to_string(), 1), None);
    }
    while slots.pop().is_some() {}
    assert!(slots.slots.capacity() <= BATCH_MAX && slots.numbers.capacity() <= BATCH_MAX);
    assert_eq!(slots.len(), 0);
}
