use super::*;
use crate::handler::FilteringHandler;
use crate::indexer::Indexer;
use crate::object::Object;
use crate::testing::object;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

type E = Event<ConfigMap>;

fn show(event: &E) -> String {
    match event {
        Event::Added { object, in_initial_list } => {
            format!("+{object:?}{}", if *in_initial_list { "!" } else { "" })
        }
        Event::Updated { old, new } => format!("{old:?}>{new:?}"),
        Event::Deleted { tombstone } => format!("-{:?}", tombstone.key()),
    }
}

fn added(name: &str, version: u64) -> E {
    Event::Added { object: object(name, version), in_initial_list: false }
}

fn updated(name: &str, old: u64, new: u64) -> E {
    Event::Updated { old: object(name, old), new: object(name, new) }
}

fn deleted(name: &str, version: u64) -> E {
    Event::Deleted { tombstone: Tombstone::Final(object(name, version)) }
}

fn pop(queue: &mut Queue<ConfigMap>) -> Option<E> {
    let mut taken = Vec::new();
    queue.take(1, &mut taken);
    taken.pop()
}

fn drain(queue: &mut Queue<ConfigMap>) -> Vec<String> {
    std::iter::from_fn(|| pop(queue)).map(|event| show(&event)).collect()
}

fn fill(queue_max: usize, events: Vec<E>) -> Vec<String> {
    let mut queue = Queue::new(queue_max);
    for event in events {
        queue.push(event);
    }
    drain(&mut queue)
}

#[test]
fn below_its_bound_a_queue_merges_nothing() {
    let events = vec![added("a", 1), updated("a", 1, 2), deleted("a", 2)];
    assert_eq!(fill(10, events), ["+ns/a@1", "ns/a@1>ns/a@2", "-\"ns/a\""]);
}

#[test]
fn full_queue_merges_by_key_according_to_the_table() {
    assert_eq!(fill(1, vec![added("a", 1), updated("a", 1, 2)]), ["+ns/a@2"]);
    assert!(fill(1, vec![added("a", 1), deleted("a", 1)]).is_empty());
    assert_eq!(fill(1, vec![updated("a", 1, 2), updated("a", 2, 3)]), ["ns/a@1>ns/a@3"]);
    let changed_and_deleted = fill(1, vec![updated("a", 1, 2), deleted("a", 2)]);
    assert_eq!(changed_and_deleted, ["ns/a@1>ns/a@2", "-\"ns/a\""]);
    assert_eq!(fill(1, vec![deleted("a", 1), added("a", 2)]), ["-\"ns/a\"", "+ns/a@2"]);
}

#[test]
fn full_queue_adds_at_most_an_update_a_deletion_and_an_addition_of_a_key() {
    let mut queue = Queue::new(1);
    queue.push(updated("b", 1, 2));
    queue.push(updated("a", 1, 2));
    queue.push(updated("a", 2, 3));
    for version in 3..1_000 {
        queue.push(deleted("a", version));
        assert!(queue.len() <= 1 + 2, "{}", queue.len());
        queue.push(added("a", version + 1));
        queue.push(updated("a", version + 1, version + 2));
        assert!(queue.len() <= 1 + 3, "{}", queue.len());
    }
    assert!(queue.ring.len() <= 2 * 4 + IDLE_CAPACITY_MAX + 1, "{}", queue.ring.len());
    let expected = ["ns/b@1>ns/b@2", "ns/a@1>ns/a@3", "-\"ns/a\"", "+ns/a@1001"];
    assert_eq!(drain(&mut queue), expected);
}

/// An object stopped matching and was deleted while its handler was behind. The deletion alone has
/// the last state, which does not match, so the inner handler kept the object for ever.
#[test]
fn evt_10_filtered_object_that_stopped_matching_and_was_deleted_is_gone() {
    let mut queue = Queue::new(1);
    queue.push(updated("b", 1, 2));
    queue.push(updated("a", 1, 2));
    queue.push(deleted("a", 2));
    let filter = FilteringHandler::new(|object: &Object<ConfigMap>| is_odd(object), ());
    let passed: Vec<String> = std::iter::from_fn(|| pop(&mut queue))
        .filter_map(|event| filter.pass(event))
        .map(|event| show(&event))
        .collect();
    assert_eq!(passed, ["-\"ns/b\"", "-\"ns/a\""]);
}

