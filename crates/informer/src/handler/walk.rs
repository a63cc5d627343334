//! The events that lead from one state of the cache to another.
use crate::event::{Event, Tombstone};
use crate::indexer::{ObjectCursor, Snapshot};
use crate::key::Key;
use crate::object::Raw;
use std::cmp::Ordering;

/// The largest number of objects that one step looks at. Unchanged objects may have no events.
const LOOKS_MAX: usize = 64;

/// All events between two states, made one at a time: how a handler is notified of a relist, of a
/// resync and, when it is added, of the objects that are there (EVT-4, EVT-5, SHI-3).
///
/// # Theory
///
/// To queue a million events takes time and memory, and the distribution lock is held meanwhile. So
/// the queue gets the two states, which takes no time, and the handler's task compares them as fast
/// as the handler takes the events. Both are sorted by key, so one pass over them finds the objects
/// that are gone, and then a second one finds the new and the changed ones. The states stay in
/// memory until then; they share what has not changed.
pub(super) struct Walk<K> {
    // Inputs.
    old: Snapshot<K>,
    new: Snapshot<K>,
    /// Unchanged objects have events, too (SHI-22).
    with_unchanged: bool,
    pub(super) in_initial_list: bool,
    // State.
    phase: Phase,
    /// The next objects, once the phase has begun.
    cursors: Option<(ObjectCursor, ObjectCursor)>,
    /// How many objects of the new state have been looked at.
    n_looked: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Deleted,
    Present,
    Over,
}

impl<K> Walk<K> {
    /// From the first state to the second.
    pub(super) fn new(
        old: Snapshot<K>,
        new: Snapshot<K>,
        with_unchanged: bool,
        in_initial_list: bool,
    ) -> Self {
        let has_deleted = !old.is_empty() && !old.is_same(&new);
        Self {
            old,
            new,
            with_unchanged,
            in_initial_list,
            phase: if has_deleted { Phase::Deleted } else { Phase::Present },
            cursors: None,
            n_looked: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// About how many events are left, at most.
    pub(super) fn len_max(&self) -> usize {
        self.new.len().saturating_sub(self.n_looked)
    }

    /// Adds a later walk that nothing separates from this one: from this walk's first state to the
    /// other's second. Returns the state between them.
    pub(super) fn join(&mut self, later: Self) -> [Snapshot<K>; 2] {
        let in_initial_list = self.in_initial_list || later.in_initial_list;
        let with_unchanged = self.with_unchanged || later.with_unchanged;
        let joined = Self::new(self.old.clone(), later.new, with_unchanged, in_initial_list);
        [std::mem::replace(self, joined).new, later.old]
    }

    /// The two states, to be freed.
    pub(super) fn into_states(self) -> [Snapshot<K>; 2] {
        [self.old, self.new]
    }

    /// Adds the next events, at most `n_max`. Looks at a bounded number of objects, so it may add
    /// none before it is over.
    pub(super) fn step(&mut self, n_max: usize, events: &mut Vec<Event<K>>) {
        let mut n_left = n_max;
        for _ in 0..LOOKS_MAX {
            if n_left == 0 {
                return;
            }
            let (old, new) = match &mut self.cursors {
                Some(cursors) => (&mut cursors.0, &mut cursors.1),
                none => {
                    let (old, new) = (self.old.cursor_from(None), self.new.cursor_from(None));
                    let cursors = none.insert((old, new));
                    (&mut cursors.0, &mut cursors.1)
                }
            };
            let order = order(old.peek(), new.peek());
            let event = match (self.phase, order) {
                (Phase::Deleted, None) => {
                    self.phase = Phase::Present;
                    self.cursors = Some((self.old.cursor_from(None), self.new.cursor_from(None)));
                    continue;
                }
                (Phase::Present | Phase::Over, None) => {
                    self.phase = Phase::Over;
                    return;
                }
                (phase, Some(Ordering::Less)) => {
                    let gone = old.peek().filter(|_| phase == Phase::Deleted).map(tombstone);
                    old.advance();
                    gone
                }
                (Phase::Deleted, Some(order)) => {
                    new.advance();
                    if order.is_eq() {
                        old.advance();
                    }
                    None
                }
                (_, Some(order)) => {
                    self.n_looked += 1;
                    let before = old.peek().filter(|_| order.is_eq()).cloned();
                    let object = new.peek().cloned();
                    new.advance();
                    if order.is_eq() {
                        old.advance();
                    }
                    object.map(|object| self.present(before, object))
                }
            };
            if let Some(event) = event.filter(|event| self.with_unchanged || !event.is_sync()) {
                events.push(event);
                n_left -= 1;
            }
        }
    }

    /// EVT-1 and EVT-2: whether it is an addition depends on the cache.
    fn present(&self, old: Option<Raw>, object: Raw) -> Event<K> {
        let object = object.into_type();
        match old {
            Some(old) => Event::Updated { old: old.into_type(), new: object },
            None => Event::Added { object, in_initial_list: self.in_initial_list },
        }
    }
}

/// The order of the next keys of two states; `None` at the end of both.
fn order(old: Option<&Raw>, new: Option<&Raw>) -> Option<Ordering> {
    match (old, new) {
        (None, None) => None,
        (Some(_), None) => Some(Ordering::Less),
        (None, Some(_)) => Some(Ordering::Greater),
        (Some(old), Some(new)) => Some(old.key().cmp(new.key())),
    }
}

fn tombstone<K>(gone: &Raw) -> Event<K> {
    let key: Key = gone.key().clone();
    Event::Deleted { tombstone: Tombstone::Missed { key, last_known: Some(gone.cast()) } }
}
