//! Each kind of queue against a plain model of its rules.
use super::{Kind, Line, added, deleted, show, updated};
use crate::controller::apply;
use crate::delta::Delta;
use crate::key::Key;
use crate::record::Record;
use crate::testing::record;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Step {
    Added(u8),
    Updated(u8),
    Deleted(u8),
    List(Vec<u8>),
    Resync,
    Bookmark,
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u8..6).prop_map(Step::Added),
        3 => (0_u8..6).prop_map(Step::Updated),
        3 => (0_u8..6).prop_map(Step::Deleted),
        2 => prop::collection::vec(0_u8..6, 0..6).prop_map(Step::List),
        1 => Just(Step::Resync),
        1 => Just(Step::Bookmark),
        3 => Just(Step::Pop),
    ]
}

fn delta(step: &Step, version: u64) -> Option<Delta<Record>> {
    let name = |key: &u8| key.to_string();
    Some(match step {
        Step::Added(key) => added(&name(key), version),
        Step::Updated(key) => updated(&name(key), version),
        Step::Deleted(key) => deleted(&name(key), version),
        Step::List(keys) => Delta::ReplacedAll {
            items: keys.iter().map(|key| record(&name(key), version)).collect(),
            resource_version: version.to_string(),
        },
        Step::Resync => Delta::SyncAll,
        Step::Bookmark => Delta::Bookmark { resource_version: version.to_string() },
        Step::Pop => return None,
    })
}

/// A delta in the model: its key, and whether it belongs to the initial list.
#[derive(Clone)]
struct Waiting {
    delta: Delta<Record>,
    is_initial: bool,
}

/// The queued deltas in the simplest form: one sequence, in which a slot is all deltas of its key.
#[derive(Default)]
struct Model {
    waiting: Vec<Waiting>,
    store: BTreeMap<Key, Record>,
    is_populated: bool,
}

impl Model {
    fn of(&self, key: &Key) -> Vec<&Delta<Record>> {
        let deltas = self.waiting.iter().map(|waiting| &waiting.delta);
        deltas.filter(|delta| delta.key() == Some(key)).collect()
    }

    fn add(&mut self, kind: Kind, delta: Delta<Record>, is_initial: bool) {
        if kind == Kind::Keyed
            && let Some(last) =
                self.waiting.iter().rposition(|waiting| waiting.delta.key() == delta.key())
        {
            // FIFO-1: next to the deltas of the same key. FIFO-2: two deletions are merged.
            if self.waiting[last].delta.is_deletion() && delta.is_deletion() {
                if !matches!(self.waiting[last].delta, Delta::Deleted(_)) {
                    self.waiting[last].delta = delta;
                }
                return;
            }
            let is_initial = self.waiting[last].is_initial;
            self.waiting.insert(last + 1, Waiting { delta, is_initial });
            return;
        }
        self.waiting.push(Waiting { delta, is_initial });
    }

    fn offer(&mut self, kind: Kind, delta: Delta<Record>) {
        let is_atomic = kind == Kind::Atomic;
        let is_first = !self.is_populated;
        match delta {
            Delta::ReplacedAll { items, .. } if !is_atomic => {
                self.is_populated = true;
                self.replace(kind, items, is_first);
            }
            Delta::SyncAll if !is_atomic => {
                for (key, object) in self.store.clone() {
                    if self.of(&key).is_empty() {
                        self.add(kind, Delta::Sync(object), is_first);
                    }
                }
            }
            Delta::Bookmark { .. } if !is_atomic => {}
            Delta::Deleted(object) if kind == Kind::Keyed => {
                self.is_populated = true;
                if !self.of(&object.key).is_empty() || self.store.contains_key(&object.key) {
                    self.add(kind, Delta::Deleted(object), false);
                }
            }
            delta => {
                let is_populated = !matches!(delta, Delta::SyncAll | Delta::Bookmark { .. });
                let is_initial = is_first && !(is_populated && delta.key().is_some());
                self.is_populated |= is_populated;
                self.add(kind, delta, is_initial);
            }
        }
    }

