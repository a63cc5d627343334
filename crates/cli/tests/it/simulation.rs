//! The demo's story in simulated time: the same seed gives the same trace, and faults of the
//! controller do not change the final state.

use crate::replay::{Replay, assert_same, seeds};
use crate::world::{Play, Played, play};
use setpoint::store::fault;
use setpoint::testenv::wire::{Crash, Faults};
use setpoint_cli::story::{Events, StepOutcome};

/// Maximum number of requests of the controller in one story, with any faults: a loop without
/// back-off makes far more.
const REQUESTS_MAX: usize = 300;
/// Maximum number of requests in the minute after: its watches are sometimes renewed.
const REQUESTS_AFTERWARDS_MAX: usize = 20;

#[test]
fn story_ends_as_expected_and_the_same_way_each_time() {
    let first = play(Play::clean(1));
    assert_eq!(first.error, None);
    let wrong: Vec<&StepOutcome> =
        first.outcomes.iter().filter(|outcome| !outcome.is_expected()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(first.held, [], "networks that are still held");
    assert_eq!(first.outcomes.len(), 6);
    for _ in 0..5 {
        let again = play(Play::clean(1));
        assert_same(&first.trace, &again.trace);
    }
    assert_ne!(play(Play::clean(2)).trace, first.trace, "a seed changes something");
}

#[test]
fn faults_are_the_same_each_time() {
    let stormy = |seed| play(chaos(seed)).trace;
    for seed in [3, 14, 17] {
        assert_same(&stormy(seed), &stormy(seed));
    }
}

/// A story with all kinds of faults.
fn chaos(seed: u64) -> Play {
    let faults = Faults { seed, chance: 0.25, faults_max: 40 };
    let n = usize::try_from(seed / 3 % 14).unwrap();
    let crash = match seed % 3 {
        0 => None,
        1 => Some(Crash::Before(n)),
        _ => Some(Crash::After(n)),
    };
    // Some storms affect the store.
    let chance = if seed % 5 == 4 { 0.05 } else { 0.0 };
    let store = fault::Faults { unavailable: chance, answer_lost: chance, feed_broken: chance };
    Play { seed, faults, crash, events: Events::MayBeLost, store }
}

/// The first problem with how the story ended, if any.
fn fault(played: &Played, clean: &Played) -> Option<String> {
    if let Some(why) = &played.error {
        return Some(format!("the story failed: {why}"));
    }
    if let Some(wrong) = played.outcomes.iter().find(|outcome| !outcome.is_expected()) {
        return Some(format!("{wrong:#?}"));
    }
    if !played.held.is_empty() {
        return Some(format!("networks are still held: {:?}", played.held));
    }
    if played.keys != clean.keys {
        return Some(format!("keys:\n{:#?}\nrather than\n{:#?}", played.keys, clean.keys));
    }
    let (during, after) = played.n_requests;
    if during > REQUESTS_MAX || after > REQUESTS_AFTERWARDS_MAX {
        return Some(format!("{during} requests, and {after} after the end"));
    }
    None
}

#[test]
fn crash_at_any_write_does_not_change_the_final_state() {
    let clean = play(Play::clean(1));
    assert_eq!(clean.error, None, "{}", clean.trace);
    assert!(clean.n_writes >= 5, "{} writes", clean.n_writes);
    for n in 1..=clean.n_writes {
        for crash in [Crash::Before(n), Crash::After(n)] {
            let played =
                play(Play { crash: Some(crash), events: Events::MayBeLost, ..Play::clean(1) });
            assert!(played.trace.contains("controller is killed"), "{crash:?} did not happen");
            if let Some(fault) = fault(&played, &clean) {
                panic!("{}\n{crash:?}: {fault}", played.trace);
            }
        }
    }
}

/// Number of seeds, unless `SEEDS` is set.
const SEEDS: u64 = 120;

#[test]
fn faults_and_crashes_do_not_change_the_final_state() {
    let clean = play(Play::clean(1));
    for seed in seeds(SEEDS) {
        let _replay = Replay { seed, test: "faults_and_crashes_do_not" };
        let played = play(chaos(seed));
        assert_eq!(fault(&played, &clean), None);
    }
}
