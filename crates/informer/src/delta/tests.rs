//! Tests of all kinds and modes of queues.
mod model;
mod server;

use super::{
    BATCH_MAX, Batch, DELTAS_MAX, Delta, DeltaFifo, DeltaQueue, KnownObjects, OrderedFifo,
    QueueClosed, push,
};
use crate::controller::{Change, apply};
use crate::key::Key;
use crate::record::Record;
use crate::testing::record;
use futures::FutureExt;
use futures::future::join_all;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Atomic,
    Ordered,
    Keyed,
}

const KINDS: [Kind; 3] = [Kind::Atomic, Kind::Ordered, Kind::Keyed];

/// A custom store.
#[derive(Debug, Default)]
pub(super) struct Store(pub(super) Mutex<BTreeMap<Key, Record>>);

impl KnownObjects<Record> for Store {
    fn keys(&self) -> Vec<Key> {
        self.0.lock().keys().cloned().collect()
    }

    fn get(&self, key: &Key) -> Option<Record> {
        self.0.lock().get(key).cloned()
    }
}

/// A queue with its store.
pub(super) struct Line {
    pub(super) queue: Arc<dyn DeltaQueue<Record>>,
    pub(super) store: Arc<Store>,
}

impl Line {
    pub(super) fn new(kind: Kind) -> Self {
        let store = Arc::new(Store::default());
        let queue: Arc<dyn DeltaQueue<Record>> = match kind {
            Kind::Atomic => Arc::new(OrderedFifo::new()),
            Kind::Ordered => Arc::new(OrderedFifo::with_known_objects(store.clone())),
            Kind::Keyed => Arc::new(DeltaFifo::new(store.clone())),
        };
        Self { queue, store }
    }

    /// Creates a queue whose store has these objects.
    fn holding(kind: Kind, objects: &[(&str, u64)]) -> Self {
        let line = Self::new(kind);
        for (name, version) in objects {
            let object = record(name, *version);
            line.store.0.lock().insert(object.key.clone(), object);
        }
        line
    }

    pub(super) fn offer(&self, delta: Delta<Record>) -> bool {
        self.queue.offer(delta).unwrap().is_none()
    }

    fn put(&self, deltas: impl IntoIterator<Item = Delta<Record>>) {
        for delta in deltas {
            assert!(self.offer(delta), "the queue accepts the delta");
        }
    }

    pub(super) fn pop(&self) -> Option<Batch<Record>> {
        self.queue.pop_batch().now_or_never().flatten()
    }

    /// The content of all remaining batches, none of which is processed.
    fn pop_all(&self) -> Vec<Vec<String>> {
        std::iter::from_fn(|| self.pop().map(|batch| show(&batch.deltas))).collect()
    }

    /// Processes everything, and returns the changes.
    pub(super) fn process(&self) -> Vec<Change<Record>> {
        let mut changes = Vec::new();
        while let Some(batch) = self.pop() {
            apply(batch, &mut *self.store.0.lock(), |change| changes.push(change));
        }
        changes
    }

    /// The store: `name@version` of each object.
    fn held(&self) -> Vec<String> {
        self.store.0.lock().values().map(name_and_version).collect()
    }
}

pub(super) fn added(name: &str, version: u64) -> Delta<Record> {
    Delta::Added(record(name, version))
}

pub(super) fn updated(name: &str, version: u64) -> Delta<Record> {
    Delta::Updated(record(name, version))
}

pub(super) fn deleted(name: &str, version: u64) -> Delta<Record> {
    Delta::Deleted(record(name, version))
}

pub(super) fn list(items: &[(&str, u64)]) -> Delta<Record> {
    let items = items.iter().map(|(name, version)| record(name, *version)).collect();
    Delta::ReplacedAll { items, resource_version: "9".into() }
}

fn name_and_version(record: &Record) -> String {
    format!("{}@{}", record.key.name, record.resource_version)
}

