//! Calls to real HTTPS servers on the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod calls;
mod server;
