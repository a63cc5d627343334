//! Managers and controllers as simulated processes over a control plane in this process. They are
//! stalled, killed, disconnected and refused at every point; each run is a function of its seed.
//!
//! [`harness`] explains how it works. A failing test prints how to replay its seed. `cargo xtask
//! mutations` compiles this test with the module `mutations`, and breaks one rule of the runtime at
//! a time.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod election;
mod election_leases;
#[allow(
    dead_code,
    reason = "the harness offers what a test of a process may need; not each is needed today"
)]
mod harness;
mod leaders;
mod machine;
mod passes;
mod reference;
mod shards;
mod stops;
mod storms;
