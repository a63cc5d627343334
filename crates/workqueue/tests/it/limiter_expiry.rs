//! The state of limiters and its expiry (RL-11), and the windowed limiter.

use std::time::Duration;

use proptest::prelude::*;
use setpoint_workqueue::{
    Exponential, FastSlow, LimiterError, RateLimiter, WINDOW_ATTEMPTS_MAX, Windowed,
};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// RL-11, property 18: `forget` leaves no state, for any number of keys.
#[test]
fn forget_leaves_nothing() {
    let limiter = Exponential::new(SECOND, SECOND).unwrap();
    let now = Instant::now();
    (0..100_000_u32).for_each(|key| _ = limiter.when(&key, now));
    assert_eq!(limiter.len(), 100_000);
    (0..100_000_u32).for_each(|key| limiter.forget(&key));
    assert!(limiter.is_empty());
}

/// RL-11: keys that fail and vanish are dropped after the idle time, and after twice that at the
/// latest.
#[test]
fn idle_keys_expire() {
    let limiter = Exponential::new(SECOND, 4 * SECOND).unwrap().expire_idle(8 * SECOND).unwrap();
    let start = Instant::now();
    (0..100).for_each(|key| _ = limiter.when(&key, start));
    for second in 1..=16 {
        // One key keeps failing: it is used, so it stays and its delay grows.
        let delay = limiter.when(&0, start + second * SECOND);
        assert_eq!(delay, SECOND * 2_u32.pow(second.min(2)));
        let expected = if second < 16 { 100 } else { 1 };
        assert_eq!(limiter.len(), expected, "after {second} s");
    }
    assert_eq!((limiter.num_requeues(&0), limiter.num_requeues(&1)), (17, 0));
    // After a long pause all state is gone, and the first delay comes first again.
    assert_eq!(limiter.when(&1, start + 100 * SECOND), SECOND);
    assert_eq!(limiter.len(), 1);
    limiter.forget(&1);
    assert!(limiter.is_empty());
}

#[test]
fn idle_time_that_would_expire_a_waiting_key_is_refused() {
    let limiter = Exponential::<u8>::new(SECOND, 4 * SECOND).unwrap();
    let error = limiter.expire_idle(7 * SECOND).unwrap_err();
    assert_eq!(error, LimiterError::Idle { idle: 7 * SECOND, longest: 4 * SECOND });
    assert!(FastSlow::<u8>::new(4 * SECOND, SECOND, 3).expire_idle(7 * SECOND).is_err());
    assert!(Windowed::<u8>::new(1, SECOND).unwrap().expire_idle(SECOND).is_err());
    let fast_slow = FastSlow::new(SECOND, SECOND, 3).expire_idle(2 * SECOND).unwrap();
    let start = Instant::now();
    fast_slow.when(&1, start);
    fast_slow.when(&2, start + 4 * SECOND);
    assert_eq!(fast_slow.len(), 1);
}

/// RL-14 for the windowed limiter.
#[test]
fn invalid_window_is_refused() {
    assert!(Windowed::<u8>::new(0, SECOND).is_err());
    assert!(Windowed::<u8>::new(WINDOW_ATTEMPTS_MAX + 1, SECOND).is_err());
    assert!(Windowed::<u8>::new(1, Duration::ZERO).is_err());
}

#[test]
fn windowed_has_no_delay_until_the_window_is_full() {
    let limiter = Windowed::new(2, 10 * SECOND).unwrap();
    let start = Instant::now();
    let when = |second: u32| limiter.when(&"a", start + second * SECOND).as_secs();
    assert_eq!([when(0), when(1), when(2), when(3)], [0, 0, 8, 8]);
    assert_eq!(limiter.when(&"b", start), Duration::ZERO);
    assert_eq!((limiter.num_requeues(&"a"), limiter.num_requeues(&"b")), (4, 1));
    assert_eq!(when(60), 0);
    limiter.forget(&"a");
    assert_eq!((limiter.num_requeues(&"a"), limiter.len()), (0, 1));
}

proptest! {
    /// No window has more than `n` attempts, wherever it begins.
    #[test]
    fn no_window_exceeds_its_limit(steps in proptest::collection::vec(0..3000_u64, 1..80), n in 1..6_u32) {
        let window = 2 * SECOND;
        let limiter = Windowed::new(n, window).unwrap();
        let mut now = Instant::now();
        let mut through = Vec::new();
        for ms in steps {
            now += Duration::from_millis(ms);
            through.push(now + limiter.when(&1, now));
        }
        for (idx, begin) in through.iter().enumerate() {
            let within = through[idx..].iter().filter(|at| **at < *begin + window).count();
            prop_assert!(within <= n as usize, "{within} in a window of {n}");
        }
    }
}
