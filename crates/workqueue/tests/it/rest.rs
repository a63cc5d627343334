//! Resting keys: held by no worker, and not handed out.

use std::num::NonZeroU32;

use expect_test::expect;
use setpoint_workqueue::{AtShutdown, Group, Priorities, WorkQueue};

use crate::script::{check, check_on};

#[test]
fn resting_key_is_not_handed_out_and_adds_meanwhile_are_one_hand_out_after() {
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
fn resting_key_does_not_count_for_its_group() {
    check_on(
        |builder| builder.groups(|_| Group::of("all")).group_in_flight_max(NonZeroU32::MIN),
        "add a; add b; rest a; rest b; add c; get; done a; done b; get",
        expect!["got c · nothing"],
    );
}

#[test]
fn drain_waits_for_resting_keys_and_hands_out_dirty_ones() {
    check(
        "add a; rest a; add a; drain; get; done a; get; drained; done a; drained; get",
        expect!["draining · nothing · got a · draining · drained · none"],
    );
}

#[test]
fn waiting_worker_sees_the_shutdown_when_no_key_rests() {
    check(
        "add a; rest a; wait w; shut_down; poll w; done a; poll w",
        expect!["w: nothing · w: none"],
    );
}

#[test]
fn adds_of_a_resting_key_are_dropped_by_an_abandoning_shutdown() {
    check_on(
        |builder| builder.priorities(Priorities::Strict).at_shutdown(AtShutdown::Abandon),
        "add a; rest a; add a; shut_down; done a; get; stats",
        expect!["none · queued 0 waiting 0 in flight 0 dirty 0 limited 0"],
    );
}

/// A key whose copies may fail.
#[derive(PartialEq, Eq, Hash)]
struct Fragile(u8);

thread_local! {
    static FAILS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!FAILS.get(), "no copy");
        Self(self.0)
    }
}

#[test]
fn key_that_cannot_be_copied_is_given_back() {
    let queue = WorkQueue::<Fragile>::builder().build();
    for rests in [false, true] {
        queue.add(Fragile(1));
        let item = queue.try_get().unwrap();
        FAILS.set(true);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if rests {
                drop(item.rest());
            } else {
                drop(item.into_owned());
            }
        }));
        FAILS.set(false);
        assert!(failed.is_err());
        let stats = queue.stats();
        assert_eq!((stats.in_flight, stats.resting, stats.queued), (0, 0, 0));
    }
}
