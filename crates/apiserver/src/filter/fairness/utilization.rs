//! How much of a level's limits is in use, over time.

use setpoint_registry::figures::Distribution;
use std::time::Duration;

/// Upper bounds of the part of the seats that is in use, as kube-apiserver's.
pub(super) const SEATS: &[f64] =
    &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
/// Upper bounds of the part of the requests.
pub(super) const REQUESTS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];

/// A part of a limit, weighted with the time for which it was that: as if it was observed each
/// nanosecond.
#[derive(Debug, Clone)]
pub(super) struct Utilization {
    bounds: &'static [f64],
    /// Nanoseconds; one more than there are bounds.
    nanos: Box<[u64]>,
    /// Of parts, each times its nanoseconds.
    sum: f64,
    /// The part since then.
    part: f64,
    since: Duration,
}

impl Utilization {
    /// Nothing is in use from `now` on.
    pub(super) fn new(bounds: &'static [f64], now: Duration) -> Self {
        let nanos = vec![0; bounds.len() + 1].into();
        Self { bounds, nanos, sum: 0.0, part: 0.0, since: now }
    }

    /// So much of a limit is in use from `now` on.
    pub(super) fn set(&mut self, in_use: u64, limit: u64, now: Duration) {
        self.advance(now);
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
        let part = in_use as f64 / limit.max(1) as f64;
        self.part = part;
    }

    /// What was observed until `now`.
    pub(super) fn read(&self, now: Duration) -> Distribution {
        let mut read = self.clone();
        read.advance(now);
        let bounds = read.bounds.iter().copied().chain([f64::INFINITY]);
        Distribution { buckets: bounds.zip(read.nanos).collect(), sum: read.sum }
    }

    /// Observes the present part. Time that was read before another thread's is no time.
    fn advance(&mut self, now: Duration) {
        let nanos = now.saturating_sub(self.since).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let bucket = self.bounds.partition_point(|bound| *bound < self.part);
        self.nanos[bucket] = self.nanos[bucket].saturating_add(nanos);
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
        let weight = nanos as f64;
        self.sum += self.part * weight;
        self.since = self.since.max(now);
    }
}

/// What a level uses of its limits, as metrics show it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UtilizationFigures {
    /// Seats in use, as parts of those that the level may use.
    pub seats: Distribution,
    /// Requests that run, as parts of the same seats.
    pub executing: Distribution,
    /// Requests that wait, as parts of the room in the queues.
    pub waiting: Distribution,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_weighted_with_their_time() {
        let at = Duration::from_nanos;
        let mut seats = Utilization::new(SEATS, at(1000));
        seats.set(1, 4, at(1010));
        seats.set(4, 4, at(1050));
        // A clock of another thread.
        seats.set(0, 4, at(1040));
        let Distribution { buckets, sum } = seats.read(at(1100));
        let nanos = |bound: f64| {
            let bucket = buckets.iter().find(|(found, _)| found.to_bits() == bound.to_bits());
            bucket.unwrap().1
        };
        assert_eq!((nanos(0.0), nanos(0.3), nanos(1.0)), (10 + 50, 40, 0));
        assert!((sum - 10.0).abs() < 1e-9, "{sum}");
        assert_eq!(seats.read(at(1100)).count(), 100);
    }
}
