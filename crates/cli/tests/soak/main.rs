//! The program under churn for a while, with a hundred watchers: memory flat, files bounded,
//! watches gapless and endless.
//!
//! Two minutes, with history kept for ten seconds, so that everything that is bounded fills and
//! turns over several times; and as long as it takes until what is written would show if it were
//! kept. `SOAK_SECONDS=1800` for half an hour, with the bounds that users have.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]
#![allow(clippy::disallowed_methods, reason = "tests drive other programs in real time")]

mod churn;
mod program;
mod soak;
mod watching;
