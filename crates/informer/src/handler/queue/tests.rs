use super::*;
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

fn drain(queue: &mut Queue<ConfigMap>) -> Vec<String> {
    std::iter::from_fn(|| queue.pop()).map(|event| show(&event)).collect()
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
fn a_full_queue_merges_by_key_as_its_table_says() {
    assert_eq!(fill(1, vec![added("a", 1), updated("a", 1, 2)]), ["+ns/a@2"]);
    assert!(fill(1, vec![added("a", 1), deleted("a", 1)]).is_empty());
    assert_eq!(fill(1, vec![updated("a", 1, 2), updated("a", 2, 3)]), ["ns/a@1>ns/a@3"]);
    assert_eq!(fill(1, vec![updated("a", 1, 2), deleted("a", 2)]), ["-\"ns/a\""]);
    assert_eq!(fill(1, vec![deleted("a", 1), added("a", 2)]), ["-\"ns/a\"", "+ns/a@2"]);
}

#[test]
fn fifo_2_of_two_deletions_the_one_that_knows_more_stays() {
    let missed = || Event::Deleted {
        tombstone: Tombstone::Missed { key: object("a", 1).key().clone(), last_known: None },
    };
    for events in [vec![missed(), deleted("a", 1)], vec![deleted("a", 1), missed()]] {
        let mut queue: Queue<ConfigMap> = Queue::new(1);
        for event in events {
            queue.push(event);
        }
        let Some(Event::Deleted { tombstone }) = queue.pop() else { panic!("a deletion") };
        assert!(matches!(tombstone, Tombstone::Final(_)));
        assert!(queue.pop().is_none());
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
    assert_eq!(queue.initial(), 1, "gone before the handler heard of it");
    assert_eq!(drain(&mut queue), ["+ns/a@2!"]);
    assert_eq!(queue.initial(), 0);
}

/// What a handler believes: the version of each key. Fails on an update or deletion out of nothing.
#[derive(Default, Debug, PartialEq)]
struct Belief(std::collections::BTreeMap<Key, String>);

impl Belief {
    fn hear(&mut self, event: &E) {
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
            Event::Deleted { .. } => {
                assert!(self.0.remove(&key).is_some(), "unknown: {}", show(event));
            }
        }
    }
}

proptest! {
    /// Invariant 2 and the queue's table: however the queue merges, the handler hears well-formed sequences and believes in
    /// the end what it would have believed without merging; and the queue stays within its bound.
    #[test]
    fn invariant_2_merging_changes_nothing_that_a_handler_can_fold(
        queue_max in 1_usize..5,
        steps in prop::collection::vec((0_u8..4, prop::bool::weighted(0.3), prop::bool::weighted(0.3)), 0..80),
    ) {
        let mut server: std::collections::BTreeMap<u8, u64> = Default::default();
        let mut queue = Queue::new(queue_max);
        let (mut heard, mut truth) = (Belief::default(), Belief::default());
        for (version, (key, delete, pop)) in steps.into_iter().enumerate() {
            let (name, version) = (key.to_string(), version as u64 + 1);
            let event = match (server.get(&key).copied(), delete) {
                (None, true) => continue,
                (Some(old), true) => { server.remove(&key); deleted(&name, old) }
                (None, false) => { server.insert(key, version); added(&name, version) }
                (Some(old), false) => { server.insert(key, version); updated(&name, old, version) }
            };
            truth.hear(&event);
            queue.push(event);
            prop_assert!(queue.len() <= queue_max + 2 * 4);
            if pop && let Some(event) = queue.pop() {
                heard.hear(&event);
            }
        }
        while let Some(event) = queue.pop() {
            heard.hear(&event);
        }
        prop_assert_eq!(heard, truth);
    }
}
