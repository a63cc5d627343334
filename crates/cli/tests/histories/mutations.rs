//! The histories' test of themselves: each promise that is broken is found.

use crate::broken::Break;
use crate::engines::Engine;
use crate::play::{Play, play};

/// Within how many histories each break is found.
const HISTORIES_MAX: u64 = 30;

/// Plays histories until one is wrong; why.
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
    // In a list of the newest state, or in one of the past.
    let fault = found(Break::MixedRange);
    assert!(fault.contains("no order explains") || fault.contains("there was never this"));
}

#[test]
fn cache_that_is_behind_what_it_says_is_found() {
    found(Break::EarlyProgress);
}

#[test]
fn gap_in_a_watch_is_found() {
    // By a list of the cache, or by a watch, whichever is judged first.
    found(Break::SkippedChange);
}

#[test]
fn refusal_of_a_write_that_happened_is_found() {
    assert!(found(Break::FalseRefusal).contains("did not happen"));
}
