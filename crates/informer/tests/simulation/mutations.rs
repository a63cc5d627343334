//! Rules broken one at a time: the simulator notices each, soon.
use crate::life;
use setpoint_informer::SharedInformerBuilder;
use setpoint_informer::broken::Rule;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Within how many lives each broken rule is found out.
const BROKEN: &[(Rule, u64)] = &[
    (Rule::NoTombstonesOnRelist, 40),
    (Rule::UnorderedVersions, 200),
    (Rule::PartialStream, 40),
    (Rule::DropsDeletes, 40),
    (Rule::LateHandlerRaces, 40),
    (Rule::MergeKeepsOlder, 40),
    (Rule::PagesCarryVersion, 40),
    (Rule::RelistsAtZero, 40),
    (Rule::SyncedAtOnce, 40),
    (Rule::IndexKeepsOld, 40),
    (Rule::BusyRelists, 40),
    (Rule::ConstantTimeout, 40),
    (Rule::RecordsSkipped, 40),
    (Rule::VerbDecides, 40),
];

/// The first seed whose life breaks a rule, and what is said of it.
fn found(rule: Rule, lives: u64) -> Option<(u64, String)> {
    (0..lives).find_map(|seed| {
        let broken = |builder: SharedInformerBuilder<_>| builder.broken(rule);
        let life = AssertUnwindSafe(|| life::run_with(seed, false, broken).violation);
        let violation = catch_unwind(life).unwrap_or_else(|_| Some("it panicked".to_owned()));
        Some((seed, violation?))
    })
}

#[test]
fn every_broken_rule_is_found_out() {
    let mut missed = Vec::new();
    for (rule, lives) in BROKEN {
        match found(*rule, *lives) {
            Some((seed, violation)) => {
                let said: String = violation.chars().take(90).collect();
                println!("{rule:?}: seed {seed} of {lives}: {said}");
            }
            None => missed.push(*rule),
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:?}");
}

#[test]
fn an_informer_of_which_no_rule_is_broken_keeps_them_with_the_hooks_in_place() {
    for seed in 0..40 {
        assert_eq!(life::run(seed, false).violation, None, "seed {seed}");
    }
}
