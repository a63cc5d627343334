//! The operator: its decision, its passes through crashes and faults, and real clusters.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod plan;
mod plans;
mod real;
mod rights;
mod world;
