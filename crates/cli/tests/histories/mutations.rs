//! Tests that each broken promise is detected.

use crate::broken::Break;
use crate::engines::Engine;
use crate::play::{Play, play};

/// Maximum number of histories until a break is detected.
const HISTORIES_MAX: u64 = 30;

/// Plays histories until one fails; returns the failure.
#[track_caller]
fn found(broken: Break) -> String {
    let history = |seed| play(Play { seed, broken: Some(broken) }, Engine::memory).err();
    let found = (0..HISTORIES_MAX).enumerate().find_map(|(n, seed)| Some((n, history(seed)?)));
    let (n, fault) = found.expect("it is found");
    println!("{broken:?} after {} histories: {fault}", n + 1);
    fault
}

#[test]
fn stale_get_is_found() {
    assert!(found(Break::StaleGet).contains("no order explains"));
}

#[test]
fn commit_that_ignores_its_compare_is_found() {
    assert!(found(Break::BlindCommit).contains("no order explains"));
}

#[test]
fn lost_acknowledged_write_is_found() {
    assert!(found(Break::LostCommit).contains("no order explains"));
}

#[test]
fn list_that_mixes_two_states_is_found() {
    // In a list of the newest state, or in one of an old state.
    let fault = found(Break::MixedRange);
    assert!(fault.contains("no order explains") || fault.contains("there was never this"));
}

#[test]
fn cache_that_is_behind_what_it_says_is_found() {
    found(Break::EarlyProgress);
}

#[test]
fn gap_in_a_watch_is_found() {
    // Through a list of the cache, or through a watch, whichever is checked first.
    found(Break::SkippedChange);
}

#[test]
fn refusal_of_a_write_that_happened_is_found() {
    assert!(found(Break::FalseRefusal).contains("did not happen"));
}