#[test]
fn fifo_2_of_two_deletions_the_final_one_stays() {
    let missed = || Event::Deleted {
        tombstone: Tombstone::Missed { key: object("a", 1).key().clone(), last_known: None },
    };
    for events in [vec![missed(), deleted("a", 1)], vec![deleted("a", 1), missed()]] {
        let mut queue: Queue<ConfigMap> = Queue::new(1);
        for event in events {
            queue.push(event);
        }
        let Some(Event::Deleted { tombstone }) = pop(&mut queue) else { panic!("a deletion") };
        assert!(matches!(tombstone, Tombstone::Final(_)));
        assert!(pop(&mut queue).is_none());
    }
}

#[test]
fn shi_9_initial_additions_are_counted_through_merges() {
    let initial = |name, version| -> E {
        Event::Added { object: object(name, version), in_initial_list: true }
    };
    let mut queue = Queue::new(1);
    queue.push(initial("a", 1));
    queue.push(initial("b", 1));
    assert_eq!(queue.initial(), 2);
    queue.push(updated("a", 1, 2));
    assert_eq!(queue.initial(), 2, "still an initial addition, of the newer state");
    queue.push(deleted("b", 1));
    assert_eq!(queue.initial(), 1, "deleted before the handler got it");
    assert_eq!(drain(&mut queue), ["+ns/a@2!"]);
    assert_eq!(queue.initial(), 0);
}

fn is_odd(object: &Object<ConfigMap>) -> bool {
    object.resource_version().parse::<u64>().unwrap() % 2 == 1
}

/// The folded state of a handler: the version of each key. Fails on an event that does not start
/// from that version.
#[derive(Default, Debug, PartialEq)]
struct FoldedState(std::collections::BTreeMap<Key, String>);

impl FoldedState {
    fn apply(&mut self, event: &E) {
        let key = event.key().clone();
        match event {
            Event::Added { object, .. } => {
                let known = self.0.insert(key, object.resource_version().to_owned());
                assert_eq!(known, None, "added twice: {}", show(event));
            }
            Event::Updated { old, new } => {
                let known = self.0.insert(key, new.resource_version().to_owned());
                assert_eq!(known.as_deref(), Some(old.resource_version()), "{}", show(event));
            }
            Event::Deleted { tombstone } => {
                let known = self.0.remove(&key);
                let last = tombstone.object().map(Object::resource_version);
                assert_eq!(known.as_deref(), last, "{}", show(event));
            }
        }
    }
}

#[test]
fn shi_5_objects_added_and_deleted_behind_a_blocked_handler_leave_no_holes() {
    let mut queue = Queue::new(2);
    queue.push(added("a", 1));
    queue.push(added("b", 1));
    for version in 2..10_000 {
        let name = format!("x{version}");
        queue.push(added(&name, version));
        queue.push(deleted(&name, version));
    }
    assert_eq!(queue.len(), 2);
    assert!(queue.ring.len() <= 2 * 2 + IDLE_CAPACITY_MAX + 1, "{}", queue.ring.len());
    queue.push(updated("b", 1, 2));
    assert_eq!(drain(&mut queue), ["+ns/a@1", "+ns/b@2"]);
}

#[test]
fn positions_of_keys_are_indexed_only_when_events_may_merge() {
    let mut queue = Queue::new(4);
    for name in ["a", "b", "c", "d", "e"] {
        queue.push(added(name, 1));
    }
    assert!(queue.last.is_empty(), "additions merge with nothing");
    queue.push(updated("e", 1, 2));
    assert_eq!((queue.last.len(), queue.len()), (5, 5));
    let mut taken = Vec::new();
    queue.take(2, &mut taken);
    assert_eq!((queue.last.len(), taken.len()), (3, 2));
    queue.push(updated("a", 1, 2));
    queue.push(updated("a", 2, 3));
    assert_eq!(queue.len(), 4, "below its limit until the first of them, and merging from there");
    queue.take(2, &mut taken);
    assert!(queue.last.is_empty() && taken.len() == 4);
    assert_eq!(drain(&mut queue), ["+ns/e@2", "ns/a@1>ns/a@3"]);
}

