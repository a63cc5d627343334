//! How many bytes of events there are.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes of the events that were made with it and are still held by somebody.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    n_bytes: Arc<AtomicUsize>,
}
impl Meter {
    /// How many there are now.
    pub(crate) fn bytes(&self) -> usize {
        // Relaxed: a bound that is noticed a little later holds all the same.
        self.n_bytes.load(Ordering::Relaxed)
    }
}

/// What one event adds to a meter, until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Weight {
    meter: Option<Meter>,
    n_bytes: AtomicUsize,
}
impl Weight {
    pub(super) fn new(meter: &Meter) -> Self {
        Self { meter: Some(meter.clone()), n_bytes: AtomicUsize::new(0) }
    }
    pub(super) fn add(&self, n_bytes: usize) {
        if let Some(meter) = &self.meter {
            self.n_bytes.fetch_add(n_bytes, Ordering::Relaxed);
            meter.n_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        }
    }
}
impl Drop for Weight {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.n_bytes.fetch_sub(*self.n_bytes.get_mut(), Ordering::Relaxed);
        }
    }
}
