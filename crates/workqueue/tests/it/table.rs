//! The crate page's tables, cell by cell.

use expect_test::expect;

use crate::script::check;

/// WQ-2, WQ-4, WQ-5, WQ-10.
#[test]
fn keys_are_handed_out_in_the_order_of_their_first_add() {
    check(
        "add a; add b; add a; add c; get; get; get; get",
        expect!["got a · got b · got c · nothing"],
    );
}

/// WQ-3, WQ-9, WQ-12, property 3.
#[test]
fn key_added_while_in_flight_is_handed_out_again_after_done() {
    check(
        "add a; get; add a; add a; len; get; done a; len; get; done a; get",
        expect!["got a · len 0 · nothing · len 1 · got a · nothing"],
    );
}

/// WQ-7.
#[test]
fn key_added_while_in_flight_goes_behind_queued_keys() {
    check("add a; get; add a; add b; done a; get; get", expect!["got a · got b · got a"]);
}

/// WQ-33, WQ-34, WQ-38: `waiting` counts waiting keys; property 5.
#[test]
fn waiting_key_becomes_queued_when_due() {
    check(
        "after a 10; len; waiting; get; sleep 9; get; sleep 1; len; waiting; get",
        expect!["len 0 · waiting 1 · nothing · nothing · len 1 · waiting 0 · got a"],
    );
}

/// CLK-3.
#[test]
fn due_keys_come_earliest_first_even_when_time_jumps() {
    check(
        "after c 30; after a 10; after b 20; sleep 100; get; get; get",
        expect!["got a · got b · got c"],
    );
}

/// WQ-32, property 6.
#[test]
fn second_delay_keeps_the_earlier_due_time() {
    check(
        "after a 10; after a 50; waiting; sleep 10; get; done a; sleep 100; get",
        expect!["waiting 1 · got a · nothing"],
    );
    check(
        "after a 50; after a 10; waiting; sleep 10; get; done a; sleep 100; get",
        expect!["waiting 1 · got a · nothing"],
    );
}

/// WQ-36 and WQ-37, by choice; property 7.
#[test]
fn plain_add_consumes_the_waiting_entry() {
    check(
        "after a 10; add a; waiting; get; done a; sleep 10; get",
        expect!["waiting 0 · got a · nothing"],
    );
}

/// WQ-37, by choice.
#[test]
fn delay_for_a_queued_or_dirty_key_is_ignored() {
    check(
        "add a; after a 10; waiting; get; add a; after a 10; waiting; done a; get; done a; sleep 10; get",
        expect!["waiting 0 · got a · waiting 0 · got a · nothing"],
    );
}

/// WQ-33, WQ-42.
#[test]
fn delay_while_in_flight_starts_at_the_call_and_survives_done() {
    check(
        "add a; get; after a 10; waiting; sleep 4; done a; waiting; get; sleep 6; get",
        expect!["got a · waiting 1 · waiting 1 · nothing · got a"],
    );
}

/// WQ-3, WQ-34.
#[test]
fn key_that_falls_due_while_in_flight_is_dirty() {
    check(
        "add a; get; after a 10; sleep 10; len; get; done a; get",
        expect!["got a · len 0 · nothing · got a"],
    );
}

/// WQ-37, by choice.
#[test]
fn add_while_returning_consumes_the_waiting_entry() {
    check(
        "add a; get; after a 10; add a; waiting; done a; get; done a; sleep 10; get",
        expect!["got a · waiting 0 · got a · nothing"],
    );
}

/// WQ-30.
#[test]
fn zero_delay_is_a_plain_add() {
    check("after a 0; len; waiting", expect!["len 1 · waiting 0"]);
}

/// WQ-37.
#[test]
fn cancelled_delay_causes_no_hand_out() {
    check(
        "after a 10; cancel a; cancel a; waiting; sleep 10; get; add a; get; after a 5; cancel a; done a; sleep 5; get",
        expect![
            "cancelled true · cancelled false · waiting 0 · nothing · got a · cancelled true · nothing"
        ],
    );
}

/// WQ-37.
#[test]
fn delay_that_is_over_cannot_be_cancelled() {
    check("after a 10; sleep 10; cancel a; get", expect!["cancelled false · got a"]);
}

