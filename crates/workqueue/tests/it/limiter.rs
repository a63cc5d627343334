//! The delays of each limiter.

use std::time::Duration;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use setpoint_workqueue::{
    AddOptions, Bucket, ByError, Exponential, FastSlow, Jitter, LimiterError, MaxOf, MaxWait, Pace,
    RateLimiter, WorkQueue, controller_default, item_default, priority_default,
};
use tokio::time::Instant;

/// The delays of `n` attempts of one key at one moment.
#[track_caller]
fn check(limiter: &dyn RateLimiter<&'static str>, n: usize, expect: Expect) {
    let now = Instant::now();
    let delays: Vec<String> = (0..n).map(|_| format!("{:?}", limiter.when(&"a", now))).collect();
    expect.assert_eq(&delays.join(" "));
}

/// RL-1, RL-9, property 8.
#[test]
fn exponential_doubles_to_its_cap_and_starts_over_when_forgotten() {
    let limiter = MaxOf::new(vec![Box::new(
        Exponential::new(Duration::from_millis(5), Duration::from_secs(1000)).unwrap(),
    ) as Box<dyn RateLimiter<&'static str>>])
    .unwrap();
    check(
        &limiter,
        20,
        expect![
            "5ms 10ms 20ms 40ms 80ms 160ms 320ms 640ms 1.28s 2.56s 5.12s 10.24s 20.48s 40.96s 81.92s 163.84s 327.68s 655.36s 1000s 1000s"
        ],
    );
    for _ in 0..10_000 {
        assert_eq!(limiter.when(&"a", Instant::now()), Duration::from_secs(1000));
    }
    assert_eq!(
        (limiter.num_requeues(&"a"), limiter.num_requeues(&"b"), limiter.len()),
        (10_020, 0, 1)
    );
    limiter.forget(&"a");
    assert!(limiter.is_empty());
    check(&limiter, 1, expect!["5ms"]);
}

/// RL-6, RL-7, RL-8.
#[test]
fn defaults_are_those_of_client_go() {
    check(&item_default(), 3, expect!["1ms 2ms 4ms"]);
    check(&priority_default(), 3, expect!["5ms 10ms 20ms"]);
    let limiter = controller_default();
    let now = Instant::now();
    let delays: Vec<Duration> = (0..120).map(|key| limiter.when(&key, now)).collect();
    assert!(
        delays[..100].iter().all(|delay| *delay == Duration::from_millis(5)),
        "the burst pays the first back-off only"
    );
    assert_eq!(delays[100], Duration::from_millis(100));
    assert_eq!(delays[119], Duration::from_secs(2));
}

/// RL-2.
#[test]
fn bucket_is_refilled_at_its_rate_up_to_its_burst() {
    let bucket = Bucket::new(10.0, 2).unwrap();
    check(&bucket, 4, expect!["0ns 0ns 100ms 200ms"]);
    let later = Instant::now() + Duration::from_secs(3600);
    let delays: Vec<Duration> = (0..3).map(|_| bucket.when(&"a", later)).collect();
    assert_eq!(delays, [Duration::ZERO, Duration::ZERO, Duration::from_millis(100)]);
    assert_eq!(RateLimiter::<&str>::num_requeues(&bucket, &"a"), 0);
}

/// RL-12, RL-13: under overload the delay grows without bound, long after the burst. The bucket
/// does not see that delays end together.
#[test]
fn thousand_failures_at_once_wait_for_their_tokens() {
    let bucket = Bucket::new(10.0, 100).unwrap();
    let now = Instant::now();
    let last = (0..1000).map(|key| bucket.when(&key, now)).max();
    assert_eq!(last, Some(Duration::from_secs(90)));
}

/// RL-3.
#[test]
fn fast_slow_turns_slow_after_its_fast_tries() {
    check(
        &FastSlow::new(Duration::from_millis(1), Duration::from_secs(1), 2),
        4,
        expect!["1ms 1ms 1s 1s"],
    );
}

/// RL-5.
#[test]
fn max_wait_caps_and_the_inner_one_still_counts() {
    let limiter = MaxWait::new(
        Exponential::new(Duration::from_millis(1), Duration::from_secs(1)).unwrap(),
        Duration::from_millis(3),
    );
    check(&limiter, 4, expect!["1ms 2ms 3ms 3ms"]);
    assert_eq!(RateLimiter::<&str>::num_requeues(&limiter, &"a"), 4);
}

/// RL-4, property 10.
#[test]
fn max_of_charges_every_member_once() {
    let limiter = MaxOf::both(
        FastSlow::new(Duration::from_millis(50), Duration::ZERO, 1),
        Exponential::new(Duration::from_millis(1), Duration::from_secs(1)).unwrap(),
    );
    check(&limiter, 3, expect!["50ms 2ms 4ms"]);
    assert_eq!(limiter.num_requeues(&"a"), 3);
}

/// An error like a client's: its cause has the delay.
#[derive(Debug, thiserror::Error)]
#[error("the request failed")]
struct Failed(#[source] Cause);

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("too many requests")]
    TooMany(Duration),
    #[error("conflict")]
    Conflict,
    #[error("other")]
    Other,
}

/// controller-runtime#2040: the limiter sees the error through any wrapper.
#[tokio::test(start_paused = true)]
async fn error_sets_the_delay() {
    let ms = Duration::from_millis;
    let pace = |error: &(dyn std::error::Error + 'static)| {
        let mut chain = std::iter::successors(Some(error), |error| error.source());
        match chain.find_map(|error| error.downcast_ref()) {
            Some(Cause::TooMany(after)) => Pace::AtLeast(*after),
            Some(Cause::Conflict) => Pace::Instead(Duration::ZERO),
            Some(Cause::Other) | None => Pace::Usual,
        }
    };
    let usual = Exponential::new(ms(5), Duration::from_secs(1)).unwrap();
    let seeing = MaxWait::new(
        Jitter::new(MaxOf::both(ByError::new(usual, pace), FastSlow::new(ms(1), ms(1), 0)), 0.0)
            .unwrap(),
        ms(400),
    );
    let queue = WorkQueue::builder().rate_limiter(seeing).build();
    let delay = |cause| {
        queue.add_failed("a", &Failed(cause), AddOptions::default());
        let due_in = queue.entry(&"a").unwrap().due_in.unwrap();
        queue.cancel_delayed(&"a");
        (due_in, queue.num_requeues(&"a"))
    };
    assert_eq!(delay(Cause::Other), (ms(5), 1));
    assert_eq!(delay(Cause::TooMany(ms(300))), (ms(300), 2));
    assert_eq!(delay(Cause::TooMany(ms(1))), (ms(20), 3), "not before the usual time");
    assert_eq!(delay(Cause::Conflict), (ms(1), 4), "the other member still counts");
    assert_eq!(delay(Cause::Other), (ms(40), 5), "a conflict did not count");
    assert_eq!(delay(Cause::TooMany(ms(1000))), (ms(400), 6), "the cap is around it");

    queue.add_failed("b", &Failed(Cause::Other), AddOptions::default().after(ms(2)));
    assert_eq!(queue.entry(&"b").unwrap().due_in, Some(ms(2)), "PQ-2: the shorter of both");
    queue.shut_down();
    queue.add_failed("c", &Failed(Cause::Other), AddOptions::default());
    assert_eq!((queue.num_requeues(&"c"), queue.entry(&"c")), (0, None));
}

/// RL-14.
#[test]
fn invalid_parameters_are_refused() {
    let second = Duration::from_secs(1);
    let errors = [
        Exponential::<u8>::new(Duration::ZERO, second).map(drop),
        Exponential::<u8>::new(second, Duration::from_millis(1)).map(drop),
        Bucket::new(0.0, 1).map(drop),
        Bucket::new(f64::NAN, 1).map(drop),
        Bucket::new(1.0, 0).map(drop),
        MaxOf::<u8>::new(Vec::new()).map(drop),
        Jitter::new((), -0.1).map(drop),
    ];
    let errors: Vec<String> = errors
        .into_iter()
        .map(|error: Result<(), LimiterError>| error.unwrap_err().to_string())
        .collect();
    expect![[r#"
        the first delay is zero
        the longest delay, 1ms, is below the first, 1s
        the rate is 0 a second: it must be above zero and finite
        the rate is NaN a second: it must be above zero and finite
        the burst is zero
        `MaxOf` needs at least one limiter
        the jitter is -0.1 of the delay: it must be zero or above, and finite"#]]
    .assert_eq(&errors.join("\n"));
}

#[test]
fn jitter_without_a_seed_differs_between_queues() {
    let now = Instant::now();
    let delays = || {
        let second = Duration::from_secs(1);
        let jitter = Jitter::new(FastSlow::new(second, second, 0), 1.0).unwrap();
        [(); 4].map(|()| jitter.when(&"a", now))
    };
    assert_ne!(delays(), delays());
}

proptest! {
    /// RL-10.
    #[test]
    fn jitter_adds_up_to_its_fraction_and_depends_on_its_seed_only(seed: u64, fraction in 0.0..2.0_f64) {
        let make = || Jitter::new(FastSlow::new(Duration::from_secs(1), Duration::from_secs(1), 0), fraction).unwrap().seed(seed);
        let (one, other) = (make(), make());
        let now = Instant::now();
        for _ in 0..20 {
            let delay = one.when(&"a", now);
            prop_assert!(delay >= Duration::from_secs(1) && delay.as_secs_f64() <= 1.0 + fraction + 1e-6);
            prop_assert_eq!(delay, other.when(&"a", now));
        }
    }

    /// Property 9.
    #[test]
    fn bucket_never_exceeds_burst_and_rate(steps in proptest::collection::vec(0..500_u64, 1..60), burst in 1..5_u32) {
        let bucket = Bucket::new(10.0, burst).unwrap();
        let start = Instant::now();
        let mut now = start;
        let mut let_through: Vec<Duration> = Vec::new();
        for ms in steps {
            now += Duration::from_millis(ms);
            let_through.push(now + bucket.when(&"a", now) - start);
        }
        for (idx, from) in let_through.iter().enumerate() {
            for (n, to) in let_through[idx..].iter().enumerate() {
                let allowed = f64::from(burst) + 10.0 * (to.as_secs_f64() - from.as_secs_f64()) + 1e-3;
                prop_assert!((n + 1) as f64 <= allowed + 1.0);
            }
        }
    }
}
