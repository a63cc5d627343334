//! Decoded values beside the encoded objects, bounded in bytes.
//!
//! Each object has its values, so a hit reads nothing else and a value never outlives its object.
//! [`Places`] records which objects have values, and evicts values when they take too many bytes.
//! It has two parts:
//!
//! | part  | of the bytes | entry                                                     | eviction                 |
//! |-------|--------------|-----------------------------------------------------------|--------------------------|
//! | new   | a quarter    | every decoded object                                      | the oldest               |
//! | main  | the rest     | objects evicted from `new` that were read again there, or that fit | not read recently (second chance) |
//!
//! So a pass over more objects than fit does not change `main`, and the next pass finds its objects
//! there; LRU would evict each object just before it is read again. One in [`ADMITTED`] of the
//! passing objects may still replace an object in `main` that is no longer read.
use crate::object::{AnyValue, Inner};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The largest number of types whose values one object keeps; another one replaces the first.
const TYPES_MAX: usize = 4;

/// One of this many objects that leave `new` unread may enter `main`.
const ADMITTED: usize = 16;

/// `new` has one of this many parts of all bytes.
const NEW_PART: usize = 4;

/// A value larger than one of this many parts of all bytes is not kept.
const VALUE_PART: usize = 8;

/// The bytes of an entry beside its value.
const ENTRY_BYTES: usize = 96;

/// The values of an object: one for each type that was read, mostly one.
#[derive(Default)]
pub(crate) struct Slot {
    held: Mutex<Option<Box<Held>>>,
}

/// A value, and its bytes.
type Decoded = (AnyValue, usize);

struct Held {
    first: Decoded,
    /// Those of other types. Most objects are read as one.
    others: Vec<Decoded>,
    is_main: bool,
    /// Whether they were read since the last check.
    is_used: bool,
}

impl Held {
    fn values(&self) -> impl Iterator<Item = &Decoded> {
        [&self.first].into_iter().chain(&self.others)
    }

    fn n_bytes(&self) -> usize {
        ENTRY_BYTES + self.values().map(|(_, n_bytes)| n_bytes).sum::<usize>()
    }

    /// Adds a value; returns the one that gives its place to it.
    fn add(&mut self, value: Decoded) -> Option<AnyValue> {
        let is_full = self.others.len() + 1 == TYPES_MAX;
        let gone = is_full.then(|| {
            let next = self.others.remove(0);
            std::mem::replace(&mut self.first, next).0
        });
        self.others.reserve_exact(1);
        self.others.push(value);
        gone
    }
}

impl Slot {
    pub(crate) fn get<K: Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        let value = {
            let mut held = self.held.lock();
            let held = held.as_mut()?;
            let value = held.values().find(|(value, _)| (**value).is::<K>())?.0.clone();
            held.is_used = true;
            value
        };
        value.downcast().ok()
    }

    /// Whether its values were read since the last call.
    fn take_used(&self) -> bool {
        self.held.lock().as_mut().is_some_and(|held| std::mem::take(&mut held.is_used))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.lock().is_none()
    }
}

/// Evicted values and checked objects, to be dropped without the lock: dropping a value runs the
/// user's code, and dropping an object takes the lock.
#[derive(Default)]
pub(super) struct Leaving {
    /// Mostly one, for which there is no list.
    first: Option<Box<Held>>,
    others: Vec<Held>,
    /// Of an object that has others.
    single: Option<AnyValue>,
    objects: Vec<Arc<Inner>>,
}

impl Leaving {
    /// The object of a place, kept alive until this is dropped.
    fn look(&mut self, place: &Weak<Inner>) -> Option<Arc<Inner>> {
        let inner = place.upgrade()?;
        self.objects.push(inner.clone());
        Some(inner)
    }
}

/// The objects that have values.
#[derive(Default)]
pub(super) struct Places {
    /// In the order of entry.
    new: VecDeque<Weak<Inner>>,
    main: Vec<Weak<Inner>>,
    hand: usize,
    new_bytes: usize,
    main_bytes: usize,
    /// The number of objects with values; the other places are of dropped objects.
    n_held: usize,
    n_dropped: usize,
}

