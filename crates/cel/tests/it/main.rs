//! Tests of the crate from outside.

mod conformance;
mod cost;
mod laws;
