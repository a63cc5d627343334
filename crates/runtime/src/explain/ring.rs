//! The passes that began last.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::pass::{Began, KeyedPass, Pass};

/// A ring of passes, in order of their begin. A pass takes over the place of the oldest, and with
/// it its memory: once the ring is full, to begin a pass allocates nothing, unless the oldest is
/// still held by what runs, or by what it left behind.
pub(super) struct Ring<R> {
    controller: Arc<str>,
    passes_max: usize,
    state: Mutex<State<R>>,
}

struct State<R> {
    passes: Vec<Arc<KeyedPass<R>>>,
    /// The place of the oldest, once all are taken.
    oldest: usize,
}

impl<R> Ring<R> {
    /// A ring that remembers so many passes. Zero remembers none.
    pub(super) fn new(controller: Arc<str>, passes_max: usize) -> Self {
        let state = State { passes: Vec::new(), oldest: 0 };
        Self { controller, passes_max, state: Mutex::new(state) }
    }

    pub(super) fn controller(&self) -> &Arc<str> {
        &self.controller
    }

    pub(super) fn is_off(&self) -> bool {
        self.passes_max == 0
    }

    /// A pass that begins, in the place of the oldest. A blind one only knows what was written.
    pub(super) fn begin(&self, key: R, began: Began, is_blind: bool) -> Arc<KeyedPass<R>> {
        if self.is_off() {
            return self.fresh(key, began, is_blind);
        }
        let mut state = self.state.lock();
        let State { passes, oldest } = &mut *state;
        if passes.len() < self.passes_max {
            let pass = self.fresh(key, began, is_blind);
            passes.push(pass.clone());
            return pass;
        }
        let place = &mut passes[*oldest];
        *oldest = if *oldest + 1 == self.passes_max { 0 } else { *oldest + 1 };
        let Some(over) = Arc::get_mut(place) else {
            let pass = self.fresh(key, began, is_blind);
            let held = std::mem::replace(place, pass.clone());
            drop(state);
            drop(held);
            return pass;
        };
        // What is of the user's is dropped after the lock.
        let old = std::mem::replace(&mut over.key, key);
        over.pass.renew(began, is_blind);
        let pass = place.clone();
        drop(state);
        drop(old);
        pass
    }

    fn fresh(&self, key: R, began: Began, is_blind: bool) -> Arc<KeyedPass<R>> {
        let (controller, pass) = (self.controller.clone(), Pass::new(began, is_blind));
        Arc::new(KeyedPass { controller, key, pass })
    }

    /// The passes whose key is asked for, newest first.
    pub(super) fn select(&self, mut is_asked: impl FnMut(&R) -> bool) -> Vec<Arc<KeyedPass<R>>> {
        let mut passes: Vec<Arc<KeyedPass<R>>> = {
            let state = self.state.lock();
            let (newer, older) = state.passes.split_at(state.oldest);
            newer.iter().rev().chain(older.iter().rev()).cloned().collect()
        };
        passes.retain(|pass| is_asked(&pass.key));
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Cause;

    fn ring(passes_max: usize) -> Ring<i32> {
        Ring::new("c".into(), passes_max)
    }

    fn begin(ring: &Ring<i32>, key: i32) -> Arc<KeyedPass<i32>> {
        ring.begin(key, Began::now(Cause::External), false)
    }

    fn keys(ring: &Ring<i32>) -> Vec<i32> {
        ring.select(|_| true).iter().map(|pass| pass.key).collect()
    }

    #[test]
    fn newest_passes_stay_and_come_first() {
        let ring = ring(3);
        for (n, told) in [vec![0], vec![1, 0], vec![2, 1, 0], vec![3, 2, 1], vec![4, 3, 2]]
            .into_iter()
            .enumerate()
        {
            begin(&ring, n as i32);
            assert_eq!(keys(&ring), told);
        }
        assert_eq!(ring.select(|key| *key == 3).len(), 1);
    }

    #[test]
    fn place_of_a_pass_that_is_over_is_taken_over_and_that_of_one_that_is_held_is_not() {
        let ring = ring(2);
        let held = begin(&ring, 0);
        let over = Arc::as_ptr(&begin(&ring, 1));
        let third = begin(&ring, 2);
        assert!(!Arc::ptr_eq(&held, &third));
        // What holds it still finds its own.
        assert_eq!((held.key, third.key), (0, 2));
        assert_eq!(Arc::as_ptr(&begin(&ring, 3)), over);
        assert_eq!(keys(&ring), [3, 2]);
    }

    #[test]
    fn ring_of_nothing_remembers_nothing() {
        let ring = ring(0);
        let pass = begin(&ring, 1);
        assert!(ring.is_off() && ring.select(|_| true).is_empty());
        assert_eq!(Arc::strong_count(&pass), 1);
    }
}