proptest! {
    /// Invariant 2 and the queue's table: with any merging, the handler gets well-formed sequences,
    /// its folded state is the same as without merging, also that of the objects that a filter
    /// admits, and the queue stays within its limit.
    #[test]
    fn invariant_2_merging_preserves_the_folded_state(
        queue_max in 1_usize..5,
        steps in prop::collection::vec((0_u8..4, prop::bool::weighted(0.3), 0_usize..3), 0..80),
    ) {
        let mut server: std::collections::BTreeMap<u8, u64> = Default::default();
        let mut queue = Queue::new(queue_max);
        let (mut folded, mut expected) = (FoldedState::default(), FoldedState::default());
        let (mut filtered, mut expected_filtered) = <(FoldedState, FoldedState)>::default();
        let filter = FilteringHandler::new(|object: &Object<ConfigMap>| is_odd(object), ());
        for (version, (key, delete, n_taken)) in steps.into_iter().enumerate() {
            let (name, version) = (key.to_string(), version as u64 + 1);
            let event = match (server.get(&key).copied(), delete) {
                (None, true) => continue,
                (Some(old), true) => { server.remove(&key); deleted(&name, old) }
                (None, false) => { server.insert(key, version); added(&name, version) }
                (Some(old), false) => { server.insert(key, version); updated(&name, old, version) }
            };
            expected.apply(&event);
            filter.pass(event.clone()).iter().for_each(|event| expected_filtered.apply(event));
            queue.push(event);
            prop_assert!(queue.len() <= queue_max + 3 * 4);
            let mut taken = Vec::new();
            queue.take(n_taken, &mut taken);
            prop_assert!(taken.len() <= n_taken);
            for event in taken {
                folded.apply(&event);
                filter.pass(event).iter().for_each(|event| filtered.apply(event));
            }
        }
        while let Some(event) = pop(&mut queue) {
            folded.apply(&event);
            filter.pass(event).iter().for_each(|event| filtered.apply(event));
        }
        prop_assert_eq!(folded, expected);
        prop_assert_eq!(filtered, expected_filtered);
    }
}

proptest! {
    /// With any mix of events, relists and resyncs, the handler gets well-formed sequences, its
    /// folded state is that of the cache, and the queue has a bounded number of states.
    #[test]
    fn evt_4_walks_and_events_lead_to_the_cached_state(
        queue_max in 1_usize..5,
        with_unchanged in any::<bool>(),
        steps in prop::collection::vec((0_u8..8, prop::collection::vec(0_u8..6, 0..6), 0_usize..4), 0..60),
    ) {
        let mut indexer = Indexer::<ConfigMap>::new();
        let mut queue = Queue::new(queue_max);
        let mut folded = FoldedState::default();
        for (version, (step, keys, n_taken)) in steps.into_iter().enumerate() {
            let version = version as u64 + 1;
            let before = indexer.snapshot();
            match (step, keys.first()) {
                (0, _) => {
                    // Half of the objects unchanged, half new.
                    let relisted = |key: &u8| {
                        let name = key.to_string();
                        let held = indexer.lister().object(object(&name, 1).key());
                        held.filter(|_| key.is_multiple_of(2)).unwrap_or_else(|| object(&name, version))
                    };
                    let objects = keys.iter().map(relisted).collect();
                    indexer.replace(objects, "1");
                    let walk = Walk::new(before, indexer.snapshot(), with_unchanged, false);
                    drop(queue.push_walk(walk));
                }
                (1, _) => {
                    let walk = Walk::new(before.clone(), before, true, false);
                    drop(queue.push_walk(walk));
                }
                (2 | 3, Some(key)) => {
                    if let Some(old) = indexer.remove(object(&key.to_string(), 1).key(), "") {
                        queue.push(Event::Deleted { tombstone: Tombstone::Final(old) });
                    }
                }
                (_, Some(key)) => {
                    let new = object(&key.to_string(), version);
                    queue.push(match indexer.upsert(new.clone()).unwrap() {
                        Some(old) => Event::Updated { old, new },
                        None => Event::Added { object: new, in_initial_list: false },
                    });
                }
                (_, None) => {}
            }
            prop_assert!(queue.walks.len() <= WALKS_MAX);
            let mut taken = Vec::new();
            queue.take(n_taken, &mut taken);
            prop_assert!(taken.len() <= n_taken);
            taken.iter().for_each(|event| folded.apply(event));
        }
        let mut taken = Vec::new();
        while queue.take(3, &mut taken).has_more {}
        taken.iter().for_each(|event| folded.apply(event));
        prop_assert_eq!((queue.len(), queue.initial(), queue.front()), (0, 0, queue.end()));
        let mut cached = std::collections::BTreeMap::new();
        for object in indexer.snapshot().iter() {
            cached.insert(object.key().clone(), object.resource_version().to_owned());
        }
        prop_assert_eq!(folded.0, cached);
    }
}
