//! What the crate page promises, as scripts and against a model.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod concurrency;
mod limiter;
mod metrics;
mod model;
mod script;
mod table;
