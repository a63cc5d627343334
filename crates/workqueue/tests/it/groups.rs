//! Fairness between groups of keys.

use std::num::NonZeroU32;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use setpoint_workqueue::{AddOptions, Builder, Group, Priorities, WorkQueue};

use crate::script::{Key, check_on};

/// A group per first letter; those of `w` weigh three.
fn by_letter(builder: Builder<Key>) -> Builder<Key> {
    builder.groups(|key| {
        let letter = &key[..1];
        let weight = NonZeroU32::new(if letter == "w" { 3 } else { 1 }).unwrap();
        Group::of(letter).weight(weight)
    })
}

#[track_caller]
fn check(script: &'static str, expect: Expect) {
    check_on(by_letter, script, expect);
}

#[test]
fn groups_take_turns_and_keys_of_a_group_come_in_order() {
    check(
        "add a1; add a2; add a3; add a4; add b1; add b2; get; get; get; get; get; get",
        expect!["got a1 · got b1 · got a2 · got b2 · got a3 · got a4"],
    );
}

#[test]
fn group_is_served_its_weight_per_round() {
    check(
        "add a1; add a2; add w1; add w2; add w3; add w4; get; get; get; get; get; get",
        expect!["got a1 · got w1 · got w2 · got w3 · got a2 · got w4"],
    );
}

#[test]
fn late_group_waits_one_round_only() {
    check("add a1; add a2; add a3; get; add b1; get; get", expect!["got a1 · got a2 · got b1"]);
}

#[test]
fn priority_comes_before_fairness_which_holds_within_a_level() {
    check_on(
        |builder| by_letter(builder).priorities(Priorities::Strict),
        "add a1; add b1; add a2 5; add a3 5; add b2 5; get; get; get; get; get",
        expect!["got a2@5 · got b2@5 · got a3@5 · got a1 · got b1"],
    );
}

#[test]
fn group_holds_at_most_its_limit_of_workers() {
    check_on(
        |builder| by_letter(builder).group_in_flight_max(NonZeroU32::new(2).unwrap()),
        "add a1; add a2; add a3; add a4; get; get; get; len; wait w; add b1; poll w; wait w; poll w; done a1; poll w; get; done a2; get",
        expect![
            "got a1 · got a2 · nothing · len 2 · w: got b1 · w: nothing · w: got a3 · nothing · got a4"
        ],
    );
}

/// WQ-20 with blocked groups: the queue has not ended while it has their keys.
#[test]
fn shutdown_ends_after_the_last_blocked_key() {
    check_on(
        |builder| by_letter(builder).group_in_flight_max(NonZeroU32::MIN),
        "add a1; add a2; get; wait w; wait x; shut_down; poll w; done a1; poll w; poll x; done a2; get",
        expect!["got a1 · w: nothing · w: got a2 · x: none · none"],
    );
}

/// The search of all groups for each raised key took most of the time, under the queue's lock.
#[test]
fn keys_of_many_groups_are_raised() {
    const N_GROUPS: u32 = 50_000;
    let queue = WorkQueue::builder().priorities(Priorities::Strict).groups(Group::of).build();
    (0..N_GROUPS).for_each(|key: u32| queue.add(key));
    let raised = || (0..N_GROUPS).rev().filter(|key| key % 4 != 0);
    raised().for_each(|key| queue.add_with(key, AddOptions::default().priority(1)));
    let rest = (0..N_GROUPS).filter(|key| key % 4 == 0);
    for key in raised().chain(rest) {
        assert_eq!(queue.try_get().map(|item| *item.key()), Some(key));
    }
    assert!(queue.is_empty());
}

proptest! {
    /// Whatever the storm of one tenant, no key waits for more than one key of each other tenant at
    /// a time.
    #[test]
    fn no_tenant_waits_for_a_storm(
        adds in proptest::collection::vec((0..6_u32, 0..40_u32), 1..200),
        takes in proptest::collection::vec(0..3_usize, 200),
    ) {
        let queue = WorkQueue::builder().groups(|key: &(u32, u32)| Group::of(&key.0)).build();
        // Per tenant: keys queued, and hand-outs to others since it was last served or arrived.
        let mut queued = [0_usize; 6];
        let mut passed_over = [0_usize; 6];
        let served = |queued: &mut [usize; 6], passed_over: &mut [usize; 6]| {
            let Some(item) = queue.try_get() else { return true };
            let tenant = item.key().0 as usize;
            queued[tenant] -= 1;
            passed_over[tenant] = 0;
            for other in 0..6 {
                passed_over[other] = if queued[other] > 0 && other != tenant { passed_over[other] + 1 } else { 0 };
            }
            passed_over.iter().all(|n| *n <= 5)
        };
        for (key, n) in adds.into_iter().zip(takes) {
            let before = queue.len();
            queue.add(key);
            queued[key.0 as usize] += queue.len() - before;
            for _ in 0..n {
                prop_assert!(served(&mut queued, &mut passed_over));
            }
        }
        while !queue.is_empty() {
            prop_assert!(served(&mut queued, &mut passed_over));
        }
        prop_assert_eq!(queued, [0; 6]);
    }

    /// With any settings, every key is handed out once per add, and no waiter is left behind.
    #[test]
    fn all_settings_lose_nothing(
        adds in proptest::collection::vec((0..30_u32, -3..3_i32), 1..200),
        share in 1..5_u32,
        held_max in 1..4_u32,
    ) {
        let queue = WorkQueue::builder()
            .priorities(Priorities::Share { one_in: NonZeroU32::new(share).unwrap() })
            .groups(|key: &u32| Group::of(&(key % 4)))
            .group_in_flight_max(NonZeroU32::new(held_max).unwrap())
            .build();
        let mut wanted: Vec<u32> = adds.iter().map(|(key, _)| *key).collect();
        for (key, priority) in adds {
            queue.add_with(key, AddOptions::default().priority(priority));
        }
        wanted.sort_unstable();
        wanted.dedup();
        let (mut got, mut held) = (Vec::new(), Vec::new());
        while got.len() < wanted.len() {
            match queue.try_get() {
                Some(item) => {
                    got.push(*item.key());
                    held.push(item);
                    let mut of_group = [0; 4];
                    held.iter().for_each(|item| of_group[(*item.key() % 4) as usize] += 1);
                    prop_assert!(of_group.iter().all(|n| *n <= held_max));
                }
                None => drop(held.pop().unwrap()),
            }
        }
        drop(held);
        got.sort_unstable();
        prop_assert_eq!(got, wanted);
        prop_assert!(queue.levels().is_empty() && queue.is_empty());
    }
}

/// A peak of groups does not change the order of the groups that stay or come after.
#[test]
fn many_groups_come_and_go_in_turn() {
    let queue = WorkQueue::builder().groups(|key: &u32| Group::of(&(key / 2))).build();
    let drain =
        || -> Vec<u32> { std::iter::from_fn(|| queue.try_get().map(|item| *item.key())).collect() };
    for n_keys in [4000, 10, 300, 4000] {
        (0..n_keys).for_each(|key| queue.add(key));
        let turns = (0..n_keys).step_by(2).chain((1..n_keys).step_by(2));
        assert_eq!(drain(), turns.collect::<Vec<_>>(), "{n_keys} keys of {} groups", n_keys / 2);
    }
}
