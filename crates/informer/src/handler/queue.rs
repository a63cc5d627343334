//! The notifications that wait for one handler.
use super::walk::Walk;
use crate::event::{Event, Tombstone};
use crate::indexer::Snapshot;
use crate::key::Key;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// The capacity that an empty ring keeps, in notifications; and the number of holes that are not
/// worth removing.
const IDLE_CAPACITY_MAX: usize = 64;

/// The largest number of walks that wait. A further one is joined with the last, so that a handler
/// that is stuck keeps a bounded number of states of the cache in memory.
pub(super) const WALKS_MAX: usize = 2;

/// A queue in order of arrival that merges by key when it is full.
///
/// | newest waiting | arriving  | becomes                                     |
/// |----------------|-----------|---------------------------------------------|
/// | `Added a`      | `a→b`     | `Added b`, in place                         |
/// | `Added a`      | `Deleted` | nothing: the handler gets neither           |
/// | `Updated a→b`  | `b→c`     | `Updated a→c`, in place                     |
/// | `Updated a→b`  | `Deleted` | both: the deletion waits at the end         |
/// | `Deleted`      | `Added`   | both: the new one waits at the end          |
/// | `Deleted`      | `Deleted` | the earlier, unless it is a tombstone (FIFO-2) |
///
/// A handler that folds the merged notifications gets the state that it would get from all of them,
/// also if it folds old and new states, as [`FilteringHandler`](super::FilteringHandler) does: each
/// notification starts from the state that the one before led to. So an update is not merged into
/// the deletion after it, which would hide the state that the handler saw last. Once the queue is
/// full, at most three notifications of a key are added to it: an update, a deletion and an
/// addition.
///
/// A state that came and went while the handler was behind is not shown to it, and so neither is an
/// object that was added and deleted meanwhile: the names of such objects have no bound.
///
/// A relist, a resync and the objects that a new handler finds wait as one [`Walk`], which makes
/// its events when they are taken. Notifications are not merged across a walk.
///
/// # Theory
///
/// A handler that keeps up pays for a ring buffer only. An addition is never merged into a waiting
/// notification, so it is only appended. When anything else arrives at a full queue, the positions
/// of all keys are recorded, each once, and dropped when the queue has drained to half of its
/// limit. So a pass over the queue is paid for by as many notifications. A notification that was
/// merged away leaves a hole in the ring. The ring is packed when it has more holes than
/// notifications; otherwise it would grow without bound behind a stuck handler while objects come
/// and go.
pub(super) struct Queue<K> {
    // Inputs.
    queue_max: usize,
    // State.
    ring: VecDeque<Slot<K>>,
    /// The sequence number of the ring's front; the others follow.
    front: u64,
    /// The largest sequence number that the end of the ring ever had. Packing moves notifications
    /// to smaller ones.
    end: u64,
    /// The number of slots that are not holes.
    len: usize,
    /// The number of slots with initial additions.
    initial: usize,
    /// The sequence numbers of the walks.
    walks: VecDeque<u64>,
    /// The sequence number of the newest event of each key, of the events before `indexed` and
    /// after the last walk.
    last: HashMap<Key, u64>,
    indexed: u64,
}

/// An entry of the ring.
enum Slot<K> {
    Event(Event<K>),
    Walk(Box<Walk<K>>),
    Hole,
}

impl<K> Slot<K> {
    fn is_initial(&self) -> bool {
        match self {
            Self::Event(event) => event.in_initial_list(),
            Self::Walk(walk) => walk.in_initial_list,
            Self::Hole => false,
        }
    }
}

/// The result of [`Queue::take`].
pub(super) struct Taken<K> {
    /// The queue has more notifications at once.
    pub(super) has_more: bool,
    /// How many initial additions were taken.
    pub(super) n_initial: usize,
    /// States of the cache that the queue no longer needs.
    pub(super) unused: Option<[Snapshot<K>; 2]>,
}

impl<K> Queue<K> {
    pub(super) fn new(queue_max: usize) -> Self {
        Self {
            queue_max,
            ring: VecDeque::new(),
            front: 0,
            end: 0,
            len: 0,
            initial: 0,
            walks: VecDeque::new(),
            last: HashMap::new(),
            indexed: 0,
        }
    }