/// `+a@1` added, `~a@1` updated, `-a@1` deleted, `-a@1?` missed, `=a@1` of a list, `*a@1` of a
/// resync, `[a@1 b@1]`, `**`, `#1`.
pub(super) fn show(deltas: &[Delta<Record>]) -> Vec<String> {
    deltas
        .iter()
        .map(|delta| match delta {
            Delta::Added(object) => format!("+{}", name_and_version(object)),
            Delta::Updated(object) => format!("~{}", name_and_version(object)),
            Delta::Deleted(object) => format!("-{}", name_and_version(object)),
            Delta::DeletedFinalStateUnknown { last_known: Some(object), .. } => {
                format!("-{}?", name_and_version(object))
            }
            Delta::DeletedFinalStateUnknown { key, last_known: None } => format!("-{}?", key.name),
            Delta::Replaced(object) => format!("={}", name_and_version(object)),
            Delta::Sync(object) => format!("*{}", name_and_version(object)),
            Delta::ReplacedAll { items, .. } => {
                format!("[{}]", items.iter().map(name_and_version).collect::<Vec<_>>().join(" "))
            }
            Delta::SyncAll => "**".into(),
            Delta::Bookmark { resource_version } => format!("#{resource_version}"),
        })
        .collect()
}

#[test]
fn fifo_26_key_of_a_delta_is_that_of_its_tombstone_or_object() {
    let tombstone = |name: &str, last_known| Delta::DeletedFinalStateUnknown {
        key: Key::new("ns", name),
        last_known,
    };
    for delta in [
        added("a", 1),
        updated("a", 1),
        deleted("a", 1),
        Delta::Replaced(record("a", 1)),
        Delta::Sync(record("a", 1)),
        tombstone("a", None),
        tombstone("a", Some(record("other", 1))),
    ] {
        assert_eq!(delta.key(), Some(&Key::new("ns", "a")), "{delta:?}");
    }
    let bookmark = Delta::Bookmark { resource_version: "1".into() };
    for delta in [list(&[("a", 1)]), Delta::SyncAll, bookmark] {
        assert_eq!((delta.key(), delta.item()), (None, None));
    }
}

#[test]
fn fifo_20_closed_queue_returns_its_content_and_accepts_nothing() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put([updated("a", 1)]);
        line.queue.close();
        assert_eq!(line.queue.offer(updated("b", 1)), Err(QueueClosed), "{kind:?}");
        assert_eq!(line.pop_all(), [["~a@1"]], "{kind:?}");
        assert!(line.queue.pop_batch().now_or_never().unwrap().is_none(), "{kind:?}");
    }
}

#[test]
fn fifo_20_failed_batch_is_not_queued_again() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put([added("a", 1)]);
        drop(line.pop().unwrap());
        assert!(line.queue.is_empty() && line.pop().is_none(), "{kind:?}");
    }
}

#[test]
fn closing_wakes_a_reader_and_a_writer_that_wait() {
    for kind in KINDS {
        let line = Line::new(kind);
        let mut reader = Box::pin(line.queue.pop_batch());
        assert!(reader.as_mut().now_or_never().is_none(), "{kind:?}");
        line.queue.close();
        assert!(reader.now_or_never().expect("woken").is_none(), "{kind:?}");

        let line = Line::new(kind);
        line.put((0..DELTAS_MAX).map(|n| updated(&n.to_string(), 1)));
        let mut writer = Box::pin(push(&*line.queue, updated("late", 1)));
        assert!(writer.as_mut().now_or_never().is_none(), "{kind:?}");
        line.queue.close();
        assert_eq!(writer.now_or_never().expect("woken"), Err(QueueClosed), "{kind:?}");
    }
}

#[test]
fn fifo_15_fifo_16_full_queue_blocks_the_writer_until_a_batch_is_popped() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put((0..DELTAS_MAX).map(|n| updated(&n.to_string(), 1)));
        let mut writer = Box::pin(push(&*line.queue, updated("late", 1)));
        assert!(writer.as_mut().now_or_never().is_none(), "{kind:?}");
        let batch = line.pop().unwrap();
        assert_eq!(batch.deltas.len(), BATCH_MAX, "{kind:?}");
        writer.now_or_never().expect("there is room").unwrap();
        assert_eq!(line.queue.len(), DELTAS_MAX - BATCH_MAX + 1, "{kind:?}");
    }
}