    fn replace(&mut self, kind: Kind, items: Vec<Record>, is_first: bool) {
        let is_listed = |key: &Key| items.iter().any(|item| item.key == *key);
        let mut queued: Vec<Key> = Vec::new();
        for waiting in &self.waiting {
            if let Some(key) = waiting.delta.key()
                && !queued.contains(key)
            {
                queued.push(key.clone());
            }
        }
        let tombstone = |key: &Key, last_known: Option<&Record>| Delta::DeletedFinalStateUnknown {
            key: key.clone(),
            last_known: last_known.cloned(),
        };
        let mut gone = Vec::new();
        for key in queued.iter().filter(|key| !is_listed(key)) {
            let last = *self.of(key).last().unwrap();
            // FIFO-12 skips keys whose last delta is a deletion; FIFO-4 merges them.
            if kind == Kind::Keyed || !last.is_deletion() {
                gone.push(tombstone(key, last.item()));
            }
        }
        for (key, object) in &self.store {
            if !is_listed(key) && !queued.contains(key) {
                gone.push(tombstone(key, Some(object)));
            }
        }
        let present = items.into_iter().map(Delta::Replaced);
        let all: Vec<_> = match kind {
            Kind::Keyed => present.chain(gone).collect(),
            _ => gone.into_iter().chain(present).collect(),
        };
        for delta in all {
            self.add(kind, delta, is_first);
        }
        if is_first && kind == Kind::Keyed {
            self.waiting.iter_mut().for_each(|waiting| waiting.is_initial = true);
        }
    }

    /// FIFO-15: the next batch.
    fn pop(&mut self, kind: Kind) -> Vec<Waiting> {
        let Some(first) = self.waiting.first().cloned() else { return Vec::new() };
        let n_first = |key: &Key| self.of(key).len();
        let mut keys: Vec<&Key> = Vec::new();
        let mut n = 0;
        for waiting in &self.waiting {
            let Some(key) = waiting.delta.key() else { break };
            let is_alone = kind == Kind::Keyed && n_first(key) > 1;
            if keys.contains(&key) || waiting.is_initial != first.is_initial || is_alone {
                break;
            }
            keys.push(key);
            n += 1;
        }
        if n == 0 {
            n = match (kind, first.delta.key()) {
                (Kind::Keyed, Some(key)) => n_first(key),
                _ => 1,
            };
        }
        self.waiting.drain(..n).collect()
    }
}

fn follows_its_model(kind: Kind, steps: &[Step]) -> Result<(), TestCaseError> {
    let line = Line::new(kind);
    let mut model = Model::default();
    let check = |model: &mut Model| {
        let expected = model.pop(kind);
        let batch = line.pop();
        let got = batch.as_ref().map(|batch| show(&batch.deltas)).unwrap_or_default();
        let deltas: Vec<_> = expected.iter().map(|waiting| waiting.delta.clone()).collect();
        prop_assert_eq!(got, show(&deltas));
        if let (Some(batch), Some(first)) = (batch, expected.first()) {
            prop_assert_eq!(batch.in_initial_list, first.is_initial);
            apply(batch, &mut *line.store.0.lock(), |_| {});
            model.store = line.store.0.lock().clone();
        }
        let waits = model.waiting.iter().any(|Waiting { delta, is_initial }| {
            *is_initial && !matches!(delta, Delta::SyncAll | Delta::Bookmark { .. })
        });
        prop_assert_eq!(line.queue.synced().get(), model.is_populated && !waits);
        prop_assert_eq!(line.queue.len(), model.waiting.len());
        Ok(())
    };
    for (version, step) in (1..).zip(steps) {
        match delta(step, version) {
            Some(delta) => {
                prop_assert!(line.offer(delta.clone()));
                model.offer(kind, delta);
            }
            None => check(&mut model)?,
        }
    }
    while !model.waiting.is_empty() {
        check(&mut model)?;
    }
    check(&mut model)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn fifo_10_to_15_the_atomic_queue_follows_its_model(steps in prop::collection::vec(step(), 0..60)) {
        follows_its_model(Kind::Atomic, &steps)?;
    }

    #[test]
    fn fifo_10_to_15_the_ordered_queue_follows_its_model(steps in prop::collection::vec(step(), 0..60)) {
        follows_its_model(Kind::Ordered, &steps)?;
    }

    #[test]
    fn fifo_1_to_6_the_keyed_queue_follows_its_model(steps in prop::collection::vec(step(), 0..60)) {
        follows_its_model(Kind::Keyed, &steps)?;
    }
}
