//! A simulator: informers of modelled servers, over random histories and faults, each life a
//! function of its seed.
//!
//! # Theory
//!
//! ```text
//!   World ──▶ Server: lists and watches with faults ──▶ SharedInformer ──▶ Lister, handlers
//!               │ every request, every answer                                 │
//!               ├──▶ Oracle: what has to be asked next, and when              │ compared at every step
//!               └──▶ Reference: what the cache has to be, frame by frame ◀────┘
//! ```
//!
//! A life runs on one thread under paused time. The server brings about what the informer must
//! bear; the oracle knows the rules of the reflector and the reference those of the cache, and both
//! are told only of what was delivered, so that no fault makes them unsure. After the last fault
//! everything has to come right, and after the end nothing may be left.
//!
//! | invariant (§9) | is held by                                                                                            |
//! |----------------|-------------------------------------------------------------------------------------------------------|
//! | 1              | `Life::quiesce`: the cache is what the server holds; `Life::check_indices` at every step              |
//! | 2              | `Teller::judge`: added once, updated from what was told, deleted once per life                        |
//! | 3              | `Teller::judge` per key; `Oracle::asks_watch`, REF-12 and REF-21, for the reflector's version         |
//! | 4              | `Life::observe`: the cache goes through the reference's states only; `Life::agree` for handlers       |
//! | 5              | `Life::agree`: handlers that came late, one of them after everything, believe the same                |
//! | 6              | `Life::wait_for_sync`, `Life::observe`, `Life::join` and `Witness::look`                              |
//! | 7              | `Oracle::asks_list`: the version of the list after a 410, and that there is one                       |
//! | 8              | `Oracle::check_time`, and that no rule leads from 429 or a refused connection to a list               |
//! | 9              | `Oracle::asks_watch`, and the coverage of both halves of the range                                    |
//! | 10             | `Oracle::asks_list`: a page is asked for by its token alone                                           |
//! | 11             | `Life::quiesce` counts; `Reference`: a list with an object that does not transform is not taken in    |
//! | 12             | `Life::quiesce`: quick handlers and the cache agree while others are stuck                            |
//! | 13             | `Told::is_over`                                                                                       |
//! | 14             | `Life::observe`: no state of the reference holds a part of a list                                     |
//! | 15             | `Reference` applies single events, the informer batches                                               |
//! | 16             | nameless, mistyped and unknown frames, repeated items, lists without a version; requests at one instant are bounded |
//!
//! Beside them: a snapshot stays what it was (IDX-3), a rejected object is told of (IDX-5), the
//! cache is as new as an event (EVT-7), a handler's queue is bounded (SHI-5), removals and the end
//! come in time (SHI-7, CTL-1), and no task, handler, object or watch is left.
//!
//! `cargo xtask mutations` compiles the simulator with the module `mutations`, over a copy of the
//! crate, and checks that it detects each broken rule.
//!
//! A failing seed says how to replay it, and a replay prints everything that was asked, answered
//! and told.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod coverage;
mod fault;
mod life;
mod oracle;
mod reference;
mod server;
mod watching;
mod witness;
mod world;

use coverage::Coverage;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many lives each of the four tests below lives: ten thousand in all.
const LIVES: u64 = 2500;

/// How often everything in [`coverage::Seen`] must happen in so many lives.
const SEEN_MIN: u64 = 20;

fn live(seeds: Range<u64>) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let violation = match catch_unwind(AssertUnwindSafe(|| life::run(seed, false))) {
            Ok(outcome) => {
                coverage.add(&outcome.coverage);
                outcome.violation
            }
            Err(_) => Some("it panicked".to_owned()),
        };
        if let Some(violation) = violation {
            panic!(
                "{violation}\nreplay: SEED={seed} cargo test -p setpoint-informer --test simulation replay -- --nocapture"
            );
        }
    }
    coverage
}

fn live_and_see_everything(quarter: u64) {
    let coverage = live(quarter * LIVES..(quarter + 1) * LIVES);
    println!("{}", coverage.table());
    let rare = coverage.rarer_than(SEEN_MIN);
    assert!(rare.is_empty(), "the simulator goes blind: {rare:?}");
}

#[test]
fn every_life_keeps_the_rules_first_quarter() {
    live_and_see_everything(0);
}

#[test]
fn every_life_keeps_the_rules_second_quarter() {
    live_and_see_everything(1);
}

#[test]
fn every_life_keeps_the_rules_third_quarter() {
    live_and_see_everything(2);
}

#[test]
fn every_life_keeps_the_rules_fourth_quarter() {
    live_and_see_everything(3);
}

#[test]
fn a_life_is_a_function_of_its_seed() {
    let trace = |seed| life::run(seed, true).trace;
    for seed in 0..20 {
        let first = trace(seed);
        assert!(first.len() > 20);
        assert_eq!(first, trace(seed), "seed {seed}");
    }
    assert_ne!(trace(0), trace(1));
}

/// Lives the life of the seed in `SEED` and prints its trace; does nothing without one.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("SEED") else { return };
    let outcome = life::run(seed.parse().unwrap(), true);
    for line in &outcome.trace {
        println!("{line}");
    }
    assert_eq!(outcome.violation, None);
}
