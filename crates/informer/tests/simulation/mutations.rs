//! Mutation tests: the simulator must detect each broken rule soon.
//!
//! Compiled by `cargo xtask mutations` only, in a copy of the crate that has the mutations.
use crate::life;
use setpoint_informer::mutant;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// For each mutation, the maximum number of lives until it is detected.
const MUTATIONS: &[(&str, u64)] = &[
    ("NoTombstonesOnRelist", 40),
    ("UnorderedVersions", 200),
    ("PartialStream", 40),
    ("DropsDeletes", 40),
    ("LateHandlerRaces", 40),
    ("MergeKeepsOlder", 40),
    ("PagesCarryVersion", 40),
    ("RelistsAtZero", 40),
    ("SyncedAtOnce", 40),
    ("IndexKeepsOld", 40),
    ("BusyRelists", 40),
    ("ConstantTimeout", 40),
    ("RecordsSkipped", 40),
    ("VerbDecides", 40),
];

/// The first seed whose life violates a rule, and the violation.
fn found(lives: u64) -> Option<(u64, String)> {
    (0..lives).find_map(|seed| {
        let life = AssertUnwindSafe(|| life::run(seed, false).violation);
        let violation = catch_unwind(life).unwrap_or_else(|_| Some("it panicked".to_owned()));
        Some((seed, violation?))
    })
}

#[test]
fn every_broken_rule_is_detected() {
    assert_eq!(mutant::NAMES.len(), MUTATIONS.len());
    let mut missed = Vec::new();
    for (name, lives) in MUTATIONS {
        mutant::set(Some(name));
        match found(*lives) {
            Some((seed, violation)) => {
                let violation: String = violation.chars().take(90).collect();
                println!("{name}: seed {seed} of {lives}: {violation}");
            }
            None => missed.push(*name),
        }
    }
    mutant::set(None);
    assert!(missed.is_empty(), "not detected: {missed:?}");
    // The copy itself breaks no rule.
    assert_eq!(found(40), None);
}
