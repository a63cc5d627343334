//! The notifications that wait for one handler.
use crate::event::{Event, Tombstone};
use crate::handler::HANDLER_QUEUE_MAX;
use crate::key::Key;
use std::collections::{BTreeMap, HashMap};

/// A queue in order of arrival that merges by key when it is full.
///
/// | newest waiting | arriving  | becomes                                     |
/// |----------------|-----------|---------------------------------------------|
/// | `Added a`      | `a→b`     | `Added b`, in place                         |
/// | `Added a`      | `Deleted` | nothing: the handler never hears of it      |
/// | `Updated a→b`  | `b→c`     | `Updated a→c`, in place                     |
/// | `Updated a→b`  | `Deleted` | `Deleted`, in place                         |
/// | `Deleted`      | `Added`   | both: the new one waits at the end          |
/// | `Deleted`      | `Deleted` | the earlier, unless it knows less (FIFO-2)  |
///
/// What a handler folds out of the merged notifications is what it would have folded out of all of them. Once the queue is
/// full, at most two notifications of a key are added to it.
pub(super) struct Queue<K> {
    // Inputs.
    queue_max: usize,
    // State: `last` is the place of the newest waiting event of a key.
    events: BTreeMap<u64, Event<K>>,
    last: HashMap<Key, u64>,
    next: u64,
    initial: usize,
}

impl<K> Queue<K> {
    pub(super) fn new(queue_max: usize) -> Self {
        Self { queue_max, events: BTreeMap::new(), last: HashMap::new(), next: 0, initial: 0 }
    }

    /// How many events wait.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// How many of them are additions out of the initial list.
    pub(super) fn initial(&self) -> usize {
        self.initial
    }

    pub(super) fn push(&mut self, event: Event<K>) {
        if self.events.len() >= self.queue_max
            && let Some(place) = self.last.get(event.key()).copied()
            && let Some(waiting) = self.events.remove(&place)
        {
            self.initial -= usize::from(waiting.in_initial_list());
            let key = event.key().clone();
            match merge(waiting, event) {
                Merged::One(event) => self.insert(place, event),
                Merged::Nothing => {
                    self.last.remove(&key);
                }
                Merged::Both(waiting, event) => {
                    self.insert(place, waiting);
                    self.append(event);
                }
            }
        } else {
            self.append(event);
        }
    }

    fn append(&mut self, event: Event<K>) {
        let place = self.next;
        self.next += 1;
        self.insert(place, event);
    }

    fn insert(&mut self, place: u64, event: Event<K>) {
        self.initial += usize::from(event.in_initial_list());
        self.last.insert(event.key().clone(), place);
        self.events.insert(place, event);
    }

    pub(super) fn pop(&mut self) -> Option<Event<K>> {
        let (place, event) = self.events.pop_first()?;
        self.initial -= usize::from(event.in_initial_list());
        if self.last.get(event.key()) == Some(&place) {
            self.last.remove(event.key());
        }
        if self.last.is_empty() && self.last.capacity() > 2 * HANDLER_QUEUE_MAX {
            // A burst, the initial list for one, leaves no memory behind.
            self.last = HashMap::new();
        }
        Some(event)
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.events = BTreeMap::new();
        self.last = HashMap::new();
        self.initial = 0;
    }
}

enum Merged<K> {
    Nothing,
    One(Event<K>),
    Both(Event<K>, Event<K>),
}

/// Two notifications of one key as one, where they can be.
fn merge<K>(waiting: Event<K>, arriving: Event<K>) -> Merged<K> {
    Merged::One(match (waiting, arriving) {
        (Event::Added { in_initial_list, .. }, Event::Updated { new, .. }) => {
            Event::Added { object: new, in_initial_list }
        }
        (Event::Added { .. }, Event::Deleted { .. }) => return Merged::Nothing,
        (Event::Updated { old, .. }, Event::Updated { new, .. }) => Event::Updated { old, new },
        (Event::Updated { .. }, arriving @ Event::Deleted { .. }) => arriving,
        (waiting @ Event::Deleted { tombstone: Tombstone::Final(_) }, Event::Deleted { .. }) => {
            waiting
        }
        (Event::Deleted { .. }, arriving @ Event::Deleted { .. }) => arriving,
        (waiting, arriving) => return Merged::Both(waiting, arriving),
    })
}

#[cfg(test)]
mod tests;
