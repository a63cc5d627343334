//! Keys that rest: nobody's work, and not to be handed out.

use std::num::NonZeroU32;

use expect_test::expect;
use setpoint_workqueue::{AtShutdown, Group, Priorities};

use crate::script::{check, check_on};

#[test]
fn resting_key_is_not_handed_out_and_what_is_added_meanwhile_is_one_hand_out_after() {
    check(
        "add a; rest a; stats; add a; add a; get; stats; done a; get; done a; get; stats",
        expect![
            "queued 0 waiting 0 in flight 0 dirty 0 limited 0 · nothing · queued 0 waiting 0 in flight 0 dirty 1 limited 0 · got a · nothing · queued 0 waiting 0 in flight 0 dirty 0 limited 0"
        ],
    );
}

#[test]
fn delay_passes_while_a_key_rests() {
    check(
        "add a; rest a; after a 10; sleep 10; get; done a; get; done a; add b; rest b; after b 10; done b; get; sleep 10; get",
        expect!["nothing · got a · nothing · got b"],
    );
}

#[test]
fn resting_key_keeps_no_place_of_its_group() {
    check_on(
        |builder| builder.groups(|_| Group::of("all")).group_in_flight_max(NonZeroU32::MIN),
        "add a; add b; rest a; rest b; add c; get; done a; done b; get",
        expect!["got c · nothing"],
    );
}

#[test]
fn drain_waits_for_keys_that_rest_and_hands_out_what_became_dirty() {
    check(
        "add a; rest a; add a; drain; get; done a; get; drained; done a; drained; get",
        expect!["draining · nothing · got a · draining · drained · none"],
    );
}

#[test]
fn worker_that_waits_at_shutdown_is_told_of_the_end_when_nothing_rests() {
    check(
        "add a; rest a; wait w; shut_down; poll w; done a; poll w",
        expect!["w: nothing · w: none"],
    );
}

#[test]
fn what_a_resting_key_is_wanted_for_is_dropped_where_a_shutdown_abandons() {
    check_on(
        |builder| builder.priorities(Priorities::Strict).at_shutdown(AtShutdown::Abandon),
        "add a; rest a; add a; shut_down; done a; get; stats",
        expect!["none · queued 0 waiting 0 in flight 0 dirty 0 limited 0"],
    );
}