/// A reflector pushes changes and resyncs from one task.
#[test]
fn fifo_16_every_waiting_writer_is_woken() {
    for kind in KINDS {
        for closes in [false, true] {
            let line = Line::new(kind);
            line.put((0..DELTAS_MAX).map(|n| updated(&n.to_string(), 1)));
            let mut writers = ["late", "later"].map(|name| {
                let queue = line.queue.clone();
                let mut writer = async move { push(&*queue, updated(name, 1)).await }.boxed();
                assert!(writer.as_mut().now_or_never().is_none(), "{kind:?}");
                writer
            });
            if closes {
                line.queue.close();
            } else {
                drop(line.pop());
            }
            for writer in &mut writers {
                let pushed = writer.now_or_never().expect("woken");
                assert_eq!(pushed.is_err(), closes, "{kind:?}");
            }
        }
    }
}

#[test]
fn fifo_16_fifo_21_deltas_that_need_the_store_wait_for_the_batch_in_process() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put([added("a", 1)]);
        let batch = line.pop().unwrap();
        let needs_store = kind != Kind::Atomic;
        line.put([added("b", 1)]);
        assert_eq!(line.offer(list(&[("a", 1)])), !needs_store, "{kind:?}");
        let mut writer = Box::pin(push(&*line.queue, Delta::SyncAll));
        assert_eq!(writer.as_mut().now_or_never().is_none(), needs_store, "{kind:?}");
        apply(batch, &mut *line.store.0.lock(), |_| {});
        if needs_store {
            writer.now_or_never().expect("processed").unwrap();
        }
    }
    // A deletion of a key that only the batch has. If it were dropped because the store lacks the
    // key, it would be lost (FIFO-3).
    let line = Line::new(Kind::Keyed);
    line.put([added("a", 1)]);
    let batch = line.pop().unwrap();
    assert!(!line.offer(deleted("a", 2)));
    apply(batch, &mut *line.store.0.lock(), |_| {});
    line.put([deleted("a", 2)]);
    line.process();
    assert!(line.held().is_empty());
}

#[test]
fn fifo_22_a_first_write_of_one_object_counts_as_synced_at_once() {
    for kind in KINDS {
        for first in [added("a", 1), updated("a", 1), deleted("a", 1)] {
            let line = Line::new(kind);
            line.put([Delta::SyncAll, Delta::Bookmark { resource_version: "1".into() }]);
            assert!(!line.queue.synced().get(), "{kind:?}");
            line.put([first]);
            assert!(line.queue.synced().get(), "{kind:?}");
        }
    }
}

#[test]
fn fifo_22_synced_once_the_first_list_is_processed_with_its_tombstones() {
    for kind in KINDS {
        let line = Line::holding(kind, &[("gone", 1)]);
        let synced = line.queue.synced();
        line.put([list(&[("a", 1), ("b", 2)]), added("c", 3)]);
        let mut n_initial = 0;
        while let Some(batch) = line.pop() {
            if batch.in_initial_list {
                n_initial += batch.deltas.len();
                assert!(!synced.get(), "popped deltas are not processed yet: {kind:?}");
            } else {
                assert!(synced.get(), "{kind:?}");
            }
            apply(batch, &mut *line.store.0.lock(), |_| {});
        }
        assert_eq!(n_initial, if kind == Kind::Atomic { 1 } else { 3 }, "{kind:?}");
        assert_eq!(line.held(), ["a@1", "b@2", "c@3"], "{kind:?}");
        line.put([list(&[])]);
        assert!(synced.get(), "never reverts: {kind:?}");
    }
}

#[test]
fn fifo_22_an_empty_first_list_is_a_list() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put([list(&[])]);
        line.process();
        assert!(line.queue.synced().get(), "{kind:?}");
    }
}

#[test]
fn fifo_22_a_batch_that_panics_or_is_dropped_counts_as_processed() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put([list(&[("a", 1)])]);
        let batch = line.pop().unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for delta in batch {
                assert!(delta.is_deletion(), "a reader that panics");
            }
        }));
        assert!(caught.is_err() && line.queue.synced().get(), "{kind:?}");
    }
}

