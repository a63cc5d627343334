//! The last passes of a controller.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::pass::{Began, KeyedPass, Pass};

/// A ring of passes, ordered by start. A new pass reuses the memory of the oldest, so a full ring
/// allocates nothing, unless the oldest pass is still in use.
pub(super) struct Ring<R> {
    controller: Arc<str>,
    passes_max: usize,
    state: Mutex<State<R>>,
}

struct State<R> {
    passes: Vec<Arc<KeyedPass<R>>>,
    /// The index of the oldest pass, once the ring is full.
    oldest: usize,
}

impl<R> Ring<R> {
    /// A ring of at most `passes_max` passes. Zero records none.
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

    /// Starts a pass, in the place of the oldest. A blind pass records its writes only.
    pub(super) fn begin(&self, key: R, began: Began, writes_only: bool) -> Arc<KeyedPass<R>> {
        if self.is_off() {
            return self.fresh(key, began, writes_only);
        }
        let mut state = self.state.lock();
        let State { passes, oldest } = &mut *state;
        if passes.len() < self.passes_max {
            let pass = self.fresh(key, began, writes_only);
            passes.push(pass.clone());
            return pass;
        }
        let place = &mut passes[*oldest];
        *oldest = if *oldest + 1 == self.passes_max { 0 } else { *oldest + 1 };
        let Some(over) = Arc::get_mut(place) else {
            let pass = self.fresh(key, began, writes_only);
            let held = std::mem::replace(place, pass.clone());
            drop(state);
            drop(held);
            return pass;
        };
        // User values are dropped after the lock.
        let old = std::mem::replace(&mut over.key, key);
        over.pass.renew(began, writes_only);
        let pass = place.clone();
        drop(state);
        drop(old);
        pass
    }

    fn fresh(&self, key: R, began: Began, writes_only: bool) -> Arc<KeyedPass<R>> {
        let (controller, pass) = (self.controller.clone(), Pass::new(began, writes_only));
        Arc::new(KeyedPass { controller, key, pass })
    }

    /// The passes with a matching key, newest first.
    pub(super) fn select(&self, mut matches: impl FnMut(&R) -> bool) -> Vec<Arc<KeyedPass<R>>> {
        let mut passes: Vec<Arc<KeyedPass<R>>> = {
            let state = self.state.lock();
            let (newer, older) = state.passes.split_at(state.oldest);
            newer.iter().rev().chain(older.iter().rev()).cloned().collect()
        };
        passes.retain(|pass| matches(&pass.key));
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
        for (n, expected) in [vec![0], vec![1, 0], vec![2, 1, 0], vec![3, 2, 1], vec![4, 3, 2]]
            .into_iter()
            .enumerate()
        {
            begin(&ring, n as i32);
            assert_eq!(keys(&ring), expected);
        }
        assert_eq!(ring.select(|key| *key == 3).len(), 1);
    }

    #[test]
    fn memory_of_an_ended_pass_is_reused_and_that_of_one_in_use_is_not() {
        let ring = ring(2);
        let held = begin(&ring, 0);
        let over = Arc::as_ptr(&begin(&ring, 1));
        let third = begin(&ring, 2);
        assert!(!Arc::ptr_eq(&held, &third));
        // The pass that is still in use is unchanged.
        assert_eq!((held.key, third.key), (0, 2));
        assert_eq!(Arc::as_ptr(&begin(&ring, 3)), over);
        assert_eq!(keys(&ring), [3, 2]);
    }

    #[test]
    fn ring_of_size_zero_records_nothing() {
        let ring = ring(0);
        let pass = begin(&ring, 1);
        assert!(ring.is_off() && ring.select(|_| true).is_empty());
        assert_eq!(Arc::strong_count(&pass), 1);
    }
}