    /// About how many events wait; a walk counts with all objects that it has not looked at.
    pub(super) fn len(&self) -> usize {
        let walks =
            self.walks.iter().filter_map(|place| match self.ring.get(self.at(*place)?)? {
                Slot::Walk(walk) => Some(walk.len_max()),
                Slot::Event(_) | Slot::Hole => None,
            });
        self.len - self.walks.len() + walks.sum::<usize>()
    }

    /// The sequence number after everything pushed so far: once [`front`](Self::front) reaches it,
    /// all of that was taken.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The sequence number up to which everything was taken.
    pub(super) fn front(&self) -> u64 {
        self.front
    }

    /// How many notifications with initial additions wait.
    pub(super) fn initial(&self) -> usize {
        self.initial
    }

    pub(super) fn push(&mut self, event: Event<K>) {
        if self.len < self.queue_max || matches!(event, Event::Added { .. }) {
            self.append(Slot::Event(event));
            return;
        }
        self.index();
        let place = self.last.get(event.key()).copied();
        let Some((place, waiting)) = place.and_then(|place| Some((place, self.take_event(place)?)))
        else {
            self.append(Slot::Event(event));
            return;
        };
        match merge(waiting, event) {
            Merged::One(event) => self.put(place, event),
            Merged::Nothing(key) => {
                self.last.remove(&key);
                self.pack();
            }
            Merged::Both(waiting, event) => {
                self.put(place, waiting);
                self.append(Slot::Event(event));
            }
        }
    }

    /// Adds a walk. Returns the entries that it replaces, to be dropped without a lock.
    pub(super) fn push_walk(&mut self, walk: Walk<K>) -> Replaced<K> {
        let last = self.walks.back().copied().filter(|_| self.walks.len() >= WALKS_MAX);
        let joined = last.and_then(|place| Some((place, self.at(place)?)));
        let Some((place, at)) = joined else {
            let place = self.append(Slot::Walk(Box::new(walk)));
            self.walks.push_back(place);
            self.forget_index();
            return Replaced { events: Vec::new(), states: None };
        };
        // The walk includes the changes of the events after the last walk.
        let events: Vec<Slot<K>> = self.ring.drain(at + 1..).collect();
        for slot in events.iter().filter(|slot| !matches!(slot, Slot::Hole)) {
            self.len -= 1;
            self.initial -= usize::from(slot.is_initial());
        }
        let mut walk = Some(walk);
        let mut states = None;
        if let Some(Slot::Walk(last)) = self.ring.get_mut(at) {
            let was_initial = last.in_initial_list;
            states = walk.take().map(|walk| last.join(walk));
            self.initial += usize::from(last.in_initial_list) - usize::from(was_initial);
        }
        debug_assert!(walk.is_none(), "there is a walk at {place}");
        self.forget_index();
        Replaced { events, states }
    }

    /// Moves up to `n_max` events, the oldest first, to the end of `taken`. May move none while a
    /// walk is at the front.
    pub(super) fn take(&mut self, n_max: usize, taken: &mut Vec<Event<K>>) -> Taken<K> {
        let n_before = taken.len();
        let mut unused = None;
        while taken.len() - n_before < n_max
            && let Some(slot) = self.ring.front_mut()
        {
            match slot {
                Slot::Walk(walk) => {
                    walk.step(n_max - (taken.len() - n_before), taken);
                    if walk.is_over()
                        && let Some(Slot::Walk(walk)) = self.pop_front()
                    {
                        unused = Some(walk.into_states());
                    }
                    // One step only: it has looked at as many objects as one poll may.
                    break;
                }
                Slot::Event(_) => {
                    let place = self.front;
                    let Some(Slot::Event(event)) = self.pop_front() else { break };
                    if place < self.indexed && self.last.get(event.key()) == Some(&place) {
                        self.last.remove(event.key());
                    }
                    taken.push(event);
                }
                Slot::Hole => drop(self.pop_front()),
            }
        }
        if self.len == 0 {
            // Only holes are left, if anything. A burst, such as the initial list, leaves no memory
            // behind.
            self.front = self.end;
            self.ring.clear();
            self.ring.shrink_to(IDLE_CAPACITY_MAX);
        }
        if self.len <= self.queue_max / 2 {
            self.forget_index();
        }
        let n_initial = taken[n_before..].iter().filter(|event| event.in_initial_list()).count();
        Taken { has_more: self.len > 0, n_initial, unused }
    }

    /// Empties the queue and returns its content, to be dropped without a lock.
    pub(super) fn clear(&mut self) -> impl Sized + use<K> {
        std::mem::replace(self, Self::new(self.queue_max))
    }

