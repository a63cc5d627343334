//! Runs the program under continuous writes with a hundred watchers: memory must not grow, files
//! must be bounded, watches must have no gaps and must not end.
//!
//! Takes a minute, with a history of five seconds, so that everything bounded fills and turns
//! over several times, plus the time until a leak would show. `SOAK_SECONDS=1800` runs for half an
//! hour, with the default bounds.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]
#![allow(clippy::disallowed_methods, reason = "tests drive other programs in real time")]

mod churn;
mod program;
#[path = "../shared/ready_line.rs"]
mod ready_line;
mod soak;
mod watching;
