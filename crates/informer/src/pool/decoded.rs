//! Objects that are kept decoded beside their bytes, bounded in bytes.
//!
//! The values are with their object, so that a hit looks at nothing else and a value never outlives
//! its object. [`Places`] knows which objects have values, and takes them away from some when there
//! are too many bytes. It has two parts:
//!
//! | part  | of the bytes | who enters                                                | who leaves               |
//! |-------|--------------|-----------------------------------------------------------|--------------------------|
//! | new   | a quarter    | every object that was decoded                             | the oldest               |
//! | main  | the rest     | what leaves `new` and was read again there, or fits as it is | what was not read of late (second chance) |
//!
//! So a pass over more objects than fit leaves `main` as it is, and finds there in the next pass
//! what it left: a ring in order of use would lose each object just before it is read again. Of
//! what passes through, one in [`ADMITTED`] may still take the place of something in `main` that is
//! not read any more.
use crate::object::{AnyValue, Inner};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// How many types of values one object keeps: a reader of one more takes the place of the first.
const TYPES_MAX: usize = 4;

/// Of so many objects that leave `new` unread, one looks for a place in `main`.
const ADMITTED: usize = 16;

/// The part of all bytes that `new` has.
const NEW_PART: usize = 4;

/// A value that takes more than this part of all bytes is not kept.
const VALUE_PART: usize = 8;

/// What an entry takes beside its value: its places and the counters of its allocations.
const ENTRY_BYTES: usize = 96;

/// An object's place for its values: one for each type that was read, mostly one.
#[derive(Default)]
pub(crate) struct Slot {
    held: Mutex<Option<Box<Held>>>,
    /// Read since it was last looked at.
    is_used: AtomicBool,
}

#[derive(Default)]
struct Held {
    values: Vec<(AnyValue, usize)>,
    is_main: bool,
}

impl Held {
    fn n_bytes(&self) -> usize {
        ENTRY_BYTES + self.values.iter().map(|(_, n_bytes)| n_bytes).sum::<usize>()
    }
}

impl Slot {
    pub(crate) fn get<K: Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        let value = {
            let held = self.held.lock();
            let mut values = held.as_ref()?.values.iter();
            values.find(|(value, _)| (**value).is::<K>())?.0.clone()
        };
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
        value.downcast().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.lock().is_none()
    }
}

/// Values that lost their place: to be dropped where that is in nobody's way.
#[derive(Default)]
pub(super) struct Leaving(Vec<(Option<Arc<Inner>>, Option<Box<Held>>)>);

/// The objects that have values.
#[derive(Default)]
pub(super) struct Places {
    /// In the order in which they came.
    new: VecDeque<Weak<Inner>>,
    main: Vec<Weak<Inner>>,
    hand: usize,
    new_bytes: usize,
    main_bytes: usize,
    /// How many objects have values; the other places are of objects that are gone.
    n_held: usize,
    n_dropped: usize,
}

impl Places {
    /// How many bytes all values take.
    pub(super) fn n_bytes(&self) -> usize {
        self.new_bytes + self.main_bytes
    }

    /// Keeps a value with its object.
    pub(super) fn enter(
        &mut self,
        inner: &Arc<Inner>,
        value: AnyValue,
        n_bytes: usize,
        n_bytes_max: usize,
    ) -> Leaving {
        let mut leaving = Leaving::default();
        if n_bytes > n_bytes_max / VALUE_PART {
            return leaving;
        }
        {
            let slot = inner.decoded();
            let mut held = slot.held.lock();
            let is_new = held.is_none();
            let held = held.get_or_insert_default();
            let of = (*value).type_id();
            if held.values.iter().any(|(known, _)| (**known).type_id() == of) {
                return leaving;
            }
            let before = if is_new { 0 } else { held.n_bytes() };
            if held.values.len() == TYPES_MAX {
                let (first, _) = held.values.remove(0);
                leaving.0.push((
                    None,
                    Some(Box::new(Held { values: vec![(first, 0)], is_main: false })),
                ));
            }
            held.values.reserve_exact(1);
            held.values.push((value, n_bytes));
            let bytes = if held.is_main { &mut self.main_bytes } else { &mut self.new_bytes };
            *bytes = (*bytes + held.n_bytes()).saturating_sub(before);
            if is_new {
                self.n_held += 1;
                // What it was read before counts for nothing.
                slot.is_used.store(false, Relaxed);
                self.new.push_back(Arc::downgrade(inner));
            }
        }
        self.shrink(n_bytes_max, &mut leaving);
        leaving
    }

