//! The contract of the crate page, as scripts and against a model.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a failed test")]

mod concurrency;
mod due;
mod groups;
mod inspect;
mod limiter;
mod limiter_expiry;
mod metrics;
mod model;
mod parallel;
mod priority;
mod priority_model;
mod rest;
mod script;
mod simulation;
mod table;
