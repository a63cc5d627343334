//! Mutation tests: the simulation must detect each broken rule soon.
//!
//! Compiled by `cargo xtask mutations` only, in a copy of the workspace whose runtime has the
//! mutations.

use crate::{leaders, passes, storms};
use setpoint::runtime::mutant;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One storm of a seed; panics if it violates a rule.
type Storm = fn(u64);

fn storm(seed: u64) {
    storms::storm(seed);
}

fn election(seed: u64) {
    leaders::storm(seed);
}

/// For each mutation, the storm that detects it, and the maximum number of seeds.
const MUTATIONS: &[(&str, Storm, u64)] = &[
    ("ForgetsFailures", storm, 10),
    ("RetriesAtOnce", passes::fail_always, 1),
    ("ForgetsPanics", storm, 20),
    ("ComesBackUnasked", storm, 10),
    ("LeavesPasses", storm, 20),
    ("StartsUnelected", election, 10),
];

/// The first seed whose storm detects the broken rule, and its message.
fn found(storm: Storm, storms: u64) -> Option<(u64, String)> {
    (0..storms).find_map(|seed| {
        let panic = catch_unwind(AssertUnwindSafe(|| storm(seed))).err()?;
        let message =
            panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
        Some((seed, message))
    })
}

#[test]
fn every_broken_rule_is_detected() {
    assert_eq!(mutant::NAMES.len(), MUTATIONS.len());
    let mut missed = Vec::new();
    for (name, storm, storms) in MUTATIONS {
        mutant::set(Some(name));
        match found(*storm, *storms) {
            Some((seed, message)) => {
                let message: Vec<&str> = message.lines().rev().take(2).collect();
                println!("{name}: seed {seed} of {storms}: {message:?}");
            }
            None => missed.push(*name),
        }
    }
    mutant::set(None);
    assert!(missed.is_empty(), "not detected: {missed:?}");
    // The copy itself breaks no rule.
    for seed in 0..4 {
        storm(seed);
        election(seed);
    }
}
