//! Managers and controllers as processes of their own, over a control plane in this process:
//! stalled, killed, cut off and refused at every point, each run a function of its seed.
//!
//! [`harness`] says how it works. A failing seed says how to replay it.

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
#[cfg(feature = "broken-rules")]
mod mutations;
mod passes;
mod reference;
mod shards;
mod stops;
mod storms;
