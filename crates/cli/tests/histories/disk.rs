//! Histories on the disk engine.

use crate::engines::Engine;
use crate::play::{Play, play};
use crate::record::Played;
use crate::replay::{play_all, seeds};

/// Number of histories, unless `SEEDS` is set.
const HISTORIES: u64 = 1000;

fn disk(seed: u64) -> Result<Played, String> {
    play(Play { seed, broken: None }, Engine::disk)
}

#[test]
fn histories_on_disk_are_linearizable() {
    let tally = play_all("histories_on_disk_are_linearizable", seeds(HISTORIES), disk);
    println!("{tally:#?}");
}

#[test]
fn history_on_disk_is_a_function_of_its_seed() {
    for seed in [3, 4, 5] {
        assert_eq!(disk(seed).unwrap().calls, disk(seed).unwrap().calls);
    }
}
