//! What waits for a writer: pure state, no I/O.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use super::{EVENT_QUEUE_MAX, correlator::Write};

/// Writes in order, one at a time of each event.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Write>,
    /// The names of the events that are being written.
    in_flight: BTreeSet<Arc<str>>,
}

impl Outbox {
    /// Takes in a write; of an event that waits already, as the newer form of that. Says no when it
    /// is full.
    pub(super) fn push(&mut self, write: Write) -> bool {
        let is_same = |waiting: &&mut Write| waiting.record().name == write.record().name;
        if let Some(waiting) = self.waiting.iter_mut().find(is_same) {
            let (Write::Create(old) | Write::More(old)) = waiting;
            old.clone_from(write.record());
            return true;
        }
        if self.waiting.len() >= EVENT_QUEUE_MAX {
            return false;
        }
        self.waiting.push_back(write);
        true
    }

    /// The next write whose event is not being written.
    pub(super) fn next(&mut self) -> Option<Write> {
        let is_free = |write: &Write| !self.in_flight.contains(&write.record().name);
        let at = self.waiting.iter().position(is_free)?;
        let write = self.waiting.remove(at)?;
        self.in_flight.insert(write.record().name.clone());
        Some(write)
    }

    /// A write has ended.
    pub(super) fn done(&mut self, name: &Arc<str>) {
        self.in_flight.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use setpoint_object::time::Timestamp;

    use super::*;
    use crate::events::{
        EventType, ObjectReference,
        aggregate::Group,
        correlator::{Record, Write},
    };

    fn record(name: &str, count: u32) -> Record {
        let group = Group {
            regarding: Arc::default(),
            related: None,
            event_type: EventType::Normal,
            reason: "R".into(),
            action: "A".into(),
            component: "c".into(),
        };
        let at = Timestamp::default();
        Record {
            name: name.into(),
            group: Arc::new(group),
            regarding: ObjectReference::default(),
            note: "n".into(),
            first: at,
            last: at,
            count,
        }
    }

    #[test]
    fn one_write_of_an_event_at_a_time_and_what_waits_is_the_newest() {
        let mut outbox = Outbox::default();
        assert!(outbox.push(Write::Create(record("a", 1))));
        assert!(outbox.push(Write::Create(record("b", 1))));
        assert!(outbox.push(Write::More(record("b", 2))));
        let first = outbox.next().unwrap();
        assert_eq!(first, Write::Create(record("a", 1)));
        assert!(outbox.push(Write::More(record("a", 2))));
        assert_eq!(outbox.next(), Some(Write::Create(record("b", 2))), "it is still to be created");
        assert_eq!(outbox.next(), None, "a is being written");
        outbox.done(&first.record().name);
        assert_eq!(outbox.next(), Some(Write::More(record("a", 2))));
    }

    #[test]
    fn full_outbox_says_so() {
        let mut outbox = Outbox::default();
        for n in 0..EVENT_QUEUE_MAX {
            assert!(outbox.push(Write::Create(record(&n.to_string(), 1))));
        }
        assert!(!outbox.push(Write::Create(record("one more", 1))));
        assert!(outbox.push(Write::More(record("7", 2))), "there is a place already");
    }
}
