//! Rules broken one at a time: the simulation notices each, soon.

use crate::reference::{Choose, Temper};
use crate::{leaders, passes, storms};
use setpoint::runtime::broken::Rule;
use setpoint::runtime::controller::ControllerDefaults;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One storm of a seed over managers that are chosen so.
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

/// By which storms, and within how many, each broken rule is found out.
const BROKEN: &[(&str, Choose, Storm, u64)] = &[
    ("ForgetsFailures", breaking!(ForgetsFailures), storm, 10),
    ("RetriesAtOnce", breaking!(RetriesAtOnce), passes::fail_always, 1),
    ("ForgetsPanics", breaking!(ForgetsPanics), storm, 20),
    ("ComesBackUnasked", breaking!(ComesBackUnasked), storm, 10),
    ("LeavesPasses", breaking!(LeavesPasses), storm, 20),
    ("StartsUnelected", breaking!(StartsUnelected), election, 10),
];

/// The first seed whose storm shows it, and what is said of it.
fn found(choose: Choose, storm: Storm, storms: u64) -> Option<(u64, String)> {
    (0..storms).find_map(|seed| {
        let panic = catch_unwind(AssertUnwindSafe(|| storm(seed, choose))).err()?;
        let said = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
        Some((seed, said))
    })
}

#[test]
fn every_broken_rule_is_found_out() {
    let mut missed = Vec::new();
    for (rule, choose, storm, storms) in BROKEN {
        match found(*choose, *storm, *storms) {
            Some((seed, said)) => {
                let said: Vec<&str> = said.lines().rev().take(2).collect();
                println!("{rule}: seed {seed} of {storms}: {said:?}");
            }
            None => missed.push(*rule),
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:?}");
}
