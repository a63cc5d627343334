//! A simulator: runs informers against model servers with random histories and faults. Each run is
//! determined by its seed.
//!
//! # Theory
//!
//! ```text
//!   History ──▶ Server: lists and watches with faults ──▶ SharedInformer ──▶ Lister, handlers
//!                 │ every request, every answer                                 │
//!                 ├──▶ Oracle: the expected next request, and its time          │ compared at every step
//!                 └──▶ Reference: the expected cache, frame by frame ◀──────────┘
//! ```
//!
//! A run uses one thread and paused time. The server injects every fault that an informer must
//! handle. The oracle has the rules of the reflector, and the reference has the rules of the cache.
//! Both receive only what was actually delivered, so a fault never makes their result ambiguous.
//! After the last fault, the cache and all handlers must agree with the server. After the end, no
//! resources may remain.
//!
//! | invariant (§9) | checked by |
//! |---|---|
//! | 1              | `Run::quiesce`: the cache equals the server's objects; `Run::check_indices` at every step |
//! | 2              | `CheckingHandler::check_event`: each object is added once, updated from its previous event, and deleted once |
//! | 3              | `CheckingHandler::check_event` per key; `Oracle::on_watch_request`, REF-12 and REF-21, for the reflector's version |
//! | 4              | `Run::check_invariants`: the cache has only states of the reference; `Run::check_handlers` for handlers |
//! | 5              | `Run::check_handlers`: handlers that were added late, one of them at the end, have the same objects |
//! | 6              | `Run::wait_for_sync`, `Run::check_invariants`, `Run::add_handler` and `TestHandler::check` |
//! | 7              | `Oracle::on_list_request`: a list follows a 410, and has the right version |
//! | 8              | `Oracle::check_time`; a list never follows a 429 or a refused connection |
//! | 9              | `Oracle::on_watch_request`, and the coverage of both halves of the range |
//! | 10             | `Oracle::on_list_request`: a later page is requested by its token alone |
//! | 11             | `Run::quiesce` counts; `Reference`: a list is rejected if the transform fails for an object |
//! | 12             | `Run::quiesce`: fast handlers and the cache agree while other handlers are blocked |
//! | 13             | `HandlerRecord::is_over` |
//! | 14             | `Run::check_invariants`: no state of the reference has a part of a list |
//! | 15             | `Reference` applies single events, the informer applies batches |
//! | 16             | frames without a name, of the wrong type or with an unknown verb; repeated items; lists without a version; the number of requests at one instant is bounded |
//!
//! It also checks that a snapshot does not change (IDX-3), an object that does not fit an index is
//! reported (IDX-5), the cache is never older than an event (EVT-7), a handler's queue is bounded
//! (SHI-5), a removal and the end are in time (SHI-7, CTL-1), and no task, handler, object or watch
//! remains.
//!
//! `cargo xtask mutations` compiles the simulator with the module `mutations`, over a copy of the
//! crate, and checks that it detects each broken rule.
//!
//! A failure prints the command that replays its seed. A replay prints all requests, answers and
//! events.

#![expect(clippy::unwrap_used, reason = "a test whose setup fails must fail")]

mod coverage;
mod fault;
mod handler;
mod history;
mod oracle;
mod reference;
mod run;
mod server;
mod watching;

use coverage::Coverage;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of runs of each of the four tests below: ten thousand in total.
const RUNS: u64 = 2500;

/// The minimum count of each [`coverage::CoverPoint`] in these runs.
const COVERAGE_MIN: u64 = 20;

fn run_seeds(seeds: Range<u64>) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let violation = match catch_unwind(AssertUnwindSafe(|| run::run(seed, false))) {
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

fn run_quarter(quarter: u64) {
    let coverage = run_seeds(quarter * RUNS..(quarter + 1) * RUNS);
    println!("{}", coverage.table());
    let rare = coverage.rarer_than(COVERAGE_MIN);
    assert!(rare.is_empty(), "the simulator no longer covers: {rare:?}");
}

#[test]
fn every_run_keeps_the_rules_first_quarter() {
    run_quarter(0);
}

#[test]
fn every_run_keeps_the_rules_second_quarter() {
    run_quarter(1);
}

#[test]
fn every_run_keeps_the_rules_third_quarter() {
    run_quarter(2);
}

#[test]
fn every_run_keeps_the_rules_fourth_quarter() {
    run_quarter(3);
}

#[test]
fn same_seed_gives_the_same_trace() {
    let trace = |seed| run::run(seed, true).trace;
    for seed in 0..20 {
        let first = trace(seed);
        assert!(first.len() > 20);
        assert_eq!(first, trace(seed), "seed {seed}");
    }
    assert_ne!(trace(0), trace(1));
}

/// Replays the seed in the environment variable `SEED` and prints its trace. Does nothing without
/// it.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("SEED") else { return };
    let outcome = run::run(seed.parse().unwrap(), true);
    for line in &outcome.trace {
        println!("{line}");
    }
    assert_eq!(outcome.violation, None);
}