impl Places {
    /// The size of all values, bytes.
    pub(super) fn n_bytes(&self) -> usize {
        self.new_bytes + self.main_bytes
    }

    /// Stores a value with its object.
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
            let (is_new, before) = match &mut *held {
                Some(held) => {
                    let of = (*value).type_id();
                    if held.values().any(|(known, _)| (**known).type_id() == of) {
                        return leaving;
                    }
                    let before = held.n_bytes();
                    leaving.single = held.add((value, n_bytes));
                    (false, before)
                }
                none => {
                    let first = (value, n_bytes);
                    let others = Vec::new();
                    *none = Some(Box::new(Held { first, others, is_main: false, is_used: false }));
                    (true, 0)
                }
            };
            let Some(held) = held.as_ref() else { return leaving };
            let bytes = if held.is_main { &mut self.main_bytes } else { &mut self.new_bytes };
            *bytes = (*bytes + held.n_bytes()).saturating_sub(before);
            if is_new {
                self.n_held += 1;
                self.new.push_back(Arc::downgrade(inner));
            }
        }
        self.shrink(n_bytes_max, &mut leaving);
        leaving
    }

    /// The object has left the cache or is being dropped.
    pub(super) fn leave(&mut self, inner: &Inner) -> Leaving {
        let mut leaving = Leaving::default();
        self.empty(inner, &mut leaving);
        // Remove the places of dropped objects when they are as many as the others.
        if self.new.len() + self.main.len() > 2 * self.n_held + 64 {
            let mut is_held = |place: &Weak<Inner>| {
                leaving.look(place).is_some_and(|inner| !inner.decoded().is_empty())
            };
            self.new.retain(&mut is_held);
            self.main.retain(&mut is_held);
            self.hand = 0;
        }
        leaving
    }

    fn shrink(&mut self, n_bytes_max: usize, leaving: &mut Leaving) {
        let new_max = n_bytes_max / NEW_PART;
        let main_max = n_bytes_max - new_max;
        while self.new_bytes > new_max {
            let Some(place) = self.new.pop_front() else { return };
            let Some(inner) = leaving.look(&place) else { continue };
            // An object that left and was read again has two places, but moves once.
            let n_bytes = match &*inner.decoded().held.lock() {
                Some(held) if !held.is_main => held.n_bytes(),
                _ => continue,
            };
            let fits = self.main_bytes + n_bytes <= main_max;
            let stays = fits || inner.decoded().take_used() || {
                self.n_dropped += 1;
                self.n_dropped.is_multiple_of(ADMITTED) && self.has_unused(leaving)
            };
            if !stays {
                self.empty(&inner, leaving);
                continue;
            }
            // If all objects in `main` are read constantly, they are evicted in turn.
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
        }
    }

    /// Whether the next object in `main` was not read since the last check; resets its mark.
    fn has_unused(&mut self, leaving: &mut Leaving) -> bool {
        if self.hand >= self.main.len() {
            self.hand = 0;
        }
        let Some(place) = self.main.get(self.hand) else { return false };
        let held = leaving.look(place);
        let is_used = held.is_some_and(|held| held.decoded().take_used());
        self.hand += usize::from(is_used);
        !is_used
    }

    /// Evicts the next object of `main`, unless it was read recently.
    fn turn(&mut self, even_if_used: bool, leaving: &mut Leaving) {
        if self.hand >= self.main.len() {
            self.hand = 0;
        }
        let held = leaving.look(&self.main[self.hand]);
        let is_used = held.as_ref().is_some_and(|held| held.decoded().take_used());
        if is_used && !even_if_used {
            self.hand += 1;
            return;
        }
        self.main.swap_remove(self.hand);
        self.hand += 1;
        if let Some(held) = held {
            self.empty(&held, leaving);
        }
    }

    fn empty(&mut self, inner: &Inner, leaving: &mut Leaving) {
        let Some(held) = inner.decoded().held.lock().take() else { return };
        let bytes = if held.is_main { &mut self.main_bytes } else { &mut self.new_bytes };
        *bytes = bytes.saturating_sub(held.n_bytes());
        self.n_held = self.n_held.saturating_sub(1);
        match leaving.first {
            None => leaving.first = Some(held),
            Some(_) => leaving.others.push(*held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use crate::policy::CachePolicy;
    use crate::testing::record;
    use k8s_openapi::api::core::v1::ConfigMap;

    /// Two objects fit into `new`, and six into `main`.
    const BYTES_MAX: usize = 8 * (ENTRY_BYTES + 100);

    fn objects(n: u64) -> Vec<Object<ConfigMap>> {
        (0..n).map(|n| Object::new(record(&format!("m{n}"), 1), CachePolicy::Compact)).collect()
    }

    fn read(places: &mut Places, object: &Object<ConfigMap>) -> bool {
        if object.ready_as::<u64>().is_some() {
            return true;
        }
        drop(places.enter(object.inner(), Arc::new(7u64), 100, BYTES_MAX));
        false
    }

    #[test]
    fn repeated_scan_of_too_many_objects_hits_those_in_main() {
        let (mut places, objects) = (Places::default(), objects(40));
        for _ in 0..3 {
            objects.iter().for_each(|object| _ = read(&mut places, object));
            assert!(places.n_bytes() <= BYTES_MAX);
        }
        let n_found = objects.iter().filter(|object| read(&mut places, object)).count();
        assert!(n_found >= 4, "{n_found}");
    }

    #[test]
    fn objects_no_longer_read_are_evicted_for_those_that_are() {
        let (mut places, objects) = (Places::default(), objects(80));
        objects[..8].iter().for_each(|object| _ = read(&mut places, object));
        // Now others are read, each twice in a row.
        for object in &objects[40..60] {
            assert!(!read(&mut places, object));
            assert!(read(&mut places, object));
        }
        assert!(objects[..8].iter().all(|object| object.ready_as::<u64>().is_none()));
        let kept = objects[40..60].iter().filter(|object| object.ready_as::<u64>().is_some());
        assert!(kept.count() >= 7);
    }

    #[test]
    fn removed_object_is_not_counted_and_its_place_is_freed() {
        let mut places = Places::default();
        for object in objects(1000) {
            read(&mut places, &object);
            assert!(places.n_bytes() > 0);
            drop(places.leave(object.inner()));
            assert_eq!((places.n_bytes(), object.ready_as::<u64>()), (0, None));
        }
        assert!(places.new.len() + places.main.len() <= 65);
    }

    #[test]
    fn object_removed_and_read_again_is_counted_once() {
        let (mut places, objects) = (Places::default(), objects(40));
        for _ in 0..3 {
            read(&mut places, &objects[0]);
            drop(places.leave(objects[0].inner()));
        }
        for object in &objects {
            read(&mut places, object);
            let held = objects.iter().filter(|object| object.ready_as::<u64>().is_some());
            assert_eq!(places.n_bytes(), held.count() * (ENTRY_BYTES + 100));
        }
    }

    #[test]
    fn one_object_has_decoded_values_of_several_types() {
        let (mut places, objects) = (Places::default(), objects(1));
        let object = &objects[0];
        let mut keep = |value: AnyValue| drop(places.enter(object.inner(), value, 10, 1 << 20));
        keep(Arc::new(1u8));
        keep(Arc::new(2u16));
        keep(Arc::new(3u32));
        keep(Arc::new(4u64));
        keep(Arc::new(5i8));
        assert_eq!(object.ready_as::<u8>(), None, "the first gave its place");
        assert_eq!(
            (object.ready_as::<u16>(), object.ready_as::<i8>()),
            (Some(2.into()), Some(5.into()))
        );
        assert_eq!(places.n_bytes(), ENTRY_BYTES + 40);
    }

    #[test]
    fn value_larger_than_an_eighth_of_the_limit_is_not_cached() {
        let (mut places, objects) = (Places::default(), objects(1));
        drop(places.enter(objects[0].inner(), Arc::new(7u64), 126, 1000));
        assert_eq!((places.n_bytes(), objects[0].ready_as::<u64>()), (0, None));
    }
}
