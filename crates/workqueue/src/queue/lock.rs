//! The lock, as far as the queue needs one.

use parking_lot::Mutex;

/// A lock that is held for one step: no guard leaves it.
pub(super) trait Lock<T> {
    fn new(value: T) -> Self;

    /// Runs `step` while nobody else does.
    fn with<R>(&self, step: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn with<R>(&self, step: impl FnOnce(&mut T) -> R) -> R {
        step(&mut self.lock())
    }
}
