//! The network product, by what its user sees.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

#[cfg(feature = "netns-tests")]
mod bridge;
mod neutron;
mod plans;
