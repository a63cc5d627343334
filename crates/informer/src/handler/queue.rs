//! The notifications that wait for one handler.
use crate::broken::{Broken, Rule};
use crate::event::{Event, Tombstone};
use crate::key::Key;
use std::collections::{HashMap, VecDeque};

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
/// What a handler folds out of the merged notifications is what it would have folded out of all of
/// them. Once the queue is full, at most two notifications of a key are added to it.
///
/// # Theory
///
/// A handler that keeps up pays for a ring buffer and nothing else. An addition is never merged
/// into what waits, so it is only appended. The places of keys are written down when something else
/// arrives at a full queue, each once, and thrown away when the queue has drained to half of its
/// limit, so that a pass is paid for by as many notifications as it looks at. A notification that
/// was merged away leaves a hole in the ring; the ring is packed when it has more holes than
/// notifications, or a handler that is stuck while objects come and go would hold ever more of
/// nothing.
pub(super) struct Queue<K> {
    // Inputs.
    queue_max: usize,
    broken: Broken,
    // State.
    ring: VecDeque<Option<Event<K>>>,
    /// The sequence number of the ring's front; those behind it follow.
    front: u64,
    /// The largest sequence number that ever was behind the ring. Packing moves notifications
    /// before it.
    end: u64,
    /// How many places of the ring are not holes.
    len: usize,
    initial: usize,
    /// The place of the newest event of each key, of those events that wait before `indexed`.
    last: HashMap<Key, u64>,
    indexed: u64,
}

impl<K> Queue<K> {
    pub(super) fn new(queue_max: usize, broken: Broken) -> Self {
        Self {
            queue_max,
            broken,
            ring: VecDeque::new(),
            front: 0,
            end: 0,
            len: 0,
            initial: 0,
            last: HashMap::new(),
            indexed: 0,
        }
    }

    /// How many events wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The sequence number behind all that was pushed so far: once [`front`](Self::front) is there,
    /// all of it was taken.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The sequence number up to which everything was taken.
    pub(super) fn front(&self) -> u64 {
        self.front
    }

    /// How many of them are additions out of the initial list.
    pub(super) fn initial(&self) -> usize {
        self.initial
    }

    pub(super) fn push(&mut self, event: Event<K>) {
        if self.len < self.queue_max || matches!(event, Event::Added { .. }) {
            self.append(event);
            return;
        }
        self.index();
        let place = self.last.get(event.key()).copied();
        let Some((place, waiting)) =
            place.and_then(|place| Some((place, self.slot(place)?.take()?)))
        else {
            self.append(event);
            return;
        };
        self.uncount(&waiting);
        if self.broken.is(Rule::MergeKeepsOlder) {
            return self.put(place, waiting);
        }
        match merge(waiting, event) {
            Merged::One(event) => self.put(place, event),
            Merged::Nothing(key) => {
                self.last.remove(&key);
                self.pack();
            }
            Merged::Both(waiting, event) => {
                self.put(place, waiting);
                self.append(event);
            }
        }
    }

    /// Moves up to `n_max` events, the oldest first, to the end of `taken`.
    pub(super) fn take(&mut self, n_max: usize, taken: &mut Vec<Event<K>>) {
        let mut left = n_max.min(self.len);
        while left > 0
            && let Some(slot) = self.ring.pop_front()
        {
            let place = self.front;
            self.front += 1;
            let Some(event) = slot else { continue };
            left -= 1;
            self.uncount(&event);
            if place < self.indexed && self.last.get(event.key()) == Some(&place) {
                self.last.remove(event.key());
            }
            taken.push(event);
        }
        if self.len == 0 {
            // Only holes are left, if anything. A burst, the initial list for one, leaves no memory
            // behind.
            self.front = self.end;
            self.ring.clear();
            self.ring.shrink_to(RING_KEPT_MAX);
        }
        if self.len <= self.queue_max / 2 {
            self.forget_index();
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.queue_max, self.broken);
    }

    fn slot(&mut self, place: u64) -> Option<&mut Option<Event<K>>> {
        let at = usize::try_from(place.checked_sub(self.front)?).ok()?;
        self.ring.get_mut(at)
    }

    fn append(&mut self, event: Event<K>) {
        self.count(&event);
        self.ring.push_back(Some(event));
        self.end = self.end.max(self.front + self.ring.len() as u64);
    }

    /// Fills a hole.
    fn put(&mut self, place: u64, event: Event<K>) {
        self.count(&event);
        if let Some(slot) = self.slot(place) {
            *slot = Some(event);
        }
    }

    fn count(&mut self, event: &Event<K>) {
        self.len += 1;
        self.initial += usize::from(event.in_initial_list());
    }

    fn uncount(&mut self, event: &Event<K>) {
        self.len -= 1;
        self.initial -= usize::from(event.in_initial_list());
    }

    /// Writes down where each key's newest event waits, as far as it is not known yet.
    fn index(&mut self) {
        let known = self.indexed.saturating_sub(self.front);
        let places = (self.front..).zip(&self.ring).skip(known as usize);
        for (place, slot) in places {
            if let Some(event) = slot {
                self.last.insert(event.key().clone(), place);
            }
        }
        self.indexed = self.front + self.ring.len() as u64;
    }

    fn forget_index(&mut self) {
        self.last = HashMap::new();
        self.indexed = self.front;
    }

    /// Closes the holes when they are more than the events.
    fn pack(&mut self) {
        if self.ring.len() > 2 * self.len + RING_KEPT_MAX {
            self.ring.retain(Option::is_some);
            self.forget_index();
        }
    }
}

/// How much room an empty ring keeps, events; and how many holes are not worth packing.
const RING_KEPT_MAX: usize = 64;

enum Merged<K> {
    Nothing(Key),
    One(Event<K>),
    Both(Event<K>, Event<K>),
}

/// Two notifications of one key as one, where they can be.
fn merge<K>(waiting: Event<K>, arriving: Event<K>) -> Merged<K> {
    Merged::One(match (waiting, arriving) {
        (Event::Added { in_initial_list, .. }, Event::Updated { new, .. }) => {
            Event::Added { object: new, in_initial_list }
        }
        (Event::Added { object, .. }, Event::Deleted { .. }) => {
            return Merged::Nothing(object.key().clone());
        }
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
