//! Histories on the memory engine.

use crate::engines::Engine;
use crate::play::{Play, play};
use crate::record::Played;
use crate::replay::{play_all, seeds};

/// Number of histories, unless `SEEDS` is set.
const HISTORIES: u64 = 1000;

fn memory(seed: u64) -> Result<Played, String> {
    play(Play { seed, broken: None }, Engine::memory)
}

#[test]
fn histories_on_memory_are_linearizable() {
    let tally = play_all("histories_on_memory_are_linearizable", seeds(HISTORIES), memory);
    println!("{tally:#?}");
}

#[test]
fn history_on_memory_is_a_function_of_its_seed() {
    for seed in [3, 4, 5] {
        assert_eq!(memory(seed).unwrap().calls, memory(seed).unwrap().calls);
    }
    assert_ne!(memory(3).unwrap().calls, memory(4).unwrap().calls);
}