    /// The object has left the cache.
    pub(super) fn leave(&mut self, inner: &Inner) -> Leaving {
        let mut leaving = Leaving::default();
        self.empty(inner, &mut leaving);
        // The places of objects that are gone: once they are as many as the others.
        if self.new.len() + self.main.len() > 2 * self.n_held + 64 {
            let is_held = |place: &Weak<Inner>| {
                place.upgrade().is_some_and(|inner| !inner.decoded().is_empty())
            };
            self.new.retain(is_held);
            self.main.retain(is_held);
            self.hand = 0;
        }
        leaving
    }

    fn shrink(&mut self, n_bytes_max: usize, leaving: &mut Leaving) {
        let new_max = n_bytes_max / NEW_PART;
        let main_max = n_bytes_max - new_max;
        while self.new_bytes > new_max {
            let Some(place) = self.new.pop_front() else { return };
            let Some(inner) = place.upgrade() else { continue };
            let Some(n_bytes) = inner.decoded().held.lock().as_ref().map(|held| held.n_bytes())
            else {
                continue;
            };
            let fits = self.main_bytes + n_bytes <= main_max;
            let stays = fits || inner.decoded().is_used.swap(false, Relaxed) || {
                self.n_dropped += 1;
                self.n_dropped.is_multiple_of(ADMITTED) && self.has_unused()
            };
            if !stays {
                self.empty(&inner, leaving);
                leaving.0.push((Some(inner), None));
                continue;
            }
            // Those in `main` may all be read all the time: then they go in turn.
            let mut n_looks = 2 * self.main.len();
            while self.main_bytes + n_bytes > main_max && !self.main.is_empty() {
                self.turn(n_looks == 0, leaving);
                n_looks = n_looks.saturating_sub(1);
            }
            if let Some(held) = &mut *inner.decoded().held.lock() {
                held.is_main = true;
            }
            self.new_bytes = self.new_bytes.saturating_sub(n_bytes);
            self.main_bytes += n_bytes;
            self.main.push(place);
            leaving.0.push((Some(inner), None));
        }
    }

    /// Whether the next one in `main` was not read since it was last looked at; looks at it.
    fn has_unused(&mut self) -> bool {
        let Some(place) = self.main.get(self.hand) else {
            self.hand = 0;
            return false;
        };
        let is_used =
            place.upgrade().is_some_and(|held| held.decoded().is_used.swap(false, Relaxed));
        if is_used {
            self.hand = (self.hand + 1) % self.main.len();
        }
        !is_used
    }

    /// Takes the next one out of `main`, unless it was read of late.
    fn turn(&mut self, even_if_used: bool, leaving: &mut Leaving) {
        if self.hand >= self.main.len() {
            self.hand = 0;
        }
        let held = self.main[self.hand].upgrade();
        let is_used = held.as_ref().is_some_and(|held| held.decoded().is_used.swap(false, Relaxed));
        if is_used && !even_if_used {
            self.hand += 1;
            leaving.0.push((held, None));
            return;
        }
        self.main.swap_remove(self.hand);
        self.hand += 1;
        if let Some(held) = held {
            self.empty(&held, leaving);
            leaving.0.push((Some(held), None));
        }
    }

    fn empty(&mut self, inner: &Inner, leaving: &mut Leaving) {
        let Some(held) = inner.decoded().held.lock().take() else { return };
        let bytes = if held.is_main { &mut self.main_bytes } else { &mut self.new_bytes };
        *bytes = bytes.saturating_sub(held.n_bytes());
        self.n_held = self.n_held.saturating_sub(1);
        leaving.0.push((None, Some(held)));
    }
}
