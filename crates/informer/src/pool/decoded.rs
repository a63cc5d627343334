//! A few objects that are kept decoded.
//!
//! The value is with its object, so that a hit looks at nothing else and a value never outlives its
//! object; the ring knows which objects have one, and takes it away from those that were not read
//! of late (second chance).
use crate::object::Inner;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// An object's place for its value.
pub(crate) struct Slot<K> {
    value: Mutex<Option<Arc<K>>>,
    /// Read since the hand of the ring passed.
    is_used: AtomicBool,
}

impl<K> Default for Slot<K> {
    fn default() -> Self {
        Self { value: Mutex::new(None), is_used: AtomicBool::new(false) }
    }
}

impl<K> Slot<K> {
    pub(crate) fn get(&self) -> Option<Arc<K>> {
        let value = self.value.lock().clone()?;
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
        Some(value)
    }

    /// Whether it was empty.
    pub(super) fn fill(&self, value: &Arc<K>) -> bool {
        let mut held = self.value.lock();
        let was_empty = held.is_none();
        if was_empty {
            *held = Some(value.clone());
        }
        was_empty
    }

    pub(crate) fn empty(&self) -> Option<Arc<K>> {
        self.value.lock().take()
    }
}

/// What lost its place: to be dropped where it is in nobody's way.
pub(super) type Leaving<K> = (Arc<Inner<K>>, Option<Arc<K>>);

/// The objects that have a value, in the order in which they came.
pub(super) struct Ring<K> {
    places: Vec<Weak<Inner<K>>>,
    hand: usize,
}

impl<K> Default for Ring<K> {
    fn default() -> Self {
        Self { places: Vec::new(), hand: 0 }
    }
}

impl<K> Ring<K> {
    /// Gives an object a place; the object that loses it, and its value.
    pub(super) fn enter(&mut self, inner: &Arc<Inner<K>>, places_max: usize) -> Option<Leaving<K>> {
        let entering = Arc::downgrade(inner);
        if self.places.len() < places_max {
            self.places.push(entering);
            return None;
        }
        // Readers may go on marking: whoever was passed twice goes all the same.
        for _ in 0..2 * self.places.len() {
            match self.places[self.hand].upgrade() {
                Some(held) if held.decoded().is_used.swap(false, Relaxed) => {
                    self.hand = (self.hand + 1) % self.places.len();
                }
                _ => break,
            }
        }
        let leaving = std::mem::replace(&mut self.places[self.hand], entering).upgrade();
        self.hand = (self.hand + 1) % self.places.len();
        let leaving = leaving.filter(|leaving| !Arc::ptr_eq(leaving, inner))?;
        let value = leaving.decoded().empty();
        Some((leaving, value))
    }
}
