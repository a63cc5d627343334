//! The priority queue: the rules PQ-1 to PQ-34, row by row.

use std::{num::NonZeroU32, time::Duration};

use expect_test::{Expect, expect};
use setpoint_workqueue::{AddOptions, AtShutdown, Priorities, WorkQueue};

use crate::script::check_on;

#[track_caller]
fn check(script: &'static str, expect: Expect) {
    check_on(|builder| builder.priorities(Priorities::Strict), script, expect);
}

/// PQ-1, PQ-9: absent means 0, the higher goes first. PQ-23: a hand-out has its priority.
#[test]
fn higher_goes_first_and_absent_is_zero() {
    check(
        "add a -100; add b; add c 7; add d; get; get; get; get; get",
        expect!["got c@7 · got b · got d · got a@-100 · nothing"],
    );
}

/// PQ-2: the smaller of the limiter's delay and the given one. The limiter is charged, also for a
/// ready key.
#[test]
fn rate_limited_and_after_is_the_shorter_and_always_charged() {
    check(
        "retry a 3; sleep 3; get; done a; retry b 100; sleep 4; get; sleep 1; get; done b; requeues a; requeues b",
        expect!["got a · nothing · got b · requeues 1 · requeues 1"],
    );
    check("add a; retry a; retry a; requeues a; waiting", expect!["requeues 2 · waiting 0"]);
}

/// PQ-5: the maximum. A higher add moves the key to the end of the new level; an equal or lower one
/// keeps its place.
#[test]
fn raise_moves_to_the_end_and_no_add_lowers() {
    check(
        "add a; add b 5; add c 5; add a 5; levels; get; get; get",
        expect!["[5: 3] · got b@5 · got c@5 · got a@5"],
    );
    check("add a 5; add b 5; add a 5; add a -5; get; get", expect!["got a@5 · got b@5"]);
    check("after a 10 3; add b 2; after a 10; sleep 10; get; get", expect!["got a@3 · got b@2"]);
}

/// PQ-6: now beats any delay, and the earlier of two delays wins. The delay of an add for a ready
/// key is ignored, its priority is not.
#[test]
fn earliest_time_and_highest_priority_win_in_any_order() {
    check(
        "after a 10 5; add a; waiting; len; get; done a; sleep 10; get",
        expect!["waiting 0 · len 1 · got a@5 · nothing"],
    );
    check(
        "after a 50; after a 10 1; after a 70 2; sleep 10; get; done a; sleep 90; get",
        expect!["got a@2 · nothing"],
    );
    check("add b 5; add a; after a 10 9; waiting; get", expect!["waiting 0 · got a@9"]);
}

/// PQ-7, PQ-24, PQ-25: a held key that is added again counts as ready, but is handed out only after
/// `done`.
#[test]
fn dirty_key_counts_as_ready_but_is_not_handed_out() {
    check(
        "add a; get; add a 3; len; levels; stats; get; done a; len; get; done a; len; levels",
        expect![
            "got a · len 1 · [3: 1] · queued 0 waiting 0 in flight 1 dirty 1 limited 0 · nothing · len 1 · got a@3 · len 0 · []"
        ],
    );
    check("after a 10; add b; len", expect!["len 1"]);
}

/// The table of section 9: a key that is added again while it is held gets the place of that add.
#[test]
fn key_added_while_in_flight_keeps_its_place() {
    check(
        "add a; get; add a; add b; done a; add c; get; get; get",
        expect!["got a · got a · got b · got c"],
    );
    check(
        "add a; get; add a; add b 1; add c 1; add a 1; done a; get; get; get",
        expect!["got a · got b@1 · got c@1 · got a@1"],
    );
}

/// PQ-8: adds after a shutdown are ignored, and do not charge the limiter.
#[test]
fn adds_after_a_shutdown_are_ignored() {
    check("shut_down; add a 5; retry b; len; requeues b", expect!["len 0 · requeues 0"]);
}

/// PQ-20: the order within a level is that of becoming ready, which happens at the next call. Equal
/// due times fall due in the order of their adds.
#[test]
fn due_key_gets_its_place_when_it_falls_due() {
    check(
        "after a 10; add b; sleep 10; len; add c; get; get; get",
        expect!["len 2 · got b · got a · got c"],
    );
    check(
        "after a 10; after b 10 4; after c 10; sleep 10; get; get; get",
        expect!["got b@4 · got a · got c"],
    );
}

/// PQ-21: one key per waiter; held keys are skipped.
#[test]
fn waiters_get_one_key_each_and_held_keys_are_skipped() {
    check(
        "add a 9; get; add a 9; wait w; wait x; add b; add c; poll w; poll x; wait y; done a; poll y",
        expect!["got a@9 · w: got b · x: got c · y: got a@9"],
    );
}

/// PQ-22: a hand-out forgets the priority, a re-add starts clean.
#[test]
fn re_add_starts_clean() {
    check("add a 9; get; add a; add b 1; done a; get; get", expect!["got a@9 · got b@1 · got a"]);
    check("add a 9; get; after a 10; done a; sleep 10; get", expect!["got a@9 · got a"]);
}