/// WQ-40, WQ-42, WQ-43.
#[test]
fn rate_limited_adds_double_until_forgotten() {
    check(
        "retry a; sleep 4; len; sleep 1; get; retry a; done a; requeues a; sleep 9; len; sleep 1; get; forget a; requeues a; retry a; \
         done a; sleep 5; get",
        expect!["len 0 · got a · requeues 2 · len 0 · got a · requeues 0 · got a"],
    );
}

/// WQ-41.
#[test]
fn forget_changes_the_limiter_only() {
    check(
        "add a; retry b; forget a; forget b; stats",
        expect!["queued 1 waiting 1 in flight 0 dirty 0 limited 0"],
    );
}

/// WQ-38, MET-6.
#[test]
fn stats_count_each_state() {
    check(
        "add a; add b; add c; after d 5; retry e; get; get; add a; after b 5; stats",
        expect!["got a · got b · queued 1 waiting 3 in flight 2 dirty 1 limited 1"],
    );
}

/// WQ-13, property 17. WQ-8 cannot be written: only a handed-out item has `done`.
#[test]
fn panicking_worker_gives_its_key_back() {
    check("add a; get; add a; panic a; get", expect!["got a · got a"]);
}

/// WQ-1, WQ-6, WQ-20, WQ-39, property 11.
#[test]
fn shutdown_hands_out_queued_keys_and_ignores_later_adds() {
    check(
        "add a; add b; after c 10; shut_down; add d; after e 0; waiting; get; get; get; sleep 10; get",
        expect!["waiting 0 · got a · got b · none · none"],
    );
}

/// WQ-21.
#[test]
fn key_dirty_before_the_shutdown_is_handed_out_and_a_later_add_is_lost() {
    check(
        "add a; add b; get; get; add a; shut_down; add b; done a; done b; get; get",
        expect!["got a · got b · got a · none"],
    );
}

/// WQ-24, WQ-39.
#[test]
fn shutdown_drops_the_delay_of_a_held_key() {
    check(
        "add a; get; after a 10; shut_down; shut_down; done a; sleep 10; get",
        expect!["got a · none"],
    );
}

/// WQ-22, made stronger; property 12.
#[test]
fn drain_waits_for_queued_and_held_keys() {
    check(
        "add a; add b; get; drain; done a; drained; get; drained; done b; drained; get",
        expect!["got a · draining · draining · got b · draining · drained · none"],
    );
}

/// WQ-39.
#[test]
fn drain_of_an_idle_queue_returns_at_once_despite_waiting_keys() {
    check("after a 1000; drain; waiting; get", expect!["drained · waiting 0 · none"]);
}

/// WQ-23, WQ-25.
#[test]
fn shutdown_during_a_drain_ends_it() {
    check(
        "add a; get; drain; shut_down; drained; drain",
        expect!["got a · draining · drained · draining"],
    );
}

/// WQ-4, WQ-5, WQ-6.
#[test]
fn waiter_is_woken_by_an_add_a_due_time_and_a_shutdown() {
    check(
        "wait w; poll w; add a; poll w; wait x; after b 10; poll x; sleep 10; poll x; wait y; shut_down; poll y",
        expect!["w: nothing · w: got a · x: nothing · x: got b · y: none"],
    );
}

/// WQ-14, property 13.
#[test]
fn waiter_that_leaves_takes_no_notification_with_it() {
    check("wait w; wait x; add a; leave w; poll x", expect!["x: got a"]);
    check(
        "wait w; wait x; after a 10; poll w; poll x; leave w; poll x; sleep 10; poll x",
        expect!["w: nothing · x: nothing · x: nothing · x: got a"],
    );
}

/// WQ-35: the timekeeper is notified of an earlier due time, without a heartbeat.
#[test]
fn earlier_due_time_wakes_the_timekeeper() {
    check(
        "after a 100; wait w; after b 10; poll w; sleep 10; poll w",
        expect!["w: nothing · w: got b"],
    );
}

/// WQ-34.
#[test]
fn several_waiters_share_keys_that_fall_due_together() {
    check(
        "wait w; wait x; wait y; after a 10; after b 10; after c 10; poll w; poll x; poll y; sleep 10; poll w; poll x; poll y",
        expect!["w: nothing · x: nothing · y: nothing · w: got a · x: got b · y: got c"],
    );
}

/// WQ-35.
#[test]
fn timekeeper_of_a_cancelled_due_time_wakes_for_the_next() {
    check(
        "after a 10; wait w; cancel a; sleep 10; poll w; after b 10; sleep 10; poll w",
        expect!["cancelled true · w: nothing · w: got b"],
    );
}
