//! Mutation tests: the simulation must detect each broken rule soon.

use crate::reference::{Choose, Temper};
use crate::{leaders, passes, storms};
use setpoint::runtime::broken::Rule;
use setpoint::runtime::controller::ControllerDefaults;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One storm of a seed over managers with this choice.
type Storm = fn(u64, Choose);

fn storm(seed: u64, choose: Choose) {
    storms::storm(seed, Temper { choose, ..Temper::default() });
}

fn election(seed: u64, choose: Choose) {
    leaders::storm(seed, Temper { choose, ..Temper::default() });
}

/// A manager whose controllers break a rule.
macro_rules! breaking {
    ($rule:ident) => {
        |builder| builder.controller_defaults(ControllerDefaults::new().broken(Rule::$rule))
    };
}

/// For each broken rule, the storm that detects it, and the maximum number of seeds.
const BROKEN: &[(&str, Choose, Storm, u64)] = &[
    ("ForgetsFailures", breaking!(ForgetsFailures), storm, 10),
    ("RetriesAtOnce", breaking!(RetriesAtOnce), passes::fail_always, 1),
    ("ForgetsPanics", breaking!(ForgetsPanics), storm, 20),
    ("ComesBackUnasked", breaking!(ComesBackUnasked), storm, 10),
    ("LeavesPasses", breaking!(LeavesPasses), storm, 20),
    ("StartsUnelected", breaking!(StartsUnelected), election, 10),
];

/// The first seed whose storm detects the broken rule, and its message.
fn found(choose: Choose, storm: Storm, storms: u64) -> Option<(u64, String)> {
    (0..storms).find_map(|seed| {
        let panic = catch_unwind(AssertUnwindSafe(|| storm(seed, choose))).err()?;
        let message =
            panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
        Some((seed, message))
    })
}

#[test]
fn every_broken_rule_is_detected() {
    let mut missed = Vec::new();
    for (rule, choose, storm, storms) in BROKEN {
        match found(*choose, *storm, *storms) {
            Some((seed, message)) => {
                let message: Vec<&str> = message.lines().rev().take(2).collect();
                println!("{rule}: seed {seed} of {storms}: {message:?}");
            }
            None => missed.push(*rule),
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:?}");
}