/// PQ-30, PQ-33: `get` ends at once, ready keys are abandoned; a second shutdown has no effect.
#[test]
fn shutdown_abandons_ready_keys() {
    check(
        "add a; add b; after c 5; get; add a; wait w; shut_down; shut_down; len; get; done a; get; stats",
        expect![
            "got a · w: got b · len 0 · none · none · queued 0 waiting 0 in flight 1 dirty 0 limited 0"
        ],
    );
}

/// PQ-31, PQ-34: there is no hand-over that could block: a waiter that has left takes no key with
/// it.
#[test]
fn waiter_that_left_at_a_shutdown_holds_no_key() {
    check(
        "wait w; wait x; add a 3; leave w; poll x; shut_down; done a; get; stats",
        expect!["x: got a@3 · none · queued 0 waiting 0 in flight 0 dirty 0 limited 0"],
    );
}

/// PQ-32, by choice: a drain waits for the keys in flight only.
#[test]
fn drain_waits_for_held_keys_only() {
    check(
        "add a; add b; get; drain; get; done a; drained",
        expect!["got a · draining · none · drained"],
    );
}

/// The other choice at a shutdown: WQ-20 with priorities.
#[test]
fn shutdown_hands_out_if_configured() {
    let choose = |builder: setpoint_workqueue::Builder<_>| {
        builder.priorities(Priorities::Strict).at_shutdown(AtShutdown::HandOut)
    };
    check_on(
        choose,
        "add a; add b 5; get; add b; shut_down; get; get; done b; get; get",
        expect!["got b@5 · got a · none · got b · none"],
    );
}

/// PQ-48: a queue without priorities ignores them.
#[test]
fn plain_queue_ignores_priorities() {
    crate::script::check(
        "add a -5; add b 5; add a 9; levels; get; get; after c 10 5; sleep 10; get",
        expect!["[] · got a · got b · got c"],
    );
}

/// Number of hand-outs of a steady supply at 0 before the key at -100.
async fn passed_over(priorities: Priorities) -> Option<usize> {
    let queue = WorkQueue::builder().priorities(priorities).build();
    queue.add_with(u32::MAX, AddOptions::default().priority(-100));
    for n in 0..1000 {
        tokio::time::advance(Duration::from_millis(10)).await;
        queue.add(n);
        if *queue.get().await.unwrap().key() == u32::MAX {
            return Some(n as usize);
        }
    }
    None
}

/// PQ-26: strict priorities starve, ageing and share do not.
#[tokio::test(start_paused = true)]
async fn only_strict_priorities_starve() {
    assert_eq!(passed_over(Priorities::Strict).await, None);
    let step = Duration::from_millis(20);
    let aged = passed_over(Priorities::Ageing { step }).await;
    assert_eq!(aged, Some(200), "100 levels of 20 ms, a hand-out every 10 ms");
    let one_in = NonZeroU32::new(10).unwrap();
    assert_eq!(passed_over(Priorities::Share { one_in }).await, Some(9));
    assert_eq!(passed_over(Priorities::Ageing { step: Duration::ZERO }).await, Some(0));
    assert_eq!(passed_over(Priorities::Share { one_in: NonZeroU32::MIN }).await, Some(0));
}

/// PQ-26: the gauge of starvation.
#[tokio::test(start_paused = true)]
async fn oldest_of_each_level_is_shown() {
    let queue = WorkQueue::builder().priorities(Priorities::Strict).ages(true).build();
    queue.add_with("low", AddOptions::default().priority(-100));
    tokio::time::advance(Duration::from_secs(3)).await;
    queue.add("one");
    queue.add("two");
    tokio::time::advance(Duration::from_secs(1)).await;
    let levels: Vec<_> = queue
        .levels()
        .into_iter()
        .map(|level| (level.priority, level.ready, level.oldest.unwrap().as_secs()))
        .collect();
    assert_eq!(levels, [(0, 2, 1), (-100, 1, 4)]);
    assert_eq!(queue.stats().oldest_queued, Duration::from_secs(4));
}

/// Stale entries of raised keys do not pile up.
#[tokio::test]
async fn repeated_raises_use_no_memory() {
    let queue = WorkQueue::builder().priorities(Priorities::Strict).build();
    queue.add_with(0_u32, AddOptions::default().priority(i32::MIN));
    for n in 0..5_000 {
        queue.add_with(1, AddOptions::default().priority(-5_000 + n));
        queue.add_with(2, AddOptions::default().priority(n % 7));
        if n % 5 == 4 {
            queue.try_get().unwrap().done();
        }
    }
    assert!(queue.levels().len() <= 3, "{:?}", queue.levels());
    let mut left = Vec::new();
    while let Some(item) = queue.try_get() {
        left.push(*item.key());
    }
    left.sort_unstable();
    assert!(left == [0, 1, 2] || left == [0, 1], "{left:?}");
    assert!(queue.levels().is_empty());
}
