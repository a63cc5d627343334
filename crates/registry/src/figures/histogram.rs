//! Histograms of atomic counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts of values by size. Counting takes two atomic additions and no lock. A reader may see a
/// count before its part of the sum.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds of the buckets, ascending: seconds or bytes.
    bounds: &'static [f64],
    /// One more than there are bounds: the last one has none.
    counts: Box<[AtomicU64]>,
    /// Nanoseconds or bytes.
    sum: AtomicU64,
}

/// A histogram as it was when it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Upper bound and count of each bucket. Not cumulative; the last one has no bound.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
}

impl Distribution {
    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
    /// Adds the counts of another one with the same buckets.
    pub fn add(&mut self, other: &Self) {
        for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum += other.sum;
    }
}

impl Histogram {
    /// An empty histogram. `bounds` are the upper bounds of its buckets, ascending: seconds for
    /// [`Histogram::time`], bytes for [`Histogram::size`].
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }
    /// Counts a duration. Beyond 584 years of sum, it starts again at zero.
    pub fn time(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.count(duration.as_secs_f64(), nanos);
    }
    /// Counts a number of bytes.
    pub fn size(&self, n_bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "only compared with bounds")]
        let value = n_bytes as f64;
        self.count(value, n_bytes);
    }
    fn count(&self, value: f64, addend: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(addend, Relaxed);
    }
    /// Its state, if it counts durations.
    pub fn times(&self) -> Distribution {
        self.read(Duration::from_nanos(self.sum.load(Relaxed)).as_secs_f64())
    }
    /// Its state, if it counts bytes.
    pub fn sizes(&self) -> Distribution {
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
        self.read(self.sum.load(Relaxed) as f64)
    }
    fn read(&self, sum: f64) -> Distribution {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        Distribution { buckets: bounds.zip(counts).collect(), sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_is_below_it() {
        let times = Histogram::new(&[0.5, 1.0]);
        for millis in [500, 501, 1000, 1001] {
            times.time(Duration::from_millis(millis));
        }
        let read = times.times();
        assert_eq!(read.buckets, [(0.5, 1), (1.0, 2), (f64::INFINITY, 1)]);
        assert!((read.sum - 3.002).abs() < 1e-9, "{}", read.sum);
        let mut both = read.clone();
        both.add(&read);
        assert_eq!((both.count(), both.buckets[1].1), (8, 4));
        let sizes = Histogram::new(&[1000.0]);
        sizes.size(1000);
        sizes.size(1001);
        assert_eq!(sizes.sizes().buckets, [(1000.0, 1), (f64::INFINITY, 1)]);
    }
}
