use super::*;
use crate::delta::{self, DELTAS_MAX};
use crate::record::Record;
use crate::testing::record;
use futures::FutureExt;
use proptest::prelude::*;

fn updated(name: &str) -> Delta<Record> {
    Delta::Updated(record(name, 1))
}

fn names(batch: &[Delta<Record>]) -> Vec<String> {
    batch
        .iter()
        .map(|delta| match delta {
            Delta::Added(Record { key, .. })
            | Delta::Updated(Record { key, .. })
            | Delta::Deleted(Record { key, .. }) => key.name.to_string(),
            other => format!("{other:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
        })
        .collect()
}

fn push(queue: &OrderedFifo<Record>, delta: Delta<Record>) {
    delta::push(queue, delta).now_or_never().unwrap().unwrap();
}

fn pop(queue: &OrderedFifo<Record>) -> Vec<String> {
    names(&queue.pop_batch().now_or_never().unwrap().unwrap().deltas)
}

#[test]
fn fifo_15_a_batch_stops_before_a_repeated_key() {
    let queue = OrderedFifo::new();
    for name in ["a", "b", "a", "c"] {
        push(&queue, updated(name));
    }
    assert_eq!(pop(&queue), ["a", "b"]);
    assert_eq!(pop(&queue), ["a", "c"]);
    assert!(queue.pop_batch().now_or_never().is_none(), "an empty queue makes the reader wait");
}

#[test]
fn fifo_14_15_whole_cache_deltas_come_alone() {
    let queue = OrderedFifo::new();
    push(&queue, Delta::ReplacedAll { items: vec![record("a", 1)], resource_version: "1".into() });
    push(&queue, updated("a"));
    push(&queue, Delta::SyncAll);
    push(&queue, Delta::Bookmark { resource_version: "2".into() });
    push(&queue, updated("b"));
    let batches: Vec<_> = (0..5).map(|_| pop(&queue)).collect();
    assert_eq!(batches, [["ReplacedAll"], ["a"], ["SyncAll"], ["Bookmark"], ["b"]]);
}

#[test]
fn fifo_16_a_full_queue_holds_up_the_writer_until_a_batch_has_left() {
    let queue = OrderedFifo::new();
    for n in 0..DELTAS_MAX {
        push(&queue, updated(&n.to_string()));
    }
    let mut waiting = Box::pin(delta::push(&queue, updated("late")));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(pop(&queue).len(), BATCH_MAX);
    waiting.now_or_never().expect("there is room").unwrap();
    assert_eq!(queue.len(), DELTAS_MAX - BATCH_MAX + 1);
}

#[test]
fn fifo_20_a_closed_queue_gives_what_is_left_and_takes_nothing() {
    let queue = OrderedFifo::new();
    push(&queue, updated("a"));
    queue.close();
    assert_eq!(delta::push(&queue, updated("b")).now_or_never().unwrap(), Err(QueueClosed));
    assert_eq!(pop(&queue), ["a"]);
    assert!(queue.pop_batch().now_or_never().unwrap().is_none());
}

#[test]
fn closing_wakes_a_reader_and_a_writer_that_wait() {
    let queue = OrderedFifo::<Record>::new();
    let mut reader = Box::pin(queue.pop_batch());
    assert!(reader.as_mut().now_or_never().is_none());
    queue.close();
    assert!(reader.now_or_never().expect("woken").is_none());

    let queue = OrderedFifo::<Record>::new();
    for n in 0..DELTAS_MAX {
        push(&queue, updated(&n.to_string()));
    }
    let mut writer = Box::pin(delta::push(&queue, updated("late")));
    assert!(writer.as_mut().now_or_never().is_none());
    queue.close();
    assert_eq!(writer.now_or_never().expect("woken"), Err(QueueClosed));
}

proptest! {
    /// Invariant 15: batches have distinct keys and joined together are what was pushed.
    #[test]
    fn invariant_15_batches_are_the_sequence_cut_into_distinct_keys(
        keys in prop::collection::vec(0_u8..6, 0..60),
    ) {
        let queue = OrderedFifo::new();
        let pushed: Vec<String> = keys.iter().map(u8::to_string).collect();
        for name in &pushed {
            push(&queue, updated(name));
        }
        let mut joined = Vec::new();
        while !queue.is_empty() {
            let batch = pop(&queue);
            let distinct = batch.iter().collect::<HashSet<&String>>().len();
            prop_assert_eq!(distinct, batch.len());
            joined.extend(batch);
        }
        prop_assert_eq!(joined, pushed);
    }
}