#[tokio::test]
async fn fifo_22_any_number_of_tasks_may_await_it_at_any_time() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put([list(&[("a", 1)])]);
        let synced = line.queue.synced();
        let mut waiting = Box::pin(join_all((0..100).map(|_| synced.wait())));
        assert!(waiting.as_mut().now_or_never().is_none(), "{kind:?}");
        line.process();
        assert!(waiting.await.iter().all(Result::is_ok), "{kind:?}");
        assert_eq!(line.queue.synced().wait().await, Ok(()), "{kind:?}");

        let line = Line::new(kind);
        let synced = line.queue.synced();
        drop(line);
        assert_eq!(synced.wait().await, Err(QueueClosed), "{kind:?}");
    }
}

#[test]
fn fifo_23_only_the_initial_list_is_marked_and_no_batch_crosses_its_end() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put([list(&[("a", 1), ("b", 1)]), added("c", 2), updated("d", 2)]);
        let batches: Vec<_> = std::iter::from_fn(|| line.pop())
            .map(|batch| (batch.in_initial_list, show(&batch.deltas).join(" ")))
            .collect();
        let first = if kind == Kind::Atomic { "[a@1 b@1]" } else { "=a@1 =b@1" };
        assert_eq!(batches, [(true, first.into()), (false, "+c@2 ~d@2".into())], "{kind:?}");
    }
}

/// Keys that are in the queue only, in the store only, in both or in neither, and that the list
/// lacks.
#[test]
fn invariant_4_no_deletion_is_lost_across_a_relist() {
    for kind in KINDS {
        let line = Line::holding(kind, &[("both", 1), ("store", 1), ("kept", 1)]);
        line.put([updated("both", 2), added("queue", 2), list(&[("kept", 1), ("new", 3)])]);
        let changes = line.process();
        assert_eq!(line.held(), ["kept@1", "new@3"], "{kind:?}");
        let gone: Vec<&str> = changes
            .iter()
            .filter(|change| matches!(change, Change::DeletedFinalStateUnknown { .. }))
            .map(|change| &*change.key().name)
            .collect();
        assert_eq!(gone, ["both", "queue", "store"], "{kind:?}");
    }
}

#[test]
fn invariant_16_a_key_twice_in_a_list_is_one_object() {
    for kind in KINDS {
        let line = Line::new(kind);
        line.put([list(&[("a", 1), ("a", 2)])]);
        line.process();
        assert_eq!(line.held(), ["a@2"], "{kind:?}");
        assert!(line.queue.synced().get(), "{kind:?}");
    }
}

/// A reader that always finds deltas yields to other tasks after a bounded number.
#[tokio::test(start_paused = true)]
async fn one_poll_handles_a_bounded_number_of_events() {
    for kind in KINDS {
        let line = Line::new(kind);
        let taken = Arc::new(Mutex::new(0));
        let (queue, counted) = (line.queue.clone(), taken.clone());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let mut n = 0;
            loop {
                push(&*queue, updated(&n.to_string(), 1)).await.unwrap();
                *counted.lock() += queue.pop_batch().await.unwrap().deltas.len();
                n += 1;
            }
        });
        tokio::task::yield_now().await;
        let n = *taken.lock();
        assert!((1..=128).contains(&n), "{kind:?}: {n}");

        let line = Line::new(kind);
        line.put([list(&[])]);
        let (queue, store) = (line.queue.clone(), line.store.clone());
        let items = (0..5 * BATCH_MAX).map(|n| record(&n.to_string(), 1)).collect();
        line.process();
        line.put([Delta::ReplacedAll { items, resource_version: "1".into() }]);
        tasks.spawn(async move {
            while let Some(batch) = queue.pop_batch().await {
                apply(batch, &mut *store.0.lock(), |_| {});
            }
        });
        tokio::task::yield_now().await;
        if kind != Kind::Atomic {
            let n = line.store.0.lock().len();
            assert!((1..=2 * BATCH_MAX).contains(&n), "{kind:?}: {n}");
        }
        tasks.shutdown().await;
    }
}
