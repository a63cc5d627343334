//! Decisions of the index against an evaluator that is slow and obvious.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod matrix;
mod reference;
