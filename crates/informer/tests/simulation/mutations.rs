//! Mutation tests: the simulator must detect each broken rule soon.
//!
//! Compiled by `cargo xtask mutations` only, in a copy of the crate that has the mutations.
use crate::run;
use setpoint_informer::mutant;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The maximum number of runs until each mutation is detected.
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

/// The first seed whose run violates a rule, and the violation.
fn find_violation(n_runs: u64) -> Option<(u64, String)> {
    (0..n_runs).find_map(|seed| {
        let one = AssertUnwindSafe(|| run::run(seed, false).violation);
        let violation = catch_unwind(one).unwrap_or_else(|_| Some("it panicked".to_owned()));
        Some((seed, violation?))
    })
}

#[test]
fn every_broken_rule_is_detected() {
    assert_eq!(mutant::NAMES.len(), MUTATIONS.len());
    let mut missed = Vec::new();
    for (name, runs) in MUTATIONS {
        mutant::set(Some(name));
        match find_violation(*runs) {
            Some((seed, violation)) => {
                let violation: String = violation.chars().take(90).collect();
                println!("{name}: seed {seed} of {runs}: {violation}");
            }
            None => missed.push(*name),
        }
    }
    mutant::set(None);
    assert!(missed.is_empty(), "not detected: {missed:?}");
    // The copy itself breaks no rule.
    assert_eq!(find_violation(40), None);
}
