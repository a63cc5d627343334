use super::*;
use crate::delta::{Delta, OrderedFifo};
use crate::key::Key;
use crate::record::Record;
use crate::testing::record;
use futures::FutureExt;
use std::collections::BTreeMap;

/// `+a@1` added (`!` when initial), `a@1>a@2` updated, `-a@1` deleted, `-a@1?` missed.
fn show(change: &Change<Record>) -> String {
    let name = |object: &Record| format!("{}@{}", object.key.name, object.resource_version);
    match change {
        Change::Added { object, in_initial_list } => {
            format!("+{}{}", name(object), if *in_initial_list { "!" } else { "" })
        }
        Change::Updated { old, new } => format!("{}>{}", name(old), name(new)),
        Change::Deleted(object) => format!("-{}", name(object)),
        Change::DeletedFinalStateUnknown { last_known: Some(object), .. } => {
            format!("-{}?", name(object))
        }
        Change::DeletedFinalStateUnknown { key, .. } => format!("-{}?", key.name),
    }
}

fn changes(store: &mut BTreeMap<Key, Record>, deltas: Vec<Delta<Record>>) -> Vec<String> {
    let queue = OrderedFifo::new();
    for delta in deltas {
        assert_eq!(queue.offer(delta), Ok(None));
    }
    let mut changes = Vec::new();
    while let Some(batch) = queue.pop_batch().now_or_never().flatten() {
        apply(batch, store, |change| changes.push(show(&change)));
    }
    changes
}

fn store(objects: &[(&str, u64)]) -> BTreeMap<Key, Record> {
    let objects = objects.iter().map(|(name, version)| record(name, *version));
    objects.map(|object| (object.key.clone(), object)).collect()
}

#[test]
fn evt_1_evt_2_store_and_not_verb_determines_the_kind_of_a_change() {
    for verb in [Delta::Added, Delta::Updated, Delta::Replaced, Delta::Sync] {
        let mut store = store(&[("b", 1)]);
        let output = changes(&mut store, vec![verb(record("a", 2)), verb(record("b", 3))]);
        assert!(output[0].starts_with("+a@2"), "{output:?}");
        assert_eq!(output[1], "b@1>b@3");
        assert_eq!(store.len(), 2);
    }
}

#[test]
fn evt_3_deletion_of_an_absent_key_is_reported() {
    let mut store = store(&[("a", 1), ("b", 1)]);
    let missed =
        |name| Delta::DeletedFinalStateUnknown { key: Key::new("ns", name), last_known: None };
    let deltas = vec![Delta::Deleted(record("a", 2)), Delta::Deleted(record("x", 2)), missed("b")];
    // The store has the last known state of a missed deletion.
    assert_eq!(changes(&mut store, deltas), ["-a@2", "-x@2", "-b@1?"]);
    assert!(store.is_empty());
    assert_eq!(changes(&mut store, vec![missed("y")]), ["-y?"]);
}

#[test]
fn evt_4_list_replaces_the_store_at_once_and_deletions_are_reported_first() {
    let mut store = store(&[("a", 1), ("b", 1)]);
    let items = vec![record("c", 2), record("b", 3), record("c", 4)];
    let list = Delta::ReplacedAll { items, resource_version: "5".into() };
    assert_eq!(changes(&mut store, vec![list]), ["-a@1?", "b@1>b@3", "+c@4!"]);
    assert_eq!(store.len(), 2);
}

#[test]
fn evt_5_evt_6_resync_reports_every_object_and_bookmark_none() {
    let mut store = store(&[("a", 1), ("b", 2)]);
    let bookmark = Delta::Bookmark { resource_version: "5".into() };
    let output = changes(&mut store, vec![Delta::SyncAll, bookmark]);
    assert_eq!(output, ["a@1>a@1", "b@2>b@2"]);
}

#[test]
fn evt_7_store_changes_before_the_change_is_reported() {
    struct Shared(std::rc::Rc<std::cell::RefCell<BTreeMap<Key, Record>>>);
    impl DeltaStore<Record> for Shared {
        fn put(&mut self, object: Record) -> Option<Record> {
            self.0.borrow_mut().put(object)
        }
        fn remove(&mut self, key: &Key) -> Option<Record> {
            DeltaStore::remove(&mut *self.0.borrow_mut(), key)
        }
        fn replace(&mut self, objects: Vec<Record>, resource_version: &str) -> Vec<Record> {
            self.0.borrow_mut().replace(objects, resource_version)
        }
        fn objects(&self) -> Vec<Record> {
            self.0.borrow().objects()
        }
    }
    let held = std::rc::Rc::default();
    let queue = OrderedFifo::new();
    for delta in [Delta::Added(record("a", 1)), Delta::Deleted(record("a", 2))] {
        assert_eq!(queue.offer(delta), Ok(None));
    }
    let mut n_held = Vec::new();
    while let Some(batch) = queue.pop_batch().now_or_never().flatten() {
        apply(batch, &mut Shared(std::rc::Rc::clone(&held)), |_| n_held.push(held.borrow().len()));
    }
    assert_eq!(n_held, [1, 0]);
}

#[test]
fn evt_8_deleted_and_made_again_unseen_is_one_update_with_two_uids() {
    let mut store = store(&[("a", 1)]);
    let mut again = record("a", 3);
    again.uid = "another".into();
    let list = Delta::ReplacedAll { items: vec![again], resource_version: "3".into() };
    assert_eq!(changes(&mut store, vec![list]), ["a@1>a@3"]);
    assert_eq!(&*store[&Key::new("ns", "a")].uid, "another");
}