    fn at(&self, place: u64) -> Option<usize> {
        usize::try_from(place.checked_sub(self.front)?).ok()
    }

    /// Takes the event out of a slot, which becomes a hole.
    fn take_event(&mut self, place: u64) -> Option<Event<K>> {
        let at = self.at(place)?;
        let slot = self.ring.get_mut(at).filter(|slot| matches!(slot, Slot::Event(_)))?;
        let Slot::Event(event) = std::mem::replace(slot, Slot::Hole) else { return None };
        self.len -= 1;
        self.initial -= usize::from(event.in_initial_list());
        Some(event)
    }

    fn pop_front(&mut self) -> Option<Slot<K>> {
        let slot = self.ring.pop_front()?;
        if self.walks.front() == Some(&self.front) {
            self.walks.pop_front();
        }
        self.front += 1;
        self.len -= usize::from(!matches!(slot, Slot::Hole));
        self.initial -= usize::from(slot.is_initial());
        Some(slot)
    }

    fn append(&mut self, slot: Slot<K>) -> u64 {
        let place = self.front + self.ring.len() as u64;
        self.len += 1;
        self.initial += usize::from(slot.is_initial());
        self.ring.push_back(slot);
        self.end = self.end.max(place + 1);
        place
    }

    /// Fills a hole.
    fn put(&mut self, place: u64, event: Event<K>) {
        self.len += 1;
        self.initial += usize::from(event.in_initial_list());
        if let Some(slot) = self.at(place).and_then(|at| self.ring.get_mut(at)) {
            *slot = Slot::Event(event);
        }
    }

    /// Records the position of each key's newest event after the last walk, as far as it is not
    /// known yet.
    fn index(&mut self) {
        let after_walk = self.walks.back().map_or(0, |place| place + 1);
        let known = self.indexed.max(after_walk).saturating_sub(self.front);
        let places = (self.front..).zip(&self.ring).skip(known as usize);
        for (place, slot) in places {
            if let Slot::Event(event) = slot {
                self.last.insert(event.key().clone(), place);
            }
        }
        self.indexed = self.front + self.ring.len() as u64;
    }

    fn forget_index(&mut self) {
        self.last = HashMap::new();
        self.indexed = self.front;
    }

    /// Removes the holes when there are more holes than events.
    fn pack(&mut self) {
        if self.ring.len() > 2 * self.len + IDLE_CAPACITY_MAX {
            self.ring.retain(|slot| !matches!(slot, Slot::Hole));
            let places = (self.front..).zip(&self.ring);
            let walks = places.filter(|(_, slot)| matches!(slot, Slot::Walk(_)));
            self.walks = walks.map(|(place, _)| place).collect();
            self.forget_index();
        }
    }
}

/// The entries and states that a walk has replaced, to be freed in slices.
pub(crate) struct Replaced<K> {
    events: Vec<Slot<K>>,
    states: Option<[Snapshot<K>; 2]>,
}

impl<K> Replaced<K> {
    /// The entries, to be dropped one by one, and the states, for [`free`](crate::indexer::free).
    pub(crate) fn into_parts(
        self,
    ) -> (impl Iterator<Item = impl Sized>, impl IntoIterator<Item = Snapshot<K>>) {
        (self.events.into_iter(), self.states.into_iter().flatten())
    }
}

enum Merged<K> {
    Nothing(Key),
    One(Event<K>),
    Both(Event<K>, Event<K>),
}

/// Merges two notifications of one key, if they can be merged.
fn merge<K>(waiting: Event<K>, arriving: Event<K>) -> Merged<K> {
    Merged::One(match (waiting, arriving) {
        (Event::Added { in_initial_list, .. }, Event::Updated { new, .. }) => {
            Event::Added { object: new, in_initial_list }
        }
        (Event::Added { object, .. }, Event::Deleted { .. }) => {
            return Merged::Nothing(object.key().clone());
        }
        (Event::Updated { old, .. }, Event::Updated { new, .. }) => Event::Updated { old, new },
        (waiting @ Event::Deleted { tombstone: Tombstone::Final(_) }, Event::Deleted { .. }) => {
            waiting
        }
        (Event::Deleted { .. }, arriving @ Event::Deleted { .. }) => arriving,
        (waiting, arriving) => return Merged::Both(waiting, arriving),
    })
}

#[cfg(test)]
mod tests;
