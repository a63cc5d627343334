//! The program under churn for a while, with a hundred watchers: memory flat, files bounded, watches gapless and endless.
//!
//! Two minutes; `SOAK_SECONDS=1800` for half an hour.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]
#![allow(clippy::disallowed_methods, reason = "tests drive other programs in real time")]

mod churn;
mod program;
mod soak;
mod watching;
