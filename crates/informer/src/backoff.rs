//! The waits of a reflector between failures.
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tokio::time::Instant;

/// The first wait: 800 ms, as client-go's reflector.
pub const BACKOFF_MIN: Duration = Duration::from_millis(800);
/// The longest wait before jitter: 30 s, as client-go's reflector. With jitter, the reflector of a
/// missing type sends a request every 30 to 60 s.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// The time after which the waits start over: 2 min, as client-go's reflector.
pub const BACKOFF_RESET: Duration = Duration::from_secs(120);

/// Longer periods count as ten years, which is never: a later moment might not be representable.
pub(crate) const SPAN_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The waits of one reflector: doubling from `min` to `max`, each with jitter.
///
/// A wait is `b` plus a uniform share of `b`, so it is in `[b, 2b)`. The sequence starts over when
/// more than [`BACKOFF_RESET`] has passed since its last start, *not* since the last failure
/// (REF-31): a server that always fails sees a small burst every two minutes.
#[derive(Debug, Clone)]
pub struct Backoff {
    // Inputs.
    min: Duration,
    max: Duration,
    rng: SmallRng,
    // State.
    base: Duration,
    reset_at: Option<Instant>,
}

impl Backoff {
    /// Waits from `min` to `max`, with jitter from `rng`. A `max` below `min` counts as `min`.
    pub fn new(min: Duration, max: Duration, rng: SmallRng) -> Self {
        let min = min.min(SPAN_MAX);
        Self { min, max: max.min(SPAN_MAX).max(min), rng, base: min, reset_at: None }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let now = Instant::now();
        if self.reset_at.is_none_or(|reset_at| now.duration_since(reset_at) > BACKOFF_RESET) {
            self.base = self.min;
            self.reset_at = Some(now);
        }
        let base = self.base;
        self.base = (base * 2).min(self.max);
        base + base.mul_f64(self.rng.random::<f64>())
    }
}

/// A generator for a named part of an informer, so that parts do not share a sequence.
pub(crate) fn rng(seed: u64, part: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ref_31_waits_double_with_jitter_up_to_the_cap() {
        for seed in 0..50 {
            let mut backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX, rng(seed, 0));
            for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
                let wait = backoff.next_wait().as_secs_f64();
                assert!((base - 1e-9..2.0 * base).contains(&wait), "{wait} for {base}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ref_31_the_sequence_restarts_two_minutes_after_its_start_however_busy() {
        let mut backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX, rng(1, 0));
        let mut last = Duration::ZERO;
        for _ in 0..13 {
            last = backoff.next_wait();
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert!(last >= BACKOFF_MAX, "the cap is reached and kept: {last:?}");
        assert!(backoff.next_wait() < 2 * BACKOFF_MIN, "130 s after the start");
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_is_not_constant() {
        let mut backoff = Backoff::new(BACKOFF_MAX, BACKOFF_MAX, rng(3, 0));
        let waits: std::collections::BTreeSet<_> = (0..20).map(|_| backoff.next_wait()).collect();
        assert!(waits.len() > 15, "{waits:?}");
    }
}
